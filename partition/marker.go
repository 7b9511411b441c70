package partition

import (
	"encoding/binary"

	"ponor/commitlog"
)

// markerBytes is the length of a marker's batch: header, and one record of 17
// bytes with its length in front.
const markerBytes = commitlog.HeaderBytes + 18

// encode is the marker as a control batch: one record whose key is (version 0,
// type) and whose value is (version 0, coordinator epoch).
func (m Marker) encode() []byte {
	b := make(commitlog.Batch, markerBytes)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], ^uint32(0))
	b[16] = 2
	binary.BigEndian.PutUint16(b[21:], commitlog.AttrTransactional|commitlog.AttrControl)
	binary.BigEndian.PutUint64(b[27:], uint64(m.Time))
	binary.BigEndian.PutUint64(b[35:], uint64(m.Time))
	binary.BigEndian.PutUint64(b[43:], uint64(m.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(m.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], ^uint32(0))
	binary.BigEndian.PutUint32(b[57:], 1)
	r := b[commitlog.HeaderBytes:]
	r[0] = 17 << 1 // zigzag: attributes, deltas, key length, 4, value length, 6, header count
	r[4] = 4 << 1
	if m.Commit {
		r[8] = 1
	}
	r[9] = 6 << 1
	binary.BigEndian.PutUint32(r[12:], uint32(m.CoordinatorEpoch))
	b.SetCRC()
	return b
}
