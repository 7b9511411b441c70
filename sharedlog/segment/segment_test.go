package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// sample is one of everything that a section can hold.
func sample() []*segment.Section {
	return []*segment.Section{
		{Stream: 7, Base: 100, From: 100, End: 130, Entries: []segment.Entry{{
			Extent: metadata.Extent{Position: 32, Length: 500, Base: 100, End: 130, Epoch: 3, MaxTimestamp: 1700000000000, Bytes: 500},
			Blocks: []segment.Block{
				{Base: 100, Position: 0, Length: 300, MaxTimestamp: 1699999999000, CRC: 0xdeadbeef},
				{Base: 117, Position: 300, Length: 200, MaxTimestamp: 1700000000000, CRC: 1},
			},
		}}, State: segment.State{Kind: segment.StateCheckpoint, Checkpoint: []byte("state")}},
		{Stream: 1 << 40, Base: 1 << 50, From: 1<<50 + 5, End: 1<<50 + 30, Entries: []segment.Entry{
			{Extent: metadata.Extent{Object: "wal/3-17/0/00000000000000000009", Position: 128, Length: 77, Base: 1<<50 + 5, End: 1<<50 + 10, Epoch: 9, MaxTimestamp: -1, Bytes: 77}},
			{Extent: metadata.Extent{Object: "wal/3-17/0/00000000000000000010", Position: 128, Length: 78, Base: 1<<50 + 10, End: 1<<50 + 20, Epoch: 9, MaxTimestamp: 5, Bytes: 78}},
			{Extent: metadata.Extent{Object: "idx/3-17/00000000000000000001", Position: 32, Length: 79, Base: 1<<50 + 20, End: 1<<50 + 30, Indirect: true, MaxTimestamp: 4, Bytes: 1 << 33}},
		}, State: segment.State{Kind: segment.StateDeltas, Deltas: []commitlog.BatchInfo{
			{BaseOffset: 1<<50 + 5, LastOffset: 1<<50 + 6, LeaderEpoch: 9, MaxTimestamp: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, LastSequence: -1, Marker: -1},
			{BaseOffset: 1<<50 + 7, LastOffset: 1<<50 + 7, LeaderEpoch: 9, MaxTimestamp: 5, ProducerID: 1 << 60, ProducerEpoch: 32767, BaseSequence: 1<<31 - 1, LastSequence: 0, Attributes: 0x1f, Marker: -1},
			{BaseOffset: 1<<50 + 8, LastOffset: 1<<50 + 8, LeaderEpoch: 10, MaxTimestamp: 6, ProducerID: 4, ProducerEpoch: 2, BaseSequence: -1, LastSequence: -1, Attributes: -32768, Marker: 1, CoordinatorEpoch: 12},
		}}},
		{Stream: 2, Base: 4, From: 4, End: 4, Entries: []segment.Entry{}},
	}
}

func TestSectionRoundTrip(t *testing.T) {
	for i, s := range sample() {
		b := segment.AppendSection([]byte("before"), s)[len("before"):]
		got, err := segment.DecodeSection(b)
		if err != nil {
			t.Fatalf("section %d: %v", i, err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("section %d comes back as\n%+v, was\n%+v", i, got, s)
		}
	}
}

// Any single damaged bit of a section is noticed, and any cut.
func TestSectionDamage(t *testing.T) {
	for _, s := range sample() {
		b := segment.AppendSection(nil, s)
		for i := range b {
			for bit := range 8 {
				c := bytes.Clone(b)
				c[i] ^= 1 << bit
				if _, err := segment.DecodeSection(c); !errors.Is(err, segment.ErrFormat) {
					t.Fatalf("bit %d of byte %d flipped: %v, want ErrFormat", bit, i, err)
				}
			}
			if _, err := segment.DecodeSection(b[:i]); !errors.Is(err, segment.ErrFormat) {
				t.Fatalf("cut to %d bytes: %v, want ErrFormat", i, err)
			}
		}
	}
}

// build makes an object with two runs and an index section.
func build(t testing.TB) ([]byte, []segment.Located) {
	b := segment.NewBuilder(segment.Name{Creator: metadata.Incarnation{Broker: 3, Epoch: 17}, Counter: 42})
	for i := range 2 {
		stream, epoch, base := commitlog.StreamID(10+i), commitlog.Epoch(4), commitlog.Offset(1000*i)
		var parts [][]byte
		for j := range 3 {
			p := kbatch.Values(int64(100*i+j), "alpha", "beta").Bytes()
			commitlog.Batch(p).SetBase(base+commitlog.Offset(2*j), epoch)
			parts = append(parts, p)
		}
		sec, err := b.AddRun(stream, epoch, base, parts)
		if err != nil {
			t.Fatal(err)
		}
		sec.State = segment.State{Kind: segment.StateCheckpoint, Checkpoint: []byte{1, 2, 3}}
	}
	b.AddIndex(sample()[1])
	body, at := b.Finish()
	whole := bytes.Join(body.Parts, nil)
	if crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli)) != body.CRC32C || int64(len(whole)) != body.Len() {
		t.Fatal("the object's CRC or length is wrong")
	}
	return whole, at
}

// Objects of version 1 are read for ever: the bytes must not change.
func TestGolden(t *testing.T) {
	whole, _ := build(t)
	var sections []byte
	for _, s := range sample() {
		b := segment.AppendSection(nil, s)
		sections = binary.BigEndian.AppendUint32(sections, uint32(len(b)))
		sections = append(sections, b...)
	}
	for name, got := range map[string][]byte{"object_v1.golden": whole, "sections_v1.golden": sections} {
		path := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the format has changed; a new version must have a new number", name)
		}
	}
}

func TestObjectRoundTrip(t *testing.T) {
	whole, at := build(t)
	size := int64(len(whole))
	tr, err := segment.DecodeTrailer(whole[size-segment.TrailerBytes:], size)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := segment.DecodeDirectory(whole[tr.Directory:tr.Directory+tr.DirLength], tr)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(dir, at) {
		t.Fatalf("directory is %+v, built was %+v", dir, at)
	}
	for i, l := range dir[:2] {
		sec, err := segment.DecodeSection(whole[l.Position : l.Position+l.Length])
		if err != nil {
			t.Fatal(err)
		}
		e := sec.Entries[0]
		if e.Base != commitlog.Offset(1000*i) || e.End != e.Base+6 || len(e.Blocks) != 1 || sec.Stream != commitlog.StreamID(10+i) {
			t.Errorf("run %d is %+v", i, e)
		}
		body := whole[e.Position : e.Position+e.Length]
		scanned, err := segment.ScanRun(e.Extent, bytes.Clone(body))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(scanned.Blocks, e.Blocks) {
			t.Errorf("scanning finds blocks %+v, the index has %+v", scanned.Blocks, e.Blocks)
		}
	}
}

// A placed section lies where Place said, so that others can point at it.
func TestPlace(t *testing.T) {
	b := segment.NewBuilder(segment.Name{Creator: metadata.Incarnation{Broker: 1, Epoch: 1}})
	var want []segment.Located
	for _, s := range sample() {
		want = append(want, b.Place(s))
	}
	body, at := b.Finish()
	if !reflect.DeepEqual(at, want) {
		t.Errorf("sections lie at %+v, Place said %+v", at, want)
	}
	whole := bytes.Join(body.Parts, nil)
	for i, l := range want {
		if got, err := segment.DecodeSection(whole[l.Position : l.Position+l.Length]); err != nil || !reflect.DeepEqual(got, sample()[i]) {
			t.Errorf("section %d: %+v, %v", i, got, err)
		}
	}
}

func TestRunsOfWrongBatchesAreRefused(t *testing.T) {
	good := kbatch.Values(1, "a", "b").Bytes()
	commitlog.Batch(good).SetBase(10, 2)
	for name, c := range map[string]struct {
		base  commitlog.Offset
		epoch commitlog.Epoch
		body  []byte
	}{
		"another base":  {11, 2, good},
		"another epoch": {10, 3, good},
		"a gap":         {10, 2, append(bytes.Clone(good), good...)},
		"cut off":       {10, 2, good[:len(good)-1]},
	} {
		b := segment.NewBuilder(segment.Name{Creator: metadata.Incarnation{Broker: 1, Epoch: 1}})
		if _, err := b.AddRun(1, c.epoch, c.base, [][]byte{c.body}); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

// The extent's base offset and epoch are authoritative: headers that differ are
// patched, and damage under a CRC is not.
func TestScanPatchesAndChecks(t *testing.T) {
	var body []byte
	for range 3 {
		body = append(body, kbatch.Values(1, "a", "b").Bytes()...)
	}
	x := metadata.Extent{Base: 50, End: 56, Epoch: 8, Length: int64(len(body))}
	got := bytes.Clone(body)
	if _, err := segment.ScanRun(x, got); err != nil {
		t.Fatal(err)
	}
	next := commitlog.Offset(50)
	for rest := got; len(rest) > 0; {
		var b commitlog.Batch
		b, rest, _ = commitlog.SplitBatch(rest)
		if b.BaseOffset() != next || b.LeaderEpoch() != 8 || b.CheckCRC() != nil {
			t.Fatalf("batch at %d epoch %d, want %d epoch 8", b.BaseOffset(), b.LeaderEpoch(), next)
		}
		next = b.LastOffset() + 1
	}
	for i := range body {
		if i%len(kbatch.Values(1, "a", "b").Bytes()) < 16 && i%len(kbatch.Values(1, "a", "b").Bytes()) != 11 {
			continue // base offset, upper length bytes, epoch: patched or structural
		}
		bad := bytes.Clone(body)
		bad[i] ^= 4
		if _, err := segment.ScanRun(x, bad); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Fatalf("byte %d damaged: %v, want ErrCorrupt", i, err)
		}
	}
	x.End = 57
	if _, err := segment.ScanRun(x, bytes.Clone(body)); !errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("extent that claims more: %v, want ErrCorrupt", err)
	}
}

func FuzzDecodeSection(f *testing.F) {
	for _, s := range sample() {
		b := segment.AppendSection(nil, s)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// The CRC would keep the fuzzer from ever getting past it.
		b = binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		s, err := segment.DecodeSection(b)
		if err != nil {
			return
		}
		again, err := segment.DecodeSection(segment.AppendSection(nil, s))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v comes back as %+v, %v", s, again, err)
		}
	})
}

func FuzzObject(f *testing.F) {
	whole, _ := build(f)
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		size := int64(len(b))
		tr, err := segment.DecodeTrailer(b[max(0, size-segment.TrailerBytes):], size)
		if err != nil {
			return
		}
		dir, err := segment.DecodeDirectory(b[tr.Directory:tr.Directory+tr.DirLength], tr)
		if err != nil {
			return
		}
		for _, l := range dir {
			_, _ = segment.DecodeSection(b[l.Position : l.Position+l.Length])
		}
	})
}

func FuzzScanRun(f *testing.F) {
	f.Add(kbatch.Values(1, "a", "b").Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = segment.ScanRun(metadata.Extent{Base: 5, End: 7, Epoch: 1}, b)
	})
}

// BenchmarkScan is what reading a WAL chunk back costs: every batch is checked.
func BenchmarkScan(b *testing.B) {
	var run []byte
	next := commitlog.Offset(0)
	for i := range 256 {
		p := kbatch.Sized(1, 10, 16<<10, uint64(i)).Bytes()
		commitlog.Batch(p).SetBase(next, 0)
		next += 10
		run = append(run, p...)
	}
	x := metadata.Extent{Length: int64(len(run)), End: next}
	b.SetBytes(int64(len(run)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := segment.ScanRun(x, run); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	var parts [][]byte
	next := commitlog.Offset(0)
	for i := range 1000 {
		p := kbatch.Sized(1, 10, 16<<10, rand.Uint64()+uint64(i)).Bytes()
		commitlog.Batch(p).SetBase(next, 0)
		next += 10
		parts = append(parts, p)
	}
	b.SetBytes(16 << 20)
	b.ReportAllocs()
	for b.Loop() {
		o := segment.NewBuilder(segment.Name{Creator: metadata.Incarnation{Broker: 1, Epoch: 1}})
		if _, err := o.AddRun(1, 0, 0, parts); err != nil {
			b.Fatal(err)
		}
		body, _ := o.Finish()
		_ = objstore.Body(body)
	}
}
