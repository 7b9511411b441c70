package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

// errUnsettled: a command's reply was lost. It is settled now, because an own
// later command has applied (cmd-1): whether it took effect is in the image.
var errUnsettled = errors.New("reply was lost")

// outageAfter is how long a command waits before that is an outage of the
// metadata and not the election of a leader.
const outageAfter = 5 * time.Second

// submit sends an own command and returns only when its outcome can no longer
// change. A rejection comes back as an error that wraps *metadata.Error.
func (e *Engine) submit(ctx context.Context, cmd *metadatapb.Command) error {
	// Named here so that nobody can take it for a later incarnation's of this
	// broker: a trim that reached another WAL would lose records.
	cmd.From = e.cfg.Incarnation.Proto()
	long := time.AfterFunc(outageAfter, func() { e.outage(+1) })
	defer func() {
		if !long.Stop() {
			e.outage(-1)
		}
	}()
	res, err := e.cfg.Meta.SubmitOwn(ctx, cmd)
	if err == nil && res.Err != nil && res.Err.Code == metadata.ErrStaleCommand {
		return errUnsettled // overtaken: it did not and never will apply
	}
	if err == nil {
		return e.judge(res)
	}
	if e.said.Allow("submit") {
		e.cfg.Logger.Warn("metadata command has no reply", "broker", e.cfg.Incarnation.String(), "err", err)
	}
	for wait := e.cfg.RetryMin; ; wait = min(2*wait, e.cfg.RetryMax) {
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
		res, err := e.cfg.Meta.SubmitOwn(ctx, &metadatapb.Command{From: cmd.From, Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
		if err != nil {
			continue
		}
		if err := e.judge(res); err != nil {
			return err
		}
		return errUnsettled
	}
}

// judge turns a rejection into an error. A fenced incarnation ends here, also
// if the fence in the store has not been met yet (cmd-3).
func (e *Engine) judge(res metadata.Result) error {
	if res.Err == nil {
		return nil
	}
	err := res.Rejected()
	if errors.Is(err, metadata.ErrFencedIncarnation) {
		err = fmt.Errorf("%w: %w", commitlog.ErrFenced, err)
		e.fence(err)
		return err
	}
	if res.Err.Alarm {
		e.cfg.Logger.Error("metadata refused a command that must be right", "broker", e.cfg.Incarnation.String(), "err", err)
	}
	return err
}

// sleep waits; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// claim says why an object without a reference may still get one.
type claim uint8

const (
	inProgress claim = iota // it is being uploaded, or its command submitted
	abandoned               // its command was given up without a reply
)

// newName allots the name of an object to be uploaded and notes that it may get
// a reference, so that the sweep lets it be until settle.
func (e *Engine) newName(folder metadata.ObjectKind) (segment.Name, string) {
	n := segment.Name{Creator: e.cfg.Incarnation, Counter: e.counter.Add(1) - 1}
	object := n.Key(string(folder))
	e.mu.Lock()
	e.pending[object] = inProgress
	e.mu.Unlock()
	return n, object
}

// settle ends what newName began: the command that would refer to the object
// has its final outcome, or there was none. An object that was never offered to
// the metadata is garbage of our own and nobody can refer to it any more
// (obj-2). One that was offered may be needed though the image does not name it:
// by now its reference may have moved into an index object, another owner's
// even. Only the sweep reads those.
func (e *Engine) settle(ctx context.Context, offered bool, objects ...string) {
	var garbage []string
	e.mu.Lock()
	for _, o := range objects {
		if ctx.Err() != nil {
			// Given up with the outcome open: a command may still be on its way.
			e.pending[o] = abandoned
			continue
		}
		delete(e.pending, o)
		if !offered {
			garbage = append(garbage, e.prefix+"/"+o)
		}
	}
	e.mu.Unlock()
	if len(garbage) == 0 {
		return
	}
	if err := e.bucket(objstore.ReasonPack).Delete(ctx, garbage...); err != nil {
		e.cfg.Logger.Info("garbage is left to the sweep", "object", garbage[0], "err", err)
	}
}

// errNameTaken: an object of this name was there before our first attempt.
var errNameTaken = errors.New("object name is taken")

// upload creates an object, however often and long it takes. The same name with
// the same bytes may be put again, so an unknown outcome is no trouble (B1).
// Repeating does not help against objstore.ErrRefused, which is left to the
// caller, nor ErrUndurable (put-6), after which the store's word is worth nothing until a
// new process has looked: that ends the incarnation, as it does in the WAL.
func (e *Engine) upload(ctx context.Context, object string, body objstore.Body) error {
	reason := objstore.ReasonPack
	if strings.HasPrefix(object, string(metadata.IndexObject)+"/") {
		reason = objstore.ReasonIndex
	}
	for attempt, wait := 0, e.cfg.RetryMin; ; attempt, wait = attempt+1, min(2*wait, e.cfg.RetryMax) {
		err := e.bucket(reason).PutNew(ctx, e.prefix+"/"+object, body)
		switch {
		case err == nil, errors.Is(err, objstore.ErrExists) && attempt > 0:
			return nil
		case errors.Is(err, objstore.ErrExists):
			return fmt.Errorf("write %s: %w", object, errNameTaken)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, objstore.ErrUndurable):
			err = fmt.Errorf("write %s: %w: %w", object, commitlog.ErrFenced, err)
			e.fence(err)
			return err
		case errors.Is(err, objstore.ErrRefused):
			return fmt.Errorf("write %s: %w", object, err)
		}
		if e.said.Allow("upload") {
			e.cfg.Logger.Warn("store does not take an object", "object", object, "err", err)
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// extentPB is the wire form of an extent.
func extentPB(x metadata.Extent) *metadatapb.Extent {
	return &metadatapb.Extent{
		Object: x.Object, Position: x.Position, Length: x.Length, Base: int64(x.Base), End: int64(x.End),
		Epoch: int32(x.Epoch), Indirect: x.Indirect, MaxTimestamp: x.MaxTimestamp, Bytes: x.Bytes,
	}
}
