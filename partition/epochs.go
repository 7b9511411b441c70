package partition

import (
	"fmt"

	"ponor/commitlog"
)

// EpochEnd is where a leader epoch ended: the answer of OffsetForLeaderEpoch.
// Both are -1 if the epoch is not known.
type EpochEnd struct {
	Epoch commitlog.Epoch
	End   commitlog.Offset
}

// CheckEpoch holds a request's current leader epoch against ours; a negative
// one is not checked. It comes before every range check (ans-2). Errors:
// ErrStaleEpoch, ErrUnknownEpoch, ErrNotLeader.
func (p *Partition) CheckEpoch(current commitlog.Epoch) error {
	switch {
	case p.closed.Load():
		return p.errClosed()
	case current < 0 || current == p.epoch:
		return nil
	case current < p.epoch:
		return fmt.Errorf("%w: %s is at %d, the request at %d", ErrStaleEpoch, p.id, p.epoch, current)
	default:
		return fmt.Errorf("%w: %s is at %d, the request at %d", ErrUnknownEpoch, p.id, p.epoch, current)
	}
}

// EndOffsetForEpoch finds the largest epoch up to the one asked for that is
// known, and where it ended (KIP-101, KIP-279). Ours ends at the high
// watermark, which no position of a consumer is above. A future epoch is
// unknown; one older than everything kept ends where the log starts, under its
// own number.
func (p *Partition) EndOffsetForEpoch(epoch commitlog.Epoch) EpochEnd {
	if epoch == p.epoch {
		return EpochEnd{epoch, p.HighWatermark()}
	}
	if epoch < 0 || epoch > p.epoch {
		return EpochEnd{-1, -1}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Ours begins at epochStart even while it has written nothing.
	end := max(p.epochStart, commitlog.Offset(p.start.Load()))
	for i := len(p.state.epochs) - 1; i >= 0; i-- {
		e := p.state.epochs[i]
		if e.Epoch <= epoch {
			return EpochEnd{e.Epoch, end}
		}
		end = e.Start
	}
	return EpochEnd{epoch, end}
}

// Diverges says whether a fetcher's log may differ from ours, from the epoch of
// its last record and its fetch offset (KIP-320, KIP-595): if so, it must cut
// back to the answer before it can go on. commitlog.ErrOffsetOutOfRange: the
// epoch was never known.
func (p *Partition) Diverges(from commitlog.Offset, lastFetched commitlog.Epoch) (EpochEnd, bool, error) {
	e := p.EndOffsetForEpoch(lastFetched)
	if e.End < 0 {
		return e, false, fmt.Errorf("%w: no end is known of the last fetched epoch %d of partition %s", commitlog.ErrOffsetOutOfRange, lastFetched, p.id)
	}
	return e, e.Epoch < lastFetched || e.End < from, nil
}

// epochAt is the leader epoch of the record at an offset; at the end it is
// ours.
func (p *Partition) epochAt(o commitlog.Offset) commitlog.Epoch {
	if o >= p.epochStart {
		return p.epoch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.EpochAt(o)
}
