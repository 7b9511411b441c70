package commitlog_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

func TestBatchAccessors(t *testing.T) {
	b := commitlog.Batch(kbatch.New(kbatch.KV("a", "1").At(100), kbatch.KV("b", "2").At(90)).
		InTransaction(7, 3, math.MaxInt32).Placed(40, 9).Compressed(kbatch.Zstd).Bytes())
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	got := b.Info()
	want := commitlog.BatchInfo{
		BaseOffset: 40, LastOffset: 41, LeaderEpoch: 9, MaxTimestamp: 100, ProducerID: 7, ProducerEpoch: 3,
		BaseSequence: math.MaxInt32, LastSequence: 0, Attributes: commitlog.AttrTransactional | 4, Marker: -1,
	}
	if got != want {
		t.Errorf("info is %+v, want %+v", got, want)
	}
	if b.BaseTimestamp() != 100 || b.NumRecords() != 2 || b.LastOffsetDelta() != 1 || b.Control() || !b.Transactional() {
		t.Errorf("header reads %d %d %d", b.BaseTimestamp(), b.NumRecords(), b.LastOffsetDelta())
	}
}

func TestSetBaseKeepsTheCRCValidAndSetCRCRestoresIt(t *testing.T) {
	b := commitlog.Batch(kbatch.Values(1, "x").Bytes())
	b.SetBase(1<<40, 77)
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40 || b.LeaderEpoch() != 77 {
		t.Errorf("patched batch reads %d, %d", b.BaseOffset(), b.LeaderEpoch())
	}
	if err := b.CheckCRC(); err != nil {
		t.Error(err)
	}
	b[22] |= commitlog.AttrLogAppendTime
	if err := b.CheckCRC(); !errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("a changed attribute gives %v", err)
	}
	b.SetCRC()
	if err := b.CheckCRC(); err != nil {
		t.Error(err)
	}
}

func TestMarkers(t *testing.T) {
	damage := func(at int) commitlog.Batch {
		b := commitlog.Batch(kbatch.Marker(7, 1, true, 5, 100).Bytes())
		b[at] ^= 0x7f
		return b
	}
	cases := []struct {
		name  string
		batch commitlog.Batch
		kind  int16
		epoch int32
	}{
		{"commit", kbatch.Marker(7, 1, true, 5, 100).Bytes(), 1, 5},
		{"abort", kbatch.Marker(7, 1, false, 6, 100).Bytes(), 0, 6},
		{"not a control batch", kbatch.Values(1, "x").Bytes(), -1, 0},
		{"unknown type", damage(commitlog.HeaderBytes + 8), -1, 0},
		{"key length", damage(commitlog.HeaderBytes + 4), -1, 0},
		{"value length", damage(commitlog.HeaderBytes + 9), -1, 0},
		{"nothing after the header", commitlog.Batch(kbatch.Marker(7, 1, true, 5, 100).Bytes())[:commitlog.HeaderBytes], -1, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			i := c.batch.Info()
			if i.Marker != c.kind || i.CoordinatorEpoch != c.epoch {
				t.Errorf("marker %d of coordinator epoch %d, want %d of %d", i.Marker, i.CoordinatorEpoch, c.kind, c.epoch)
			}
		})
	}
}

func TestWhatIsNoBatchIsRefused(t *testing.T) {
	good := kbatch.Values(1, "x").Bytes()
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	cases := []struct {
		name string
		b    []byte
	}{
		{"nothing", nil},
		{"a byte short", good[:len(good)-1]},
		{"half a header", good[:commitlog.HeaderBytes-1]},
		{"magic 1", change(16, 1)},
		{"negative length", change(8, 0xff)},
		{"length inside the header", change(11, 3)},
		{"huge length", change(8, 0x7f)},
		{"two batches", append(bytes.Clone(good), good...)},
		{"no offset", change(23, 0x80)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := commitlog.Batch(c.b).Check(); !errors.Is(err, commitlog.ErrCorrupt) {
				t.Errorf("check gives %v", err)
			}
		})
	}
}

func TestSplitBatchWalksAList(t *testing.T) {
	one, two := kbatch.Values(1, "x").Bytes(), kbatch.Values(2, "yy", "z").Bytes()
	b, rest, err := commitlog.SplitBatch(append(bytes.Clone(one), two...))
	if err != nil || !bytes.Equal(b, one) || !bytes.Equal(rest, two) {
		t.Fatalf("first: %x, %x, %v", b, rest, err)
	}
	if cap(b) != len(b) {
		t.Error("an append to the first batch would overwrite the second")
	}
	b, rest, err = commitlog.SplitBatch(rest)
	if err != nil || !bytes.Equal(b, two) || len(rest) != 0 {
		t.Fatalf("second: %x, %x, %v", b, rest, err)
	}
}

// FuzzBatch holds that no bytes make the header code panic or read outside.
func FuzzBatch(f *testing.F) {
	f.Add(kbatch.Values(1, "x").Bytes())
	f.Add(kbatch.Marker(7, 1, true, 5, 100).Bytes())
	f.Add(kbatch.Marker(7, 1, false, 5, 100).Bytes()[:70])
	f.Fuzz(func(t *testing.T, p []byte) {
		b, rest, err := commitlog.SplitBatch(p)
		if err != nil {
			if !errors.Is(err, commitlog.ErrCorrupt) {
				t.Fatalf("error %v is not ErrCorrupt", err)
			}
			return
		}
		if len(b)+len(rest) != len(p) {
			t.Fatalf("%d + %d bytes of %d", len(b), len(rest), len(p))
		}
		i := b.Info()
		if i.Marker < -1 || i.Marker > 1 || (i.Marker >= 0 && !b.Control()) {
			t.Fatalf("marker %d", i.Marker)
		}
		if i.LastSequence < 0 && i.BaseSequence >= 0 {
			t.Fatalf("sequence %d ends at %d", i.BaseSequence, i.LastSequence)
		}
		_ = b.CheckCRC()
		b.SetBase(5, 6)
		if got := b.Info(); got.BaseOffset != 5 || got.LeaderEpoch != 6 || got.ProducerID != i.ProducerID {
			t.Fatalf("after SetBase %+v", got)
		}
	})
}
