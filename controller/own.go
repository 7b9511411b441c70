package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// maxOwn bounds the own commands that wait or are in flight; callers wait
// beyond it.
const maxOwn = 1024

// own is the pipeline of this process's own commands (cmd-1, K4). Commands get
// their cmd_seq when they enter the queue and leave it in batches, one batch in
// flight at a time; a batch whose reply is lost is sent again with the same
// numbers until the leader answers. The state machine refuses a number it has
// consumed, so each command takes effect once, and a late copy of an older
// batch cannot overtake a newer one.
//
// Outcomes come from the log rather than from replies, which can be lost: when the image advances by an entry that holds one of our commands, its
// result is computed here as on every other node, and that is the outcome. A
// reply only matters to a process whose image jumped over the entry by a
// snapshot. If the reply is then a refusal that an applied copy would have
// caused as well (stale, or fenced meanwhile), the outcome is unknown, and says
// so (K5).
type own struct {
	node  *Node
	slots chan struct{} // one token per command that waits or is in flight
	wake  chan struct{}
	mu    struct {
		sync.Mutex
		inc      metadata.Incarnation
		seq      uint64 // the last one given out
		queue    []*ownCommand
		inflight []*ownCommand // of one incarnation, in order of seq
	}
}

type ownCommand struct {
	command *metadatapb.Command
	inc     metadata.Incarnation
	size    int
	done    chan struct{} // closed when result and err are set
	result  metadata.Result
	err     error
	// What the leader replied, to be used once the image is at index.
	replied  bool
	jumped   bool // the image skipped entries while it was in flight
	observed bool // reply is from the log, and final
	index    metadata.Index
	reply    metadata.Result
	resolved bool
}

func newOwn(n *Node) *own {
	return &own{node: n, slots: make(chan struct{}, maxOwn), wake: make(chan struct{}, 1)}
}

// begin starts the numbers of a new incarnation. What still waits belongs to
// the one before and is not sent any more.
func (o *own) begin(inc metadata.Incarnation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.inc == inc {
		return
	}
	o.mu.inc, o.mu.seq = inc, 0
	for _, c := range o.mu.queue {
		o.resolveLocked(c, metadata.Result{}, fmt.Errorf("%w: incarnation %v has ended: %w", ErrNotSubmitted, c.inc, ErrNotRegistered))
	}
	o.mu.queue = nil
}

// SubmitOwn submits a command of this broker's present incarnation; it fills
// in from and cmd_seq. A command whose from is set already is refused unless it
// is that of the present incarnation. Commands take effect in the order of the calls (cmd-1).
// It returns when the effect is in the local image, or the rejection in
// Result.Err. ErrNotSubmitted: it never will be; ErrUnknownOutcome: the command
// may have been or may yet be applied. A command is pursued after ctx ended
// until its outcome is known, so one that was sent is never silently given up.
func (n *Node) SubmitOwn(ctx context.Context, command *metadatapb.Command) (metadata.Result, error) {
	return n.own.submit(ctx, command)
}

func (o *own) submit(ctx context.Context, command *metadatapb.Command) (metadata.Result, error) {
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		return metadata.Result{}, fmt.Errorf("submit own command: %w: %w", ErrNotSubmitted, ctx.Err())
	case <-o.node.closing:
		return metadata.Result{}, fmt.Errorf("submit own command: %w: %w", ErrNotSubmitted, ErrClosed)
	}
	c, err := o.enqueue(command)
	if err != nil {
		<-o.slots
		return metadata.Result{}, fmt.Errorf("submit own command: %w", err)
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return o.abandon(c, ctx.Err())
	case <-o.node.closing:
		return o.abandon(c, ErrClosed)
	}
}

func (o *own) enqueue(command *metadatapb.Command) (*ownCommand, error) {
	live := o.node.Incarnation()
	o.mu.Lock()
	defer o.mu.Unlock()
	if live.IsZero() || live != o.mu.inc {
		return nil, fmt.Errorf("%w: %w", ErrNotSubmitted, ErrNotRegistered)
	}
	// A part of the process that still works for an incarnation that has ended
	// must not speak for the next one: its trims and extents are of another WAL.
	if from := metadata.IncarnationFrom(command.From); !from.IsZero() && from != live {
		return nil, fmt.Errorf("%w: it is of incarnation %v, this process is %v now: %w", ErrNotSubmitted, from, live, ErrNotRegistered)
	}
	o.mu.seq++
	command.From, command.CmdSeq = live.Proto(), o.mu.seq
	c := &ownCommand{command: command, inc: live, done: make(chan struct{}), size: proto.Size(command) + 8}
	o.mu.queue = append(o.mu.queue, c)
	return c, nil
}

// abandon ends a caller's wait. A command that was not sent yet is withdrawn;
// the gap in the numbers does no harm.
func (o *own) abandon(c *ownCommand, cause error) (metadata.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.resolved {
		return c.result, c.err
	}
	for i, q := range o.mu.queue {
		if q == c {
			o.mu.queue = append(o.mu.queue[:i:i], o.mu.queue[i+1:]...)
			o.resolveLocked(c, metadata.Result{}, fmt.Errorf("submit own command: %w: %w", ErrNotSubmitted, cause))
			return c.result, c.err
		}
	}
	return metadata.Result{}, fmt.Errorf("submit own command: %w: %w", ErrUnknownOutcome, cause)
}

func (o *own) resolveLocked(c *ownCommand, r metadata.Result, err error) {
	if c.resolved {
		return
	}
	c.resolved, c.result, c.err = true, r, err
	close(c.done)
	<-o.slots // never blocks: the command holds a token
}

// run sends batches until ctx ends.
func (o *own) run(ctx context.Context) {
	for {
		batch := o.next()
		if batch == nil {
			select {
			case <-o.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if o.send(ctx, batch) != nil {
			return
		}
	}
}

// next moves commands of one incarnation, up to maxEntry bytes, into flight.
func (o *own) next() []*ownCommand {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, size := 0, 0
	for n < len(o.mu.queue) && o.mu.queue[n].inc == o.mu.queue[0].inc {
		size += o.mu.queue[n].size
		if n > 0 && size > maxEntry {
			break
		}
		n++
	}
	if n == 0 {
		return nil
	}
	batch := o.mu.queue[:n:n]
	o.mu.queue = o.mu.queue[n:]
	o.mu.inflight = append(o.mu.inflight, batch...)
	return batch
}

// send repeats a batch until the leader replied to it. It fails only when ctx
// ends.
func (o *own) send(ctx context.Context, batch []*ownCommand) error {
	q := &controllerpb.SubmitRequest{ClusterId: o.node.clusterID()}
	for _, c := range batch {
		q.Commands = append(q.Commands, c.command)
	}
	for try := 0; ; try++ {
		resp := new(controllerpb.SubmitResponse)
		err := o.node.client.callOnce(ctx, laneCommand, keySubmit, q, resp)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			o.node.log.Debug("own commands are sent again", "err", err)
			select {
			case <-time.After(min(minBackoff<<min(try, 5), maxBackoff)):
			case <-ctx.Done():
				return ctx.Err()
			}
		case resp.Outcome.GetCode() != controllerpb.Code_OK || len(resp.Results) != len(batch):
			return o.giveUp(batch, fmt.Errorf("%w: the leader answers %v: %s",
				ErrUnknownOutcome, resp.Outcome.GetCode(), resp.Outcome.GetMessage()))
		default:
			return o.replied(batch, resp)
		}
	}
}

func (o *own) giveUp(batch []*ownCommand, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range batch {
		o.resolveLocked(c, metadata.Result{}, err)
	}
	o.sweepLocked()
	return nil
}

func (o *own) replied(batch []*ownCommand, resp *controllerpb.SubmitResponse) error {
	o.mu.Lock()
	for i, c := range batch {
		r, err := metadata.UnmarshalResult(resp.Results[i])
		if err != nil {
			o.resolveLocked(c, r, fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
			continue
		}
		if !c.observed {
			c.replied, c.reply, c.index = true, r, metadata.Index(resp.Index)
		}
	}
	o.mu.Unlock()
	o.advanced(o.node.Image())
	return nil
}

// observe sees every entry that advanced the image, in order. The first copy of
// a command of ours that it sees tells the outcome, unless an earlier copy may
// have been skipped.
func (o *own) observe(e *metadatapb.Entry, results []metadata.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.inflight) == 0 {
		return
	}
	for i, cmd := range e.GetCommands() {
		if cmd.GetFrom().GetBroker() != int32(o.node.cfg.NodeID) || i >= len(results) {
			continue
		}
		from := metadata.IncarnationFrom(cmd.GetFrom())
		for _, c := range o.mu.inflight {
			if c.inc != from || c.command.CmdSeq != cmd.GetCmdSeq() || c.observed || c.jumped && isSpent(results[i]) {
				continue
			}
			// The caller is told by advanced, once the image shows it.
			c.observed, c.reply = true, results[i]
		}
	}
}

// installed notes that the image is about to jump over entries.
func (o *own) installed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.mu.inflight {
		c.jumped = true
	}
}

// isSpent says whether a command may have been refused only because a copy of
// it was applied before.
func isSpent(r metadata.Result) bool {
	return r.Err != nil && (errors.Is(r.Err, metadata.ErrStaleCommand) || errors.Is(r.Err, metadata.ErrFencedIncarnation))
}

// advanced tells the callers whose outcome the image now shows.
func (o *own) advanced(img *metadata.Image) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.mu.inflight {
		switch {
		case c.observed:
			o.resolveLocked(c, c.reply, nil)
		case !c.replied || c.index > img.Index():
		case c.jumped && isSpent(c.reply):
			o.resolveLocked(c, metadata.Result{}, fmt.Errorf(
				"submit own command: %w: it was applied already or refused, and its result was skipped", ErrUnknownOutcome))
		default:
			o.resolveLocked(c, c.reply, nil)
		}
	}
	o.sweepLocked()
}

// sweepLocked forgets what is resolved.
func (o *own) sweepLocked() {
	keep := o.mu.inflight[:0]
	for _, c := range o.mu.inflight {
		if !c.resolved {
			keep = append(keep, c)
		}
	}
	clear(o.mu.inflight[len(keep):])
	o.mu.inflight = keep
}
