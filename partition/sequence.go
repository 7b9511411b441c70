package partition

import (
	"fmt"

	"ponor/commitlog"
)

// duplicate is a batch that was appended before.
type duplicate struct {
	base, last commitlog.Offset
	timestamp  int64
}

// admit decides whether a producer's data batch may be appended next. It
// changes nothing, so a refused attempt leaves no trace (an attempt with a new
// epoch must not fence the old one). dup is set, with ok, for a retry of one of
// the last five batches.
func (s *State) admit(b commitlog.BatchInfo) (dup duplicate, ok bool, err error) {
	p := s.producers[b.ProducerID]
	if p == nil {
		// Without state any epoch and sequence is as good as another: the state
		// may have expired, and the producer cannot do anything about it.
		return duplicate{}, false, nil
	}
	transactional := b.Attributes&commitlog.AttrTransactional != 0
	switch {
	case b.ProducerEpoch < p.epoch:
		return dup, false, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", ErrInvalidProducerEpoch, b.ProducerID, p.epoch, b.ProducerEpoch)
	case b.ProducerEpoch > p.epoch:
		if b.BaseSequence != 0 {
			return dup, false, fmt.Errorf("%w: producer %d begins epoch %d at sequence %d, not 0", ErrOutOfOrderSequence, b.ProducerID, b.ProducerEpoch, b.BaseSequence)
		}
	default:
		if dup, ok = p.find(b); ok {
			return dup, true, nil
		}
		if err := p.inSequence(b); err != nil {
			return dup, false, err
		}
	}
	if !transactional && s.openOf(b.ProducerID) >= 0 {
		return dup, false, fmt.Errorf("%w: producer %d has an open transaction, the batch is not part of it", ErrInvalidTxnState, b.ProducerID)
	}
	return dup, false, nil
}

// find looks for the same sequences among the remembered batches.
func (p *producer) find(b commitlog.BatchInfo) (duplicate, bool) {
	for i := p.n - 1; i >= 0; i-- {
		if x := p.batches[i]; x.firstSeq == b.BaseSequence && x.lastSeq == b.LastSequence {
			return duplicate{x.last - commitlog.Offset(x.delta), x.last, x.timestamp}, true
		}
	}
	return duplicate{}, false
}

// inSequence checks that b follows the producer's last batch.
func (p *producer) inSequence(b commitlog.BatchInfo) error {
	if p.n == 0 {
		// Only a marker of this epoch was seen.
		if b.BaseSequence != 0 {
			return fmt.Errorf("%w: producer %d begins epoch %d at sequence %d, not 0", ErrOutOfOrderSequence, b.ProducerID, b.ProducerEpoch, b.BaseSequence)
		}
		return nil
	}
	last := p.batches[p.n-1].lastSeq
	if b.BaseSequence == nextSequence(last) {
		return nil
	}
	// Behind the window of five, by the shorter way round the ring of 2^31.
	if behind(b.LastSequence, p.batches[0].firstSeq) {
		return fmt.Errorf("%w: producer %d is at sequence %d, the batch ends at %d", ErrDuplicateSequence, b.ProducerID, last, b.LastSequence)
	}
	return fmt.Errorf("%w: producer %d is at sequence %d, the batch begins at %d", ErrOutOfOrderSequence, b.ProducerID, last, b.BaseSequence)
}

// nextSequence wraps from 2^31-1 to 0.
func nextSequence(s int32) int32 { return int32((int64(s) + 1) & 0x7fffffff) }

// behind says whether a comes before b on the ring of sequences.
func behind(a, b int32) bool {
	d := (int64(b) - int64(a)) & 0x7fffffff
	return d > 0 && d < 1<<30
}

// admitMarker decides whether a coordinator's marker may be appended.
func (s *State) admitMarker(b commitlog.BatchInfo) error {
	if b.Marker < 0 {
		return refused("control batch of producer %d holds no transaction marker", b.ProducerID)
	}
	p := s.producers[b.ProducerID]
	switch {
	case p == nil:
		return nil
	case b.ProducerEpoch < p.epoch:
		return fmt.Errorf("%w: producer %d has epoch %d, the marker %d", ErrInvalidProducerEpoch, b.ProducerID, p.epoch, b.ProducerEpoch)
	case b.CoordinatorEpoch < p.coordinator:
		return fmt.Errorf("%w: the last marker of producer %d has coordinator epoch %d, this one %d", ErrCoordinatorFenced, b.ProducerID, p.coordinator, b.CoordinatorEpoch)
	}
	return nil
}
