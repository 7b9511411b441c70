package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

const (
	// maxEntry is the size in bytes up to which commands are gathered into one
	// Raft entry. A single larger command still gets an entry of its own.
	maxEntry = 256 << 10
	// maxProposals bounds the queue of the committer; callers wait beyond it.
	maxProposals = 4096
	// enqueueTimeout is how long an entry may wait to enter Raft.
	enqueueTimeout = 5 * time.Second
)

// errNotLeader: nothing was done, another node leads or none does.
var errNotLeader = errors.New("not the leader")

// committer is the leader's only way into the Raft log. One entry is in flight
// at a time; what callers bring meanwhile is gathered into the next, so that
// the number of commands per second does not depend on the disk's latency.
//
// One in flight also gives barriers their index: between two entries the image
// holds every command that this leader ever proposed (K6).
type committer struct {
	raft   *raft.Raft
	images *images
	queue  chan *proposal
	verify chan *proposal
	done   chan struct{} // closed when run ended; nothing is taken after
}

// proposal is a list of commands that enter the log in order, or a barrier if
// there are none.
type proposal struct {
	commands []*metadatapb.Command
	size     int
	reply    chan proposed // buffered
	index    metadata.Index
}

type proposed struct {
	index   metadata.Index
	results []metadata.Result
	err     error
}

func newCommitter(r *raft.Raft, s *images) *committer {
	return &committer{
		raft: r, images: s,
		queue:  make(chan *proposal, maxProposals),
		verify: make(chan *proposal, maxProposals),
		done:   make(chan struct{}),
	}
}

// propose commits commands in order, all in one entry, and returns when they
// were applied here. errNotLeader means that nothing was done, every other
// error that the outcome is unknown.
func (c *committer) propose(ctx context.Context, commands ...*metadatapb.Command) (metadata.Index, []metadata.Result, error) {
	p := &proposal{commands: commands, reply: make(chan proposed, 1)}
	now := wall.Milli(time.Now())
	for _, cmd := range commands {
		if cmd.TimeMs == 0 {
			cmd.TimeMs = now
		}
		p.size += proto.Size(cmd) + 8
	}
	r := c.enqueue(ctx, p)
	return r.index, r.results, r.err
}

// barrier returns an index at or above everything that completed anywhere
// before the call, after the quorum confirmed that this node still leads.
func (c *committer) barrier(ctx context.Context) (metadata.Index, error) {
	r := c.enqueue(ctx, &proposal{reply: make(chan proposed, 1)})
	return r.index, r.err
}

func (c *committer) enqueue(ctx context.Context, p *proposal) proposed {
	select {
	case <-c.done:
		return proposed{err: errNotLeader}
	default:
	}
	select {
	case c.queue <- p:
	case <-c.done:
		return proposed{err: errNotLeader}
	case <-ctx.Done():
		return proposed{err: fmt.Errorf("%w: %w", errNotLeader, ctx.Err())}
	}
	select {
	case r := <-p.reply:
		return r
	case <-ctx.Done():
		return proposed{err: fmt.Errorf("wait for commit: %w", ctx.Err())}
	case <-c.done:
		select {
		case r := <-p.reply:
			return r
		default: // left in the queue when run ended
			return proposed{err: errNotLeader}
		}
	}
}

// run commits until ctx ends, which is when leadership does.
func (c *committer) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer close(c.done)
	defer wg.Wait()
	wg.Add(1)
	go func() { defer wg.Done(); c.runVerify(ctx) }()
	var held *proposal // did not fit in the entry before
	for {
		if held == nil {
			select {
			case held = <-c.queue:
			case <-ctx.Done():
				return
			}
		}
		var batch []*proposal
		batch, held = c.gather(ctx, held)
		if len(batch) > 0 {
			c.commit(batch)
		}
	}
}

// gather takes what is queued now: barriers are passed on with the present
// index, commands returned up to maxEntry.
func (c *committer) gather(ctx context.Context, p *proposal) (batch []*proposal, held *proposal) {
	size := 0
	for {
		switch {
		case len(p.commands) == 0:
			p.index = c.images.image().Index()
			select {
			case c.verify <- p:
			case <-ctx.Done():
				p.reply <- proposed{err: errNotLeader}
			}
		case size > 0 && size+p.size > maxEntry:
			return batch, p
		default:
			batch, size = append(batch, p), size+p.size
		}
		select {
		case p = <-c.queue:
		default:
			return batch, nil
		}
	}
}

// commit appends one entry and distributes its results.
func (c *committer) commit(batch []*proposal) {
	var all []*metadatapb.Command
	for _, p := range batch {
		all = append(all, p.commands...)
	}
	index, results, err := c.apply(all)
	for _, p := range batch {
		r := proposed{index: index, err: err}
		if err == nil {
			r.results, results = results[:len(p.commands):len(p.commands)], results[len(p.commands):]
		}
		p.reply <- r
	}
}

func (c *committer) apply(commands []*metadatapb.Command) (metadata.Index, []metadata.Result, error) {
	data, err := metadata.EncodeEntry(commands...)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: encode entry: %w", errNotLeader, err)
	}
	begun := time.Now()
	f := c.raft.Apply(data, enqueueTimeout)
	switch err := f.Error(); {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return 0, nil, fmt.Errorf("%w: %w", errNotLeader, err)
	case err != nil:
		// The entry may survive in the log of the next leader.
		return 0, nil, fmt.Errorf("append to raft log: %w", err)
	}
	results, ok := f.Response().([]metadata.Result)
	if !ok || len(results) != len(commands) {
		// A stream brought the entry first: this node was deposed meanwhile.
		return 0, nil, errors.New("entry was applied from another leader's stream")
	}
	c.images.count.commits.Observe(time.Since(begun))
	c.images.count.commands.Add(int64(len(commands)))
	return metadata.Index(f.Index()), results, nil
}

// runVerify confirms leadership once for all barriers that wait.
func (c *committer) runVerify(ctx context.Context) {
	for {
		var waiting []*proposal
		select {
		case p := <-c.verify:
			waiting = append(waiting, p)
		case <-ctx.Done():
			for {
				select {
				case p := <-c.verify:
					p.reply <- proposed{err: errNotLeader}
				default:
					return
				}
			}
		}
		for more := true; more; {
			select {
			case p := <-c.verify:
				waiting = append(waiting, p)
			default:
				more = false
			}
		}
		err := c.raft.VerifyLeader().Error()
		for _, p := range waiting {
			if err != nil {
				p.reply <- proposed{err: fmt.Errorf("%w: %w", errNotLeader, err)}
			} else {
				p.reply <- proposed{index: p.index}
			}
		}
	}
}
