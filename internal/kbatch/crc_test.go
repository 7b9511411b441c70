package kbatch_test

import (
	"encoding/binary"
	"hash/crc32"
)

// refreshCRC makes the checksum of the first batch in p right, if p has one.
func refreshCRC(p []byte) {
	if len(p) < 61 {
		return
	}
	n := int64(int32(binary.BigEndian.Uint32(p[8:]))) + 12
	if n < 61 || n > int64(len(p)) {
		return
	}
	binary.BigEndian.PutUint32(p[17:], crc32.Checksum(p[21:n], crc32.MakeTable(crc32.Castagnoli)))
}
