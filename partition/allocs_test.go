package partition_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/internal/kbatch"
	"ponor/partition"
)

// resend makes a batch of n records the next one of its producer.
func resend(b []byte, n int) {
	const crc, sequence = 17, 53 // positions
	binary.BigEndian.PutUint32(b[sequence:], binary.BigEndian.Uint32(b[sequence:])+uint32(n))
	binary.BigEndian.PutUint32(b[crc:], crc32.Checksum(b[crc+4:], commitlog.Castagnoli))
}

// What appending and reading allocate depends on the requests, never on how many
// records are in them, nor on who sent them and how they are compressed.
func TestAppendAndReadAllocateNothingPerRecord(t *testing.T) {
	const size = 24 << 10
	r := &rig{t: t, store: memlog.New(memlog.Config{Budget: 1 << 40}), set: defaults()}
	r.open()
	appending := func(n int) float64 {
		b := kbatch.Sized(nowMs, n, size, 1).Bytes()
		return testing.AllocsPerRun(300, func() {
			if _, err := r.p.Append(b, clientAt(nowMs)); err != nil {
				t.Fatal(err)
			}
		})
	}
	producers := int64(0)
	idempotent := func(codec kbatch.Codec) func(n int) float64 {
		return func(n int) float64 {
			producers++
			b := kbatch.Sized(nowMs, n, size, 1).Idempotent(producers, 0, 0).Compressed(codec).Bytes()
			return testing.AllocsPerRun(300, func() {
				if _, err := r.p.Append(b, clientAt(nowMs)); err != nil {
					t.Fatal(err)
				}
				resend(b, n)
			})
		}
	}
	reading := func(n int) float64 {
		a := r.sent(kbatch.Sized(nowMs, n, size, 1))
		return testing.AllocsPerRun(300, func() {
			got, err := r.p.Read(t.Context(), a.Base, partition.ReadOptions{MaxBytes: 2 * size, MinOne: true})
			if err != nil || got.Records.Bytes < size/2 {
				t.Fatal(got.Records.Bytes, err)
			}
			got.Records.Release()
		})
	}
	paths := map[string]func(records int) float64{"append": appending, "read": reading}
	for _, codec := range kbatch.Codecs() {
		paths["append of an idempotent producer, "+codec.String()] = idempotent(codec)
	}
	for name, path := range paths {
		if one, many := path(1), path(1000); many > one+10 {
			t.Errorf("%s makes %v allocations for one record, %v for 1000", name, one, many)
		}
	}
}

// BenchmarkRead reads about 1 MiB that is in memory.
func BenchmarkRead(b *testing.B) {
	r := &rig{t: b, store: memlog.New(memlog.Config{Budget: 1 << 40}), set: defaults()}
	r.open()
	for range 64 {
		r.sent(kbatch.Sized(nowMs, 100, 16<<10, 1))
	}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		got, err := r.p.Read(b.Context(), 0, partition.ReadOptions{MaxBytes: 1<<20 + 64<<10})
		if err != nil || got.Records.Bytes < 1<<19 {
			b.Fatal(got.Records.Bytes, err)
		}
		got.Records.Release()
	}
}
