package coordinator

import (
	"encoding/binary"
	"fmt"

	"ponor/commitlog"
)

// maxBatch is the most bytes of one batch, and so of one record: the log writes a
// batch as a whole.
const maxBatch = 4 << 20

// batches encodes records as one v2 batch, or as several if they do not fit in
// one: no producer id, CreateTime, no compression. ErrTooLarge: a record does not
// fit at all.
func batches(records []Record, now int64, limit int) ([]commitlog.Batch, error) {
	var out []commitlog.Batch
	for len(records) > 0 {
		size, n := commitlog.HeaderBytes, 0
		for n < len(records) {
			bytes := recordBytes(records[n], n)
			if size+bytes > limit {
				break
			}
			size += bytes
			n++
		}
		if n == 0 {
			return nil, fmt.Errorf("%w: it has %d bytes, %d are possible", ErrTooLarge, len(records[0].Key)+len(records[0].Value), limit)
		}
		out = append(out, encode(records[:n], now, size))
		records = records[n:]
	}
	return out, nil
}

// recordBytes is the size of a record that is at place i of its batch.
func recordBytes(r Record, i int) int {
	body := bodyBytes(r, i)
	return varintLen(int64(body)) + body
}

// bodyBytes is the size behind the record's length: attributes, timestamp delta 0,
// offset delta, key, value, no headers.
func bodyBytes(r Record, i int) int {
	return 1 + 1 + varintLen(int64(i)) + bytesLen(r.Key) + bytesLen(r.Value) + 1
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1 // -1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of a zigzag varint.
func varintLen(v int64) int {
	u, n := uint64(v<<1)^uint64(v>>63), 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

// encode makes the batch, of size bytes.
func encode(records []Record, now int64, size int) commitlog.Batch {
	b := make([]byte, commitlog.HeaderBytes, size)
	for i, r := range records {
		b = binary.AppendVarint(b, int64(bodyBytes(r, i)))
		b = append(b, 0)
		b = binary.AppendVarint(b, 0)
		b = binary.AppendVarint(b, int64(i))
		b = appendBytes(b, r.Key)
		b = appendBytes(b, r.Value)
		b = binary.AppendVarint(b, 0)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], ^uint32(0)) // the log sets the epoch
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(len(records)-1))
	binary.BigEndian.PutUint64(b[27:], uint64(now))
	binary.BigEndian.PutUint64(b[35:], uint64(now))
	for i := 43; i < 57; i++ { // producer id, producer epoch, sequence: -1
		b[i] = 0xff
	}
	binary.BigEndian.PutUint32(b[57:], uint32(len(records)))
	batch := commitlog.Batch(b)
	batch.SetCRC()
	return batch
}

func appendBytes(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	b = binary.AppendVarint(b, int64(len(v)))
	return append(b, v...)
}
