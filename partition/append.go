package partition

import (
	"slices"
	"sort"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
)

// Appended is the outcome of an append that was taken.
type Appended struct {
	// Base is the first record's offset, the original's for a Duplicate.
	Base commitlog.Offset
	// LogAppendTime is the broker's timestamp in ms, -1 under CreateTime.
	LogAppendTime int64
	// LogStart is the log start offset.
	LogStart commitlog.Offset
	// Commit resolves when the records are durable. A reply must wait for it,
	// for a Duplicate too (ans-1): it is then the original's.
	Commit commitlog.Commit
	// Duplicate says that nothing was appended, it had been before.
	Duplicate bool
}

// Append checks the records of one partition of a Produce request and appends
// them. It orders them at once and never waits; the caller waits for the
// Commit. Errors are those of Check, of AppendChecked, and ErrNotLeader.
func (p *Partition) Append(records []byte, opts AppendOptions) (Appended, error) {
	if p.closed.Load() {
		return Appended{}, p.errClosed()
	}
	c, err := Check(records, p.settings(), opts)
	if err != nil {
		return Appended{}, err
	}
	return p.AppendChecked(c)
}

// AppendChecked appends what Check has let through: the sequence check, the
// offset and the copy into the log are all that happens under the lock.
// Errors: ErrOutOfOrderSequence, ErrDuplicateSequence, ErrInvalidProducerEpoch,
// ErrInvalidTxnState, ErrCoordinatorFenced, ErrNotLeader, and the log's
// (commitlog.ErrBackpressure, ErrUnavailable, ErrFenced). After any of them
// nothing has changed.
func (p *Partition) AppendChecked(c Checked) (Appended, error) {
	info := c.Batch.Info()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return Appended{}, p.errClosed()
	}
	if p.frozen.Load() != nil {
		return Appended{}, p.errMoving() // cmd-2
	}
	out := Appended{LogAppendTime: c.AppendTime, LogStart: commitlog.Offset(p.start.Load())}
	switch {
	case c.Batch.Control():
		if err := p.state.admitMarker(info); err != nil {
			return Appended{}, err
		}
	case info.ProducerID >= 0:
		dup, ok, err := p.state.admit(info)
		if err != nil {
			return Appended{}, err
		}
		if ok {
			return p.duplicate(dup, out), nil
		}
	}
	if c.Batch.Transactional() {
		p.unsettled.Store(true) // before a reader can see it
	}
	commit, err := p.log.Append(c.Batch)
	if err != nil {
		p.unsettled.Store(p.state.unsettled())
		return Appended{}, p.logError("append to", err)
	}
	p.traffic.add(len(c.Batch))
	p.host.Metrics.appended(len(c.Batch), int64(commit.Last-commit.Base)+1)
	out.Base, out.Commit = commit.Base, commit
	info.BaseOffset, info.LastOffset, info.LeaderEpoch = commit.Base, commit.Last, p.epoch
	p.observe(info, c, commit)
	return out, nil
}

// observe takes an appended batch into the state. mu is held.
func (p *Partition) observe(info commitlog.BatchInfo, c Checked, commit commitlog.Commit) {
	p.state.Observe(info)
	if info.ProducerID < 0 {
		return
	}
	p.state.producers[info.ProducerID].idleSince = c.now
	p.settle(p.log.Bounds().Stable)
	if !c.Batch.Control() {
		if p.pending == nil {
			p.pending = new(commitQueue)
		}
		p.pending.add(commit)
	}
}

// duplicate answers a retry with the original's offsets and Commit. mu is held.
//
// A failed Commit stays in the queue, because the log's stable end never passes
// it: a retry of it is answered with the failure and not with success. The
// next owner of the log finds out which it was.
func (p *Partition) duplicate(dup duplicate, out Appended) Appended {
	out.Base, out.Duplicate = dup.base, true
	if out.LogAppendTime >= 0 {
		out.LogAppendTime = dup.timestamp
	}
	commit, ok := p.pending.find(dup.base)
	if !ok {
		commit = commitlog.NewCommit(dup.base, dup.last, nil)
	}
	out.Commit = commit
	return out
}

// Marker is the end of a transaction on one partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
	// Time in ms is the marker's timestamp.
	Time int64
}

// commitQueue holds the Commits of idempotent batches that may not be durable,
// in offset order. Its length is bounded by the log's own append budget. nil is
// empty, which an idle partition's is.
type commitQueue struct {
	q    []commitlog.Commit
	head int
}

func (c *commitQueue) add(commit commitlog.Commit) {
	if c.head > len(c.q)/2 { // amortised: moves at most what was taken off
		c.q = slices.Delete(c.q, 0, c.head)
		c.head = 0
	}
	c.q = append(c.q, commit)
}

// settle drops what is below the stable end.
func (c *commitQueue) settle(stable commitlog.Offset) {
	if c == nil {
		return
	}
	for c.head < len(c.q) && c.q[c.head].Last < stable {
		c.q[c.head] = commitlog.Commit{} // its slot can go
		c.head++
	}
	if c.head == len(c.q) {
		c.q, c.head = c.q[:0], 0
		if cap(c.q) > 16 { // an idle partition keeps no burst's memory
			c.q = nil
		}
	}
}

func (c *commitQueue) find(base commitlog.Offset) (commitlog.Commit, bool) {
	if c == nil {
		return commitlog.Commit{}, false
	}
	live := c.q[c.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].Base >= base })
	if i < len(live) && live[i].Base == base {
		return live[i], true
	}
	return commitlog.Commit{}, false
}

// AppendMarker ends a producer's transaction on this partition. The LSO moves
// when the marker is durable. Errors: ErrInvalidProducerEpoch,
// ErrCoordinatorFenced, and as AppendChecked.
func (p *Partition) AppendMarker(m Marker) (Appended, error) {
	b := kbatch.Marker(m.ProducerID, m.ProducerEpoch, m.Commit, m.CoordinatorEpoch, m.Time).Bytes()
	set := metadata.TopicSettings{MaxMessageBytes: len(b)} // no topic is too small for a marker
	c, err := Check(b, set, AppendOptions{Origin: FromCoordinator})
	if err != nil {
		return Appended{}, err
	}
	return p.AppendChecked(c)
}
