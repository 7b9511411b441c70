package commitlog

import "encoding/binary"

// BatchInfo is what producer state, leader epochs, transactions and time
// indexes need to know of a batch; logs keep it beside the bytes so that
// recovery never reads bodies.
type BatchInfo struct {
	BaseOffset, LastOffset     Offset
	LeaderEpoch                Epoch
	MaxTimestamp               int64
	ProducerID                 int64
	ProducerEpoch              int16
	BaseSequence, LastSequence int32
	Attributes                 int16
	// Marker and CoordinatorEpoch are set for a control batch: Marker is 0 for
	// an abort, 1 for a commit, -1 otherwise.
	Marker           int16
	CoordinatorEpoch int32
}

// Info extracts a BatchInfo. The marker of a control batch is read from its
// first record's key and value; a damaged one reads as Marker -1.
func (b Batch) Info() BatchInfo {
	i := BatchInfo{
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), LeaderEpoch: b.LeaderEpoch(),
		MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(), Attributes: b.Attributes(), Marker: -1,
	}
	if b.Control() {
		i.Marker, i.CoordinatorEpoch = b.marker()
	}
	return i
}

// marker decodes the end-transaction marker of a control batch: one record
// whose key is (version int16, type int16) and whose value is (version int16,
// coordinator epoch int32). Control batches are never compressed.
func (b Batch) marker() (int16, int32) {
	p := []byte(b[HeaderBytes:])
	varint := func() int64 {
		v, n := binary.Varint(p)
		if n <= 0 {
			p = nil
			return -1
		}
		p = p[n:]
		return v
	}
	varint() // record length
	if len(p) < 1 {
		return -1, 0
	}
	p = p[1:] // record attributes
	varint()  // timestamp delta
	varint()  // offset delta
	k := varint()
	if k < 4 || int64(len(p)) < k {
		return -1, 0
	}
	kind := int16(binary.BigEndian.Uint16(p[2:]))
	p = p[k:]
	v := varint()
	if v < 6 || int64(len(p)) < v || kind < 0 || kind > 1 {
		return -1, 0
	}
	return kind, int32(binary.BigEndian.Uint32(p[2:]))
}
