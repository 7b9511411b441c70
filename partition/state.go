package partition

import (
	"cmp"
	"slices"
	"time"

	"ponor/commitlog"
)

// DefaultProducerExpiration is Kafka's producer.id.expiration.ms.
const DefaultProducerExpiration = 24 * time.Hour

// rememberedBatches is how many batches of a producer are kept to recognise a
// retry, Kafka's number.
const rememberedBatches = 5

// State is what a log's batches mean beyond their bytes: producers and their
// last sequences, open and aborted transactions, leader epochs. It is a pure
// value: the same batches, observed in offset order, make the same State on
// any node (prod-1). It needs of a log only what commitlog.Deltas keeps.
//
// The zero value is the state of an empty log and holds no memory. A State is
// not safe for concurrent use; a partition's lock guards its own.
type State struct {
	producers map[int64]*producer
	txn       *transactions // nil until there is one: most logs never have any
	epochs    []EpochStart  // epochs that wrote records
}

// transactions are those of a log that still matter.
type transactions struct {
	open    []openTxn    // by first offset
	closed  []closedTxn  // ended, but the marker may not be stable; live only
	aborted []AbortedTxn // by offset of the marker
}

// txns are the transactions to read.
func (s *State) txns() transactions {
	if s.txn == nil {
		return transactions{}
	}
	return *s.txn
}

// ownTxns are the transactions to change.
func (s *State) ownTxns() *transactions {
	if s.txn == nil {
		s.txn = &transactions{}
	}
	return s.txn
}

// producer is what a partition remembers of one producer id.
type producer struct {
	epoch       int16
	coordinator int32            // epoch of the coordinator that wrote the last marker, -1 none
	markerTime  int64            // timestamp of the last marker, -1 none
	last        commitlog.Offset // of its last batch or marker
	batches     [rememberedBatches]pastBatch
	n           int       // how many of batches are used; oldest first
	idleSince   time.Time // live only: wall clock of the last append
}

// pastBatch is one appended batch of a producer.
type pastBatch struct {
	firstSeq, lastSeq int32
	last              commitlog.Offset
	delta             int32 // last offset - base offset
	timestamp         int64 // largest timestamp
}

// openTxn is a transaction without an end.
type openTxn struct {
	producer int64
	first    commitlog.Offset
}

// closedTxn is a transaction whose marker has been appended. Until the marker
// is stable the transaction may yet be found open by the next owner, so it
// holds the last stable offset back.
type closedTxn struct {
	first, marker commitlog.Offset
}

// AbortedTxn is a transaction that was aborted: its records are those of
// Producer from First up to the marker at Last.
type AbortedTxn struct {
	ProducerID  int64
	First, Last commitlog.Offset
}

// EpochStart says at which offset a leader epoch wrote its first record.
type EpochStart struct {
	Epoch commitlog.Epoch
	Start commitlog.Offset
}

// keptProducers is how many producers a fold keeps whatever their timestamps
// say, those that wrote last: a mirror that copies old records, or one record
// dated a year ahead, must not cost a living producer its state.
const keptProducers = 1000

// Producers is how many producers are remembered.
func (s *State) Producers() int { return len(s.producers) }

// Observe takes the next batch of the log into account. It checks nothing:
// what is in the log is the truth.
func (s *State) Observe(b commitlog.BatchInfo) {
	if n := len(s.epochs); n == 0 || s.epochs[n-1].Epoch < b.LeaderEpoch {
		s.epochs = append(s.epochs, EpochStart{b.LeaderEpoch, b.BaseOffset})
	}
	if b.ProducerID < 0 {
		return
	}
	p := s.producers[b.ProducerID]
	if p == nil {
		if s.producers == nil {
			s.producers = make(map[int64]*producer)
		}
		p = &producer{epoch: b.ProducerEpoch, coordinator: -1, markerTime: -1}
		s.producers[b.ProducerID] = p
	}
	if p.epoch != b.ProducerEpoch {
		p.epoch, p.n = b.ProducerEpoch, 0
	}
	p.last = b.LastOffset
	if b.Attributes&commitlog.AttrControl != 0 {
		s.observeMarker(p, b)
		return
	}
	p.remember(pastBatch{b.BaseSequence, b.LastSequence, b.LastOffset, int32(b.LastOffset - b.BaseOffset), b.MaxTimestamp})
	if b.Attributes&commitlog.AttrTransactional != 0 && s.openOf(b.ProducerID) < 0 {
		t := s.ownTxns()
		t.open = append(t.open, openTxn{b.ProducerID, b.BaseOffset})
	}
}

// observeMarker ends the producer's transaction. A marker without one only
// moves epochs; a damaged one (neither commit nor abort) likewise.
func (s *State) observeMarker(p *producer, b commitlog.BatchInfo) {
	if b.Marker < 0 {
		return
	}
	p.coordinator, p.markerTime = b.CoordinatorEpoch, b.MaxTimestamp
	at := s.openOf(b.ProducerID)
	if at < 0 {
		return
	}
	t := s.ownTxns()
	first := t.open[at].first
	t.open = slices.Delete(t.open, at, at+1)
	t.closed = append(t.closed, closedTxn{first, b.LastOffset})
	if b.Marker == 0 {
		t.aborted = append(t.aborted, AbortedTxn{b.ProducerID, first, b.LastOffset})
	}
}

// remember adds a batch and forgets the oldest beyond five.
func (p *producer) remember(b pastBatch) {
	if p.n == rememberedBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// openOf finds a producer's open transaction, -1 if there is none.
func (s *State) openOf(id int64) int {
	return slices.IndexFunc(s.txns().open, func(t openTxn) bool { return t.producer == id })
}

// FirstUnstable is the first offset that a read_committed consumer may not
// see, given the log's stable end: the first record of an open transaction or
// of one whose marker is not stable. Without either it is stable itself.
func (s *State) FirstUnstable(stable commitlog.Offset) commitlog.Offset {
	first := stable
	if open := s.txns().open; len(open) > 0 {
		first = min(first, open[0].first)
	}
	for _, t := range s.txns().closed {
		if t.marker >= stable {
			first = min(first, t.first)
		}
	}
	return first
}

// unsettled says whether a transaction may hold the LSO back.
func (s *State) unsettled() bool {
	t := s.txns()
	return len(t.open)+len(t.closed) > 0
}

// Settle forgets what only matters until it is stable.
func (s *State) Settle(stable commitlog.Offset) {
	if len(s.txns().closed) == 0 {
		return
	}
	t := s.ownTxns()
	t.closed = slices.DeleteFunc(t.closed, func(t closedTxn) bool { return t.marker < stable })
	if len(t.closed) == 0 {
		t.closed = nil
	}
}

// Aborted lists the aborted transactions that touch [from, to), by first
// offset.
func (s *State) Aborted(from, to commitlog.Offset) []AbortedTxn {
	// Markers lie in order of Last: skip those that ended before from.
	aborted := s.txns().aborted
	i, _ := slices.BinarySearchFunc(aborted, from, func(t AbortedTxn, o commitlog.Offset) int { return cmp.Compare(t.Last, o) })
	var out []AbortedTxn
	for _, t := range aborted[i:] {
		if t.First < to {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b AbortedTxn) int { return cmp.Compare(a.First, b.First) })
	return out
}

// Cut forgets what lies below the log's start: aborted transactions that ended
// there, and epochs but for the one that start belongs to, which then begins at
// start. Producers stay (a retry is recognised even after its records were
// deleted).
func (s *State) Cut(start commitlog.Offset) {
	aborted := s.txns().aborted
	i, _ := slices.BinarySearchFunc(aborted, start, func(t AbortedTxn, o commitlog.Offset) int { return cmp.Compare(t.Last, o) })
	if i > 0 {
		s.ownTxns().aborted = slices.Clone(aborted[i:])
	}
	keep := 0
	for keep+1 < len(s.epochs) && s.epochs[keep+1].Start <= start {
		keep++
	}
	if len(s.epochs) > 0 && s.epochs[keep].Start < start {
		s.epochs = slices.Clone(s.epochs[keep:])
		s.epochs[0].Start = start
	}
}

// EpochAt is the leader epoch that wrote the record at an offset, -1 if it is
// not known.
func (s *State) EpochAt(o commitlog.Offset) commitlog.Epoch {
	for i := len(s.epochs) - 1; i >= 0; i-- {
		if s.epochs[i].Start <= o {
			return s.epochs[i].Epoch
		}
	}
	return -1
}

// seen is the largest timestamp among what is remembered of a producer, in ms.
func (p *producer) seen() int64 {
	t := p.markerTime
	for _, b := range p.batches[:p.n] {
		t = max(t, b.timestamp)
	}
	return t
}

// expireByTimestamps forgets producers whose records are older than the newest
// producer's by more than age, but never one of the last keptProducers to
// write. It is what keeps checkpoints from growing for ever, where no clock
// may decide.
func (s *State) expireByTimestamps(age time.Duration) {
	if len(s.producers) <= keptProducers {
		return
	}
	newest, lasts := int64(-1), make([]commitlog.Offset, 0, len(s.producers))
	for _, p := range s.producers {
		newest, lasts = max(newest, p.seen()), append(lasts, p.last)
	}
	slices.Sort(lasts)
	recent := lasts[len(lasts)-keptProducers]
	s.expire(func(p *producer) bool { return p.last < recent && newest-p.seen() > age.Milliseconds() })
}

// expire forgets producers without an open transaction that idle says are
// done with.
func (s *State) expire(idle func(*producer) bool) {
	for id, p := range s.producers {
		if idle(p) && s.openOf(id) < 0 {
			delete(s.producers, id)
		}
	}
	if len(s.producers) == 0 {
		s.producers = nil
	}
}

// Checkpointer folds batches into an encoded State for the log below
// (commitlog.Checkpointer). It is pure for a given Start.
type Checkpointer struct {
	// Expiration is how long an idle producer is remembered, measured by the
	// timestamps of batches; default DefaultProducerExpiration.
	Expiration time.Duration
	// Start, if set, is the log's start offset: what only matters below it is
	// left out.
	Start func() commitlog.Offset
}

// Fold implements commitlog.Checkpointer. An empty checkpoint is that of an
// empty log.
func (c Checkpointer) Fold(checkpoint []byte, batches []commitlog.BatchInfo) ([]byte, error) {
	s, err := DecodeState(checkpoint)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		s.Observe(b)
	}
	s.expireByTimestamps(cmp.Or(c.Expiration, DefaultProducerExpiration))
	if c.Start != nil {
		s.Cut(c.Start())
	}
	return s.Encode(), nil
}
