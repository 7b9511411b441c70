package locallog

import (
	"encoding/binary"
	"hash/crc32"

	"ponor/commitlog"
)

// The file "durable" holds an offset below which the log was synced, and a
// CRC32C of it: 12 bytes, overwritten in place after every sync and before
// anyone is told. It is never synced itself. After a process died it is exact;
// after a power loss it may be older, never newer than the truth, because the
// data was synced before it was written. Recovery trusts what lies below it,
// and treats damage there as damage, not as a torn write.
const (
	durableName  = "durable"
	durableBytes = 12
)

func encodeDurable(o commitlog.Offset) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(o))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, commitlog.Castagnoli))
}

// decodeDurable returns 0, which is always true, for a file that is damaged.
func decodeDurable(b []byte) commitlog.Offset {
	if len(b) != durableBytes || crc32.Checksum(b[:8], commitlog.Castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return 0
	}
	return max(commitlog.Offset(binary.BigEndian.Uint64(b)), 0)
}
