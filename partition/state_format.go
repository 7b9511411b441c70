package partition

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"ponor/commitlog"
)

// stateVersion is the first byte of an encoded State. A new version must go on
// reading all older ones; the golden bytes of each are kept in the tests.
const stateVersion = 1

// Encode is the checkpoint form of a State, the same bytes for equal states:
//
//	version     uint8 = 1
//	epochs      count, then per epoch:       epoch, start
//	producers   count, then by id:           id, epoch, coordinator epoch, marker time, last offset,
//	            batch count, per batch:      first and last sequence, last offset, delta, timestamp
//	open        count, then by first offset: producer id, first offset
//	aborted     count, then by last offset:  producer id, first, last
//
// Counts are uvarints, everything else zigzag varints. Transactions that ended
// are not part of it: a checkpoint covers stable batches only.
func (s *State) Encode() []byte {
	txns := s.txns()
	b := make([]byte, 0, 32+8*len(s.epochs)+48*len(s.producers)+16*len(txns.open)+20*len(txns.aborted))
	b = append(b, stateVersion)
	put := func(values ...int64) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s.epochs)))
	for _, e := range s.epochs {
		put(int64(e.Epoch), int64(e.Start))
	}
	b = binary.AppendUvarint(b, uint64(len(s.producers)))
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		p := s.producers[id]
		put(id, int64(p.epoch), int64(p.coordinator), p.markerTime, int64(p.last))
		b = binary.AppendUvarint(b, uint64(p.n))
		for _, x := range p.batches[:p.n] {
			put(int64(x.firstSeq), int64(x.lastSeq), int64(x.last), int64(x.delta), x.timestamp)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(txns.open)))
	for _, t := range txns.open {
		put(t.producer, int64(t.first))
	}
	b = binary.AppendUvarint(b, uint64(len(txns.aborted)))
	for _, t := range txns.aborted {
		put(t.ProducerID, int64(t.First), int64(t.Last))
	}
	return b
}

// DecodeState reads what Encode wrote; no bytes at all are the state of an
// empty log. An error wraps commitlog.ErrCorrupt.
func DecodeState(b []byte) (*State, error) {
	s := &State{}
	if len(b) == 0 {
		return s, nil
	}
	if b[0] != stateVersion {
		return nil, fmt.Errorf("%w: decode partition state: version %d, this build reads %d", commitlog.ErrCorrupt, b[0], stateVersion)
	}
	d := stateDecoder{b: b[1:]}
	for range d.count(2) {
		s.epochs = append(s.epochs, EpochStart{commitlog.Epoch(d.int32()), commitlog.Offset(d.int())})
	}
	if n := d.count(6); n > 0 {
		s.producers = make(map[int64]*producer, n)
		for range n {
			id, p := d.producer()
			if _, ok := s.producers[id]; ok {
				d.fail("producer %d twice", id)
			}
			s.producers[id] = p
		}
	}
	for range d.count(2) {
		t := s.ownTxns()
		t.open = append(t.open, openTxn{d.int(), commitlog.Offset(d.int())})
	}
	for range d.count(3) {
		t := s.ownTxns()
		t.aborted = append(t.aborted, AbortedTxn{d.int(), commitlog.Offset(d.int()), commitlog.Offset(d.int())})
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes are left", len(d.b))
	}
	if d.err == nil && !s.ordered() {
		d.fail("lists are not in order")
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: decode partition state: %w", commitlog.ErrCorrupt, d.err)
	}
	return s, nil
}

// ordered checks what lookups rely on.
func (s *State) ordered() bool {
	return slices.IsSortedFunc(s.epochs, func(a, b EpochStart) int { return cmp.Compare(a.Epoch, b.Epoch) }) &&
		slices.IsSortedFunc(s.txns().open, func(a, b openTxn) int { return cmp.Compare(a.first, b.first) }) &&
		slices.IsSortedFunc(s.txns().aborted, func(a, b AbortedTxn) int { return cmp.Compare(a.Last, b.Last) })
}

// stateDecoder reads varints and remembers the first failure.
type stateDecoder struct {
	b   []byte
	err error
}

func (d *stateDecoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
		d.b = nil
	}
}

func (d *stateDecoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bytes end early")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *stateDecoder) int32() int32 {
	v := d.int()
	if v != int64(int32(v)) {
		d.fail("%d is too large", v)
	}
	return int32(v)
}

// count reads a count of elements that take at least size bytes each, so that
// a damaged one cannot make us allocate.
func (d *stateDecoder) count(size int) int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bytes end early")
		return 0
	}
	d.b = d.b[n:]
	if v > uint64(len(d.b)/size) {
		d.fail("count %d exceeds the bytes left", v)
		return 0
	}
	return int(v)
}

func (d *stateDecoder) producer() (int64, *producer) {
	id := d.int()
	epoch := d.int32()
	p := &producer{epoch: int16(epoch), coordinator: d.int32(), markerTime: d.int(), last: commitlog.Offset(d.int())}
	if int32(p.epoch) != epoch {
		d.fail("producer epoch %d is too large", epoch)
	}
	p.n = d.count(5)
	if p.n > rememberedBatches {
		d.fail("%d batches of one producer", p.n)
		p.n = 0
	}
	for i := range p.n {
		p.batches[i] = pastBatch{d.int32(), d.int32(), commitlog.Offset(d.int()), d.int32(), d.int()}
	}
	return id, p
}
