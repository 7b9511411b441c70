package partition

import (
	"context"
	"fmt"
	"time"

	"ponor/commitlog"
	"ponor/internal/wall"
	"ponor/metadata"
)

// DeleteRecords moves the log's start to an offset, -1 for the high watermark,
// and returns the start. One at or below the start changes nothing and is no
// error. commitlog.ErrOffsetOutOfRange: above the high watermark;
// ErrPolicyViolation: the topic is only compacted; ErrNotLeader.
func (p *Partition) DeleteRecords(ctx context.Context, to commitlog.Offset) (commitlog.Offset, error) {
	if p.closed.Load() {
		return -1, p.errClosed()
	}
	if s := p.settings(); s.Compact && !s.Delete {
		return -1, fmt.Errorf("%w: records of %s cannot be deleted because its cleanup.policy does not include delete", ErrPolicyViolation, p.id)
	}
	b := p.log.Bounds()
	switch {
	case to == -1:
		to = b.Stable
	case to < 0 || to > b.Stable:
		return -1, p.outOfRange(to, commitlog.Bounds{Start: b.Start, End: b.Stable})
	}
	if err := p.trim(ctx, to); err != nil {
		return -1, err
	}
	return p.Start(), nil
}

// Trim moves the log's start to an offset whatever the topic's cleanup.policy is:
// for a coordinator, which wrote again what it keeps of the records before it.
// Errors are the log's, and ErrNotLeader.
func (p *Partition) Trim(ctx context.Context, to commitlog.Offset) error {
	if p.closed.Load() {
		return p.errClosed()
	}
	return p.trim(ctx, to)
}

// trim moves the start forward, if it does.
func (p *Partition) trim(ctx context.Context, to commitlog.Offset) error {
	if to <= p.Start() {
		return nil
	}
	if err := p.log.Trim(ctx, to); err != nil {
		return p.logError("trim", err)
	}
	p.mu.Lock()
	p.cut(p.log.Bounds().Start)
	p.mu.Unlock()
	p.watches.wake() // a fetch may wait below the start now
	return nil
}

// Retain deletes what the topic's retention no longer keeps. It is called now
// and then, with the wall clock. Only stable records go.
func (p *Partition) Retain(ctx context.Context, now time.Time) error {
	p.expireProducers(now)
	b := p.log.Bounds()
	if p.closed.Load() || b.Start == b.Stable {
		return nil
	}
	set := p.settings()
	if !set.Delete {
		return nil
	}
	to := retain(p.log.Segments(), set, wall.Milli(now))
	return p.trim(ctx, min(to, b.Stable))
}

// retain decides up to where segments go. The active one goes only as a whole
// and only by age: a topic that nobody writes to must become empty, too, and
// Kafka rolls the segment for that.
func retain(segments []commitlog.Segment, set metadata.TopicSettings, now int64) commitlog.Offset {
	var to commitlog.Offset
	excess := int64(0)
	if set.RetentionBytes >= 0 {
		excess = -set.RetentionBytes
		for _, s := range segments {
			excess += s.Bytes
		}
	}
	for _, s := range segments {
		// A segment without a timestamp cannot be told to be old.
		old := set.RetentionMs >= 0 && s.MaxTimestamp >= 0 && now-s.MaxTimestamp > set.RetentionMs
		// Kafka deletes by size only what leaves at least the limit.
		big := !s.Active && excess > 0 && s.Bytes <= excess
		if !old && !big {
			break
		}
		excess -= s.Bytes
		to = s.End
	}
	return to
}
