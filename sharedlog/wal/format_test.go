package wal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/wal"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

// golden compares bytes with a file. The files of a released version never
// change.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(hex.Dump(got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if hex.Dump(got) != string(want) {
		t.Errorf("%s: bytes differ from the golden file:\n%s", name, hex.Dump(got))
	}
}

// countingReader is randomness that is the same every time.
type countingReader struct{ n byte }

func (c *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		c.n++
		p[i] = c.n
	}
	return len(p), nil
}

func TestGoldenSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *wal.Config) { c.Rand = &countingReader{} })
		r.faults.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Delay: time.Second, Times: 1})
		add := func(stream commitlog.StreamID, b kbatch.Batch) {
			if _, err := r.tryAppend(stream, b.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		add(300, kbatch.Values(1_700_000_000_000, "a"))
		synctest.Wait()
		add(300, kbatch.Values(1_700_000_000_001, "b", "c"))
		add(2, kbatch.Values(1_700_000_000_002, "d").InTransaction(7, 1, 4))
		add(300, kbatch.Values(1_700_000_000_000, "e").Idempotent(8, 0, 0))
		add(2, kbatch.Marker(7, 1, false, 9, 1_700_000_000_003))
		r.w.Seal()
		time.Sleep(2 * time.Second)
		r.close()
		for seq, name := range []string{"slot-v1-first.hex", "slot-v1-second.hex"} {
			_, _, _, data := object(t, r.mem, uint64(seq))
			golden(t, name, data)
		}
		golden(t, "fence-v1.hex", fenceObject(258).Parts[0])
	})
}

func TestHeadersRoundTrip(t *testing.T) {
	for _, h := range []wal.Header{
		{Kind: wal.Fence, Size: wal.HeaderBytes},
		{Kind: wal.Data, Lane: 1, Window: 255, ClusterID: "a cluster id of thirty-one bytes", Generation: 1 << 63, Size: 1 << 40},
		{
			Kind: wal.Data, ClusterID: cluster, Incarnation: metadata.Incarnation{Broker: 1<<31 - 1, Epoch: 1<<64 - 1}, Seq: 1 << 50,
			Author: metadata.Incarnation{Broker: -1, Epoch: 2}, WriteID: wal.WriteID{1, 15: 2}, DurableBelow: 1<<64 - 1, Size: 1 << 20,
		},
	} {
		if len(h.ClusterID) > 31 {
			h.ClusterID = h.ClusterID[:31]
		}
		b := wal.EncodeHeader(h)
		got, err := wal.DecodeHeader(b)
		if err != nil || got != h || len(b) != wal.HeaderBytes {
			t.Errorf("%d bytes, %+v, %v, want %+v", len(b), got, err, h)
		}
	}
}

func TestEveryDamagedByteOfASlotIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		mustCommit(t, r.append(1, 50))
		r.close()
		_, own, _, data := object(t, r.mem, 0)
		c := own.Chunks[0]
		for i := range data {
			data[i] ^= 0x20
			_, _, _, err := wal.DecodeSlot(data, int64(len(data)))
			_, herr := wal.DecodeHeader(data)
			inChunk := objstore.BytesBody(data[c.Pos:c.Pos+c.Len]).CRC32C != c.CRC32C
			if err == nil && herr == nil && !inChunk {
				t.Errorf("byte %d of %d", i, len(data))
			}
			data[i] ^= 0x20
		}
		for n := range data {
			if _, _, _, err := wal.DecodeSlot(data[:n], int64(n)); err == nil {
				t.Errorf("cut off at %d of %d", n, len(data))
			}
		}
	})
}

func TestWhatANewerVersionWroteIsUnsupportedNotCorrupt(t *testing.T) {
	h := wal.Header{Kind: 3, ClusterID: cluster, Size: wal.HeaderBytes}
	if _, err := wal.DecodeHeader(wal.EncodeHeader(h)); !errors.Is(err, wal.ErrUnsupported) || errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("kind 3: %v", err)
	}
	for kind := range byte(5) {
		index := []byte{1, kind, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
		_, _, err := wal.DecodeIndex(wal.Header{}, index)
		if unsupported := errors.Is(err, wal.ErrUnsupported); unsupported != (kind != 1) {
			t.Errorf("chunk of kind %d: %v", kind, err)
		}
	}
}

func randomIndex(rng *rand.Rand, seq uint64) wal.Index {
	i := wal.Index{Seq: seq}
	pos := int64(wal.HeaderBytes)
	for n := range rng.IntN(5) {
		c := wal.Chunk{
			Stream: commitlog.StreamID(n * 1000), Epoch: commitlog.Epoch(rng.IntN(3)), Base: commitlog.Offset(rng.Int64N(1 << 60)),
			Pos: pos, Len: rng.Int64N(1 << 30), MaxTimestamp: rng.Int64() - rng.Int64(), CRC32C: rng.Uint32(),
		}
		c.End = c.Base
		for range rng.IntN(4) {
			b := commitlog.BatchInfo{
				BaseOffset: c.End, LastOffset: c.End + commitlog.Offset(rng.IntN(100)), LeaderEpoch: c.Epoch,
				MaxTimestamp: rng.Int64N(1 << 50), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Marker: -1,
				Attributes: int16(rng.IntN(64)) &^ commitlog.AttrControl,
			}
			if rng.IntN(2) == 0 {
				b.ProducerID, b.ProducerEpoch, b.BaseSequence = rng.Int64(), int16(rng.IntN(1<<15)), rng.Int32()
				if rng.IntN(3) == 0 {
					b.Attributes |= commitlog.AttrControl
					b.Marker, b.CoordinatorEpoch = int16(rng.IntN(2)), rng.Int32()
				}
			}
			b.LastSequence = int32((int64(b.BaseSequence) + int64(b.LastOffset-b.BaseOffset)) & 0x7fffffff)
			c.Batches = append(c.Batches, b)
			c.End = b.LastOffset + 1
		}
		pos += c.Len
		i.Chunks = append(i.Chunks, c)
	}
	return i
}

func TestIndexesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 500 {
		seq := uint64(100 + rng.IntN(5))
		own := randomIndex(rng, seq)
		var repeated []wal.Index
		for k := range uint64(rng.IntN(4)) {
			repeated = append(repeated, randomIndex(rng, seq-k-1))
		}
		for i, j := 0, len(repeated)-1; i < j; i, j = i+1, j-1 {
			repeated[i], repeated[j] = repeated[j], repeated[i]
		}
		b := wal.EncodeIndex(own, repeated)
		gotOwn, gotRepeated, err := wal.DecodeIndex(wal.Header{Seq: seq}, b)
		if err != nil || !reflect.DeepEqual(gotOwn, own) || !reflect.DeepEqual(gotRepeated, repeated) {
			t.Fatalf("%v\n got %+v %+v\nwant %+v %+v", err, gotOwn, gotRepeated, own, repeated)
		}
	}
}

// FuzzDecodeIndex: never panics, allocates in proportion to its input, and what
// it accepts encodes to something that decodes to the same.
func FuzzDecodeIndex(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 20 {
		f.Add(wal.EncodeIndex(randomIndex(rng, 40), []wal.Index{randomIndex(rng, 39)}))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		own, repeated, err := wal.DecodeIndex(wal.Header{Seq: 40}, b)
		if err != nil {
			return
		}
		entries := len(own.Chunks)
		for _, r := range append(repeated, own) {
			for _, c := range r.Chunks {
				entries += len(c.Batches)
			}
		}
		if entries > len(b) {
			t.Fatalf("%d entries of %d bytes", entries, len(b))
		}
		again, rep, err := wal.DecodeIndex(wal.Header{Seq: 40}, wal.EncodeIndex(own, repeated))
		if err != nil || !reflect.DeepEqual(again, own) || !reflect.DeepEqual(rep, repeated) {
			t.Fatalf("%v: %+v, want %+v", err, again, own)
		}
	})
}

// FuzzDecodeSlot: never panics on any object.
func FuzzDecodeSlot(f *testing.F) {
	f.Add(wal.EncodeHeader(wal.Header{Kind: wal.Fence, ClusterID: cluster, Size: wal.HeaderBytes}))
	f.Add(wal.EncodeEmptySlot(wal.Header{ClusterID: cluster, Seq: 3}))
	for _, name := range []string{"slot-v1-first.hex", "slot-v1-second.hex"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(undump(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, own, _, err := wal.DecodeSlot(b, int64(len(b)))
		if err != nil {
			return
		}
		for _, c := range own.Chunks {
			if c.Pos < wal.HeaderBytes || c.Len < 0 || c.Pos+c.Len > int64(h.Size)-wal.HeaderBytes {
				t.Fatalf("chunk %+v of an object of %d bytes", c, h.Size)
			}
		}
	})
}

// FuzzDecodeHeader: any 128 bytes are a header or not, without panic; one that is
// accepted is the header that it encodes to, fences too.
func FuzzDecodeHeader(f *testing.F) {
	f.Add(wal.EncodeHeader(wal.Header{Kind: wal.Fence, ClusterID: cluster, Generation: 7, Incarnation: inc, Seq: 3, Author: sealer, Size: wal.HeaderBytes}))
	f.Add(wal.EncodeHeader(wal.Header{Kind: wal.Data, ClusterID: cluster, Generation: 1, Incarnation: inc, Seq: 1 << 40, Window: 4, DurableBelow: 5, Size: 2 * wal.HeaderBytes}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := wal.DecodeHeader(b)
		if err != nil {
			return
		}
		again, err := wal.DecodeHeader(wal.EncodeHeader(h))
		if err != nil || again != h {
			t.Fatalf("%+v encodes to %+v, %v", h, again, err)
		}
	})
}

// undump reverses hex.Dump.
func undump(dump []byte) []byte {
	var out []byte
	for line := range bytes.Lines(dump) {
		if len(line) < 60 {
			continue
		}
		for _, field := range bytes.Fields(line[10:59]) {
			b, err := hex.DecodeString(string(field))
			if err != nil {
				panic(err)
			}
			out = append(out, b...)
		}
	}
	return out
}
