package partition_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/partition"
)

// history makes a random but lawful sequence of batches: plain, idempotent,
// transactional, markers, several epochs.
func history(r *rand.Rand, n int) []commitlog.BatchInfo {
	type prod struct {
		epoch int16
		seq   int32
		open  bool
	}
	producers := make(map[int64]*prod)
	var out []commitlog.BatchInfo
	offset, epoch := commitlog.Offset(0), commitlog.Epoch(0)
	for range n {
		if r.IntN(20) == 0 {
			epoch += commitlog.Epoch(1 + r.IntN(2))
		}
		b := commitlog.BatchInfo{BaseOffset: offset, LeaderEpoch: epoch, MaxTimestamp: r.Int64N(1e12), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, LastSequence: -1, Marker: -1}
		records := commitlog.Offset(1 + r.IntN(5))
		if id := int64(r.IntN(8)); id > 0 {
			p := producers[id]
			if p == nil {
				p = &prod{}
				producers[id] = p
			}
			if !p.open && r.IntN(30) == 0 {
				p.epoch, p.seq = p.epoch+1, 0
			}
			b.ProducerID, b.ProducerEpoch = id, p.epoch
			if p.open && r.IntN(3) == 0 {
				records, p.open = 1, false
				b.Attributes = commitlog.AttrControl | commitlog.AttrTransactional
				b.Marker, b.CoordinatorEpoch = int16(r.IntN(2)), int32(r.IntN(3))
			} else {
				if p.open || id > 4 {
					p.open = true
					b.Attributes = commitlog.AttrTransactional
				}
				b.BaseSequence, b.LastSequence = p.seq, p.seq+int32(records)-1
				p.seq += int32(records)
			}
		}
		b.LastOffset = offset + records - 1
		offset += records
		out = append(out, b)
	}
	return out
}

// TestRecoveredStateEqualsLiveState is prod-1: a checkpoint anywhere plus the
// deltas behind it give the very bytes that observing everything gives.
func TestRecoveredStateEqualsLiveState(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := history(r, 1+r.IntN(300))
		var live partition.State
		for _, b := range all {
			live.Observe(b)
		}
		var c partition.Checkpointer
		var checkpoint []byte
		var err error
		for rest := all; ; {
			cut := r.IntN(len(rest) + 1)
			piece := rest[:cut]
			if r.IntN(2) == 0 {
				piece = commitlog.KeepRelevant(piece)
			}
			if checkpoint, err = c.Fold(checkpoint, piece); err != nil {
				t.Fatal(err)
			}
			if rest = rest[cut:]; len(rest) == 0 {
				break
			}
		}
		if !bytes.Equal(checkpoint, live.Encode()) {
			t.Fatalf("seed %d: recovered state differs from the live one", seed)
		}
	}
}

func TestStateSurvivesItsEncoding(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var s partition.State
	for _, b := range history(r, 500) {
		s.Observe(b)
	}
	got, err := partition.DecodeState(s.Encode())
	if err != nil || !bytes.Equal(got.Encode(), s.Encode()) || got.Producers() != s.Producers() {
		t.Fatalf("decode: %v", err)
	}
	if got.FirstUnstable(1<<40) != s.FirstUnstable(1<<40) {
		t.Error("the first unstable offset got lost")
	}
}

// goldenV1 must decode for ever.
const goldenV1 = "01020600080a020e020101040100040404d00f100012a21f0c020a0c0802a01f0e0e0c00a41f01100c0110060a"

func TestStateGoldenBytes(t *testing.T) {
	var s partition.State
	s.Observe(commitlog.BatchInfo{BaseOffset: 0, LastOffset: 2, LeaderEpoch: 3, MaxTimestamp: 1000, ProducerID: 7, ProducerEpoch: 1, BaseSequence: 0, LastSequence: 2, Marker: -1})
	s.Observe(commitlog.BatchInfo{BaseOffset: 3, LastOffset: 4, LeaderEpoch: 3, MaxTimestamp: 2000, ProducerID: 8, BaseSequence: 5, LastSequence: 6, Attributes: commitlog.AttrTransactional, Marker: -1})
	s.Observe(commitlog.BatchInfo{BaseOffset: 5, LastOffset: 5, LeaderEpoch: 4, MaxTimestamp: 2001, ProducerID: 8, BaseSequence: -1, LastSequence: -1, Attributes: commitlog.AttrTransactional | commitlog.AttrControl, Marker: 0, CoordinatorEpoch: 9})
	s.Observe(commitlog.BatchInfo{BaseOffset: 6, LastOffset: 6, LeaderEpoch: 4, MaxTimestamp: 2002, ProducerID: 8, BaseSequence: 7, LastSequence: 7, Attributes: commitlog.AttrTransactional, Marker: -1})
	if got := hex.EncodeToString(s.Encode()); got != goldenV1 {
		t.Errorf("encoding changed without a new version:\n got %s\nwant %s", got, goldenV1)
	}
	old, err := hex.DecodeString(goldenV1)
	if err != nil {
		t.Fatal(err)
	}
	d, err := partition.DecodeState(old)
	if err != nil || !bytes.Equal(d.Encode(), old) {
		t.Errorf("golden bytes of version 1 do not decode: %v", err)
	}
}

func TestDamagedStateIsCorrupt(t *testing.T) {
	var s partition.State
	for _, b := range history(rand.New(rand.NewPCG(5, 5)), 100) {
		s.Observe(b)
	}
	good := s.Encode()
	for cut := 1; cut < len(good); cut++ {
		if _, err := partition.DecodeState(good[:cut]); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Fatalf("cut at %d: %v, want ErrCorrupt", cut, err)
		}
	}
	bad := bytes.Clone(good)
	bad[0] = 2
	if _, err := partition.DecodeState(bad); !errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("version 2: %v", err)
	}
}

// FuzzDecodeState: never panics, allocates no more than the bytes warrant, and
// what decodes encodes to something that decodes to the same.
func FuzzDecodeState(f *testing.F) {
	var s partition.State
	for _, b := range history(rand.New(rand.NewPCG(5, 5)), 100) {
		s.Observe(b)
		f.Add(s.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := partition.DecodeState(b)
		if err != nil {
			return
		}
		again, err := partition.DecodeState(s.Encode())
		if err != nil || !bytes.Equal(again.Encode(), s.Encode()) {
			t.Fatalf("decode(encode(x)) is not x: %v", err)
		}
		s.FirstUnstable(100)
		s.Aborted(0, 1<<40)
		s.Cut(50)
		s.EpochAt(50)
	})
}

// TestFoldForgetsOnlyWhoIsLongGone: timestamps alone must not cost a producer
// its state, or a mirror of old records would be appended twice.
func TestFoldForgetsOnlyWhoIsLongGone(t *testing.T) {
	day := (24 * time.Hour).Milliseconds()
	batch := func(id int64, offset commitlog.Offset, ms int64) commitlog.BatchInfo {
		return commitlog.BatchInfo{BaseOffset: offset, LastOffset: offset, ProducerID: id, MaxTimestamp: ms, Marker: -1}
	}
	fold := func(batches ...commitlog.BatchInfo) int {
		out, err := partition.Checkpointer{}.Fold(nil, batches)
		if err != nil {
			t.Fatal(err)
		}
		s, err := partition.DecodeState(out)
		if err != nil {
			t.Fatal(err)
		}
		return s.Producers()
	}
	if got := fold(batch(1, 0, 0), batch(2, 1, 100*day)); got != 2 {
		t.Errorf("%d producers, want both of 2", got)
	}
	var many []commitlog.BatchInfo
	many = append(many, batch(1, 0, 0))
	for i := range int64(1500) {
		many = append(many, batch(10+i, commitlog.Offset(1+i), 10*day))
	}
	mirror := batch(2, 2000, 0) // old records, but written last
	if got := fold(append(many, mirror)...); got != 1501 {
		t.Errorf("%d producers, want all but the one that is old and long gone", got)
	}
}
