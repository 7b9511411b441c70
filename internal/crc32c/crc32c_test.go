package crc32c_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"ponor/internal/crc32c"
	"ponor/internal/kbatch"
)

var table = crc32.MakeTable(crc32.Castagnoli)

func TestCombineEqualsChecksumOfTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	check := func(n, cut int) {
		t.Helper()
		a, b := data[:cut], data[cut:n]
		got := crc32c.Combine(crc32.Checksum(a, table), crc32.Checksum(b, table), int64(len(b)))
		if want := crc32.Checksum(data[:n], table); got != want {
			t.Fatalf("combine of %d and %d bytes: %08x, want %08x", len(a), len(b), got, want)
		}
	}
	for n := range 300 {
		for cut := 0; cut <= n; cut++ {
			check(n, cut)
		}
	}
	for range 300 {
		n := rng.IntN(len(data))
		check(n, rng.IntN(n+1))
	}
}

// A length beyond 2^32 is checked by splitting it: appending n zero bytes twice
// is appending 2n.
func TestCombineBeyond32Bits(t *testing.T) {
	const a = 0x12345678
	for _, n := range []int64{1 << 31, 1<<32 - 1, 1 << 32, 1<<40 + 12345, 1 << 55} {
		twice := crc32c.Combine(crc32c.Combine(a, 0, n), 0, n)
		if got := crc32c.Combine(a, 0, 2*n); got != twice {
			t.Errorf("appending %d zeros: %08x, in two steps %08x", 2*n, got, twice)
		}
	}
}

func FuzzCombine(f *testing.F) {
	f.Add([]byte("a"), []byte("b"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		whole := crc32.Checksum(append(append([]byte(nil), a...), b...), table)
		if got := crc32c.Combine(crc32.Checksum(a, table), crc32.Checksum(b, table), int64(len(b))); got != whole {
			t.Fatalf("%08x, want %08x", got, whole)
		}
	})
}

func BenchmarkCombine(b *testing.B) {
	for _, n := range []int64{100, 1000, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var c uint32
			for b.Loop() {
				c = crc32c.Combine(c, 0xdeadbeef, n)
			}
		})
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int64{100, 1000, 16 << 10, 1 << 20} {
		data := make([]byte, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				crc32.Checksum(data, table)
			}
		})
	}
}

// BenchmarkCopy is the machine's limit for a pass that writes, to compare with.
// The memory is larger than any cache.
func BenchmarkCopy(b *testing.B) {
	const size, piece = 256 << 20, 1 << 20
	from, to := make([]byte, size), make([]byte, size)
	for i := 0; i < size; i += 4096 {
		from[i], to[i] = 1, 1
	}
	b.SetBytes(piece)
	at := 0
	for b.Loop() {
		copy(to[at:at+piece], from[at:at+piece])
		at = (at + piece) % size
	}
}

// BenchmarkChecksumCold is a CRC over memory that no cache has.
func BenchmarkChecksumCold(b *testing.B) {
	const size, piece = 256 << 20, 1 << 20
	data := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		data[i] = 1
	}
	b.SetBytes(piece)
	at := 0
	for b.Loop() {
		crc32.Checksum(data[at:at+piece], table)
		at = (at + piece) % size
	}
}

func TestAddBatchIsTheChecksumOfASoundBatch(t *testing.T) {
	for _, n := range []int{61, 1023, 1024, 1025, 100_000} {
		b := kbatch.Sized(1_700_000_000_000, 1, n, 3).Placed(7, 2).Bytes()
		before := rand.Uint32()
		if got, want := crc32c.AddBatch(before, b), crc32.Update(before, crc32.MakeTable(crc32.Castagnoli), b); got != want {
			t.Errorf("batch of %d bytes: %08x, want %08x", len(b), got, want)
		}
	}
}
