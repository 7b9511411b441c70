package coordinator

import (
	"errors"
	"fmt"
	"math"
	"time"

	"ponor/commitlog"
	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/partition"
)

const (
	// retryAppend is the pause before the log is asked again: room in the append
	// budget frees without a signal, and moves take milliseconds.
	retryAppend = 5 * time.Millisecond
	// waitingLong and waitingBytes are how long and how much may wait for the log
	// before calls are refused.
	waitingLong  = time.Second
	waitingBytes = 32 << 20
)

// entry is one batch on its way into the log.
type entry struct {
	sent   chan struct{}    // closed when commit and at are set
	commit commitlog.Commit // of the append
	at     time.Time        // before the append
	batch  []byte           // nil when sent
	since  time.Time        // when it was made
}

// durable says whether the entry is in the log for good, or failed.
func (e *entry) durable() bool {
	select {
	case <-e.sent:
		return e.commit.Resolved()
	default:
		return false
	}
}

var sent = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// tail is the end of the log: what was appended last, and what could not be
// appended yet because the log had no room or the partition was moving. The
// machine is ahead of the log by that, and answers wait for it.
type tail struct {
	newest  *entry
	waiting []*entry
	bytes   int // of waiting
	why     error
	// probe is an entry that was not durable when last looked, nil for none.
	probe *entry
}

// lags is since when the log has made nothing durable of what it was given; zero if it
// keeps up.
func (t *tail) lags() time.Time {
	if t.probe == nil || t.probe.durable() {
		t.probe = nil
		if t.newest != nil && !t.newest.durable() {
			t.probe = t.newest
		}
	}
	if t.probe == nil {
		return time.Time{}
	}
	return t.probe.since
}

// refuses says why no call may add to the log now.
func (t *tail) refuses(now time.Time) error {
	if len(t.waiting) > 0 && (t.bytes > waitingBytes || now.Sub(t.waiting[0].since) > waitingLong) {
		return t.why
	}
	return nil
}

// append adds records to the log, in one batch if they fit. mu is held. After an
// error the shard is lost.
func (sh *shard[M]) append(records []Record, now time.Time) error {
	list, err := batches(records, wall.Milli(now), maxBatch)
	if err != nil {
		// The machine has what the log will never have: read it anew.
		sh.loseLocked(fmt.Errorf("%w: partition %s begins anew: %w", ErrNotCoordinator, sh.part.ID(), err))
		sh.owner.again(sh, 0)
		return err
	}
	for _, b := range list {
		if err := sh.appendBatch(b, now); err != nil {
			sh.loseLocked(err)
			return err
		}
	}
	return nil
}

func (sh *shard[M]) appendBatch(batch []byte, now time.Time) error {
	e := &entry{batch: batch, since: now}
	if len(sh.log.waiting) == 0 {
		done, err := sh.send(e)
		if err != nil {
			return err
		}
		if done {
			e.sent = sent
			sh.log.newest = e
			return nil
		}
		sh.wake()
	}
	e.sent = make(chan struct{})
	sh.log.newest = e
	sh.log.waiting = append(sh.log.waiting, e)
	sh.log.bytes += len(batch)
	return nil
}

// send appends an entry. false: not now.
func (sh *shard[M]) send(e *entry) (bool, error) {
	at := time.Now()
	// The topic's limits are for clients; a coordinator's records must not fail.
	c, err := partition.Check(e.batch, metadata.TopicSettings{MaxMessageBytes: len(e.batch), TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: math.MaxInt64},
		partition.AppendOptions{Now: at, Origin: partition.FromCoordinator})
	var a partition.Appended
	if err == nil {
		a, err = sh.part.AppendChecked(c)
	}
	switch {
	case err == nil:
		e.at, e.commit, e.batch = at, a.Commit, nil
		if sh.compact.grow(len(c.Batch)); sh.compact.due() {
			sh.wake()
		}
		sh.owner.cfg.Metrics.appended(len(c.Batch))
		return true, nil
	case errors.Is(err, partition.ErrMoving), errors.Is(err, commitlog.ErrBackpressure), errors.Is(err, commitlog.ErrUnavailable):
		sh.log.why = err
		return false, nil
	}
	return false, fmt.Errorf("%w: %w", ErrNotCoordinator, err)
}

// flush appends what waits, as far as that is possible. mu is held.
func (sh *shard[M]) flush() error {
	t := &sh.log
	for len(t.waiting) > 0 {
		e := t.waiting[0]
		n := len(e.batch)
		done, err := sh.send(e)
		if err != nil {
			sh.loseLocked(err)
			return err
		}
		if !done {
			return nil
		}
		close(e.sent)
		t.bytes -= n
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
	}
	t.waiting = nil
	return nil
}
