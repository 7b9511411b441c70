package partition_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/partition"
)

func TestReadBounds(t *testing.T) {
	r := newRig(t)
	r.sent(plain(5))
	r.sent(plain(5))
	if _, err := r.p.DeleteRecords(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	r.store.Hold()
	a := r.send(plain(4)) // offsets 10 to 13, not stable
	for _, c := range []struct {
		from commitlog.Offset
		want string
		err  error
	}{
		{2, "", commitlog.ErrOffsetOutOfRange},
		{3, "0-4 5-9 ", nil},
		{7, "5-9 ", nil},
		{10, "", nil}, // at the high watermark
		{12, "", nil}, // between it and the end
		{14, "", nil},
		{15, "", commitlog.ErrOffsetOutOfRange},
	} {
		got, err := r.p.Read(t.Context(), c.from, partition.ReadOptions{MaxBytes: 1 << 20})
		if !errors.Is(err, c.err) {
			t.Errorf("read %d: %v, want %v", c.from, err, c.err)
		}
		if got.HighWatermark != 10 || got.LogStart != 3 || got.LastStable != 10 {
			t.Errorf("read %d: offsets %+v", c.from, got)
		}
		if err == nil {
			if text := r.read(c.from, partition.ReadUncommitted); text != c.want {
				t.Errorf("read %d: %q, want %q", c.from, text, c.want)
			}
		}
	}
	r.store.Release()
	r.settle(a)
}

func TestReadIsWholeBatchesWithinMaxBytes(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.sent(plain(5))
	}
	size := len(plain(5).Bytes())
	for _, c := range []struct {
		max    int
		minOne bool
		want   int
	}{{1, false, 0}, {1, true, size}, {size, false, size}, {2*size + 3, true, 2 * size}} {
		got, err := r.p.Read(t.Context(), 1, partition.ReadOptions{MaxBytes: c.max, MinOne: c.minOne})
		if err != nil || got.Records.Bytes != c.want {
			t.Errorf("max %d: %d bytes, %v, want %d", c.max, got.Records.Bytes, err, c.want)
		}
		got.Records.Release()
	}
}

func TestReadCommitted(t *testing.T) {
	r := newRig(t)
	// The very first record is unstable: LSO 0 must not read as "no limit".
	r.sent(batch(1, 0, 2).InTransaction(1, 0, 0)) // 0-1
	if got := r.read(0, partition.ReadCommitted); got != "" || r.p.LastStable() != 0 {
		t.Fatalf("read %q, LSO %d", got, r.p.LastStable())
	}
	r.sent(plain(1))                              // 2
	r.sent(batch(2, 0, 1).InTransaction(2, 0, 0)) // 3
	if got := r.read(2, partition.ReadUncommitted); got != "2-2 3-3 " {
		t.Fatalf("read_uncommitted %q", got)
	}
	r.mark(1, true) // 4
	if got := r.read(0, partition.ReadCommitted); got != "0-1 2-2 " || r.p.LastStable() != 3 {
		t.Fatalf("read %q, LSO %d", got, r.p.LastStable())
	}
	r.sent(batch(1, 2, 1).InTransaction(1, 0, 2)) // 5
	r.mark(2, false)                              // 6
	r.mark(1, false)                              // 7
	for _, c := range []struct {
		from commitlog.Offset
		want string
	}{{0, "[{2 3 6} {1 5 7}]"}, {6, "[{2 3 6} {1 5 7}]"}, {7, "[{1 5 7}]"}} {
		got, err := r.p.Read(t.Context(), c.from, partition.ReadOptions{MaxBytes: 1 << 20, Isolation: partition.ReadCommitted})
		if err != nil || fmt.Sprint(got.Aborted) != c.want {
			t.Errorf("read %d: aborted %v, %v, want %s", c.from, got.Aborted, err, c.want)
		}
		got.Records.Release()
	}
	// Only what touches the returned records is listed.
	got, err := r.p.Read(t.Context(), 0, partition.ReadOptions{MaxBytes: 1, MinOne: true, Isolation: partition.ReadCommitted})
	if err != nil || got.Aborted != nil {
		t.Errorf("aborted %v, %v", got.Aborted, err)
	}
	r.open()
	if got := r.read(7, partition.ReadCommitted); got != "7-7 " {
		t.Errorf("after a re-open: %q", got)
	}
}

// TestLSOWaitsForTheMarkerToBeStable: until then the next owner may find the
// transaction open.
func TestLSOWaitsForTheMarkerToBeStable(t *testing.T) {
	r := newRig(t)
	r.sent(batch(1, 0, 2).InTransaction(1, 0, 0))
	r.store.Hold()
	a, err := r.p.AppendMarker(partition.Marker{ProducerID: 1, Commit: true, Time: nowMs})
	if err != nil {
		t.Fatal(err)
	}
	if lso := r.p.LastStable(); lso != 0 {
		t.Errorf("LSO %d while the marker is not durable, want 0", lso)
	}
	r.store.Release()
	r.settle(a)
	if lso := r.p.LastStable(); lso != 3 {
		t.Errorf("LSO %d, want 3", lso)
	}
}

// eagerStore makes logs whose appends are stable before Append returns, and
// which then call peek.
type eagerStore struct {
	commitlog.Store
	peek func()
}

type eagerLog struct {
	commitlog.Log
	peek func()
}

func (s eagerStore) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	l, err := s.Store.Open(ctx, id, epoch, opts)
	return eagerLog{l, s.peek}, err
}

func (l eagerLog) Append(b commitlog.Batch) (commitlog.Commit, error) {
	c, err := l.Log.Append(b)
	if err == nil {
		err = c.Wait(context.Background())
	}
	l.peek()
	return c, err
}

// TestNoReaderSeesATransactionBeforeItIsNoted: the batch may be stable before
// the append has returned, and readers do not take the append's lock.
func TestNoReaderSeesATransactionBeforeItIsNoted(t *testing.T) {
	var p *partition.Partition
	seen := make(chan commitlog.Offset, 1)
	peek := func() {
		go func() { seen <- p.LastStable() }()
		select {
		case got := <-seen:
			seen <- got
		case <-time.After(20 * time.Millisecond): // it waits for us to return
		}
	}
	p, err := partition.Open(t.Context(), partition.Config{ID: rigID, Store: eagerStore{memlog.New(memlog.Config{}), peek}, Settings: defaults})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	if _, err := p.Append(batch(1, 0, 2).InTransaction(1, 0, 0).Bytes(), clientAt(nowMs)); err != nil {
		t.Fatal(err)
	}
	if lso := <-seen; lso != 0 {
		t.Errorf("LSO %d while the first transaction was being appended, want 0", lso)
	}
}

func TestMarkersAreChecked(t *testing.T) {
	r := newRig(t)
	r.sent(batch(1, 0, 1).InTransaction(1, 3, 0))
	r.refuse(batch(1, 1, 1).Idempotent(1, 3, 1), partition.ErrInvalidTxnState)
	mark := func(epoch int16, coordinator int32) error {
		_, err := r.p.AppendMarker(partition.Marker{ProducerID: 1, ProducerEpoch: epoch, CoordinatorEpoch: coordinator, Time: nowMs})
		return err
	}
	if err := mark(2, 5); !errors.Is(err, partition.ErrInvalidProducerEpoch) {
		t.Errorf("old producer epoch: %v", err)
	}
	if err := mark(3, 5); err != nil {
		t.Errorf("%v", err)
	}
	if err := mark(3, 4); !errors.Is(err, partition.ErrCoordinatorFenced) {
		t.Errorf("old coordinator: %v", err)
	}
	// Transactions of version 2 end with the next epoch; a late write of the old
	// one is fenced, and the new one starts at 0.
	if err := mark(4, 5); err != nil {
		t.Errorf("%v", err)
	}
	r.refuse(batch(1, 1, 1).InTransaction(1, 3, 1), partition.ErrInvalidProducerEpoch)
	r.refuse(batch(1, 1, 1).InTransaction(1, 4, 1), partition.ErrOutOfOrderSequence)
	r.send(batch(1, 0, 1).InTransaction(1, 4, 0))
}

// TestOffsetFor: kafka-behaviour 15 and KIP-734.
func TestOffsetFor(t *testing.T) {
	for _, codec := range kbatch.Codecs() {
		t.Run(codec.String(), func(t *testing.T) {
			r := newRig(t)
			r.sent(kbatch.New(kbatch.KV("", "").At(100), kbatch.KV("", "").At(300), kbatch.KV("", "").At(200)).Compressed(codec)) // 0-2
			r.sent(kbatch.New(kbatch.KV("", "").At(250), kbatch.KV("", "").At(400), kbatch.KV("", "").At(400)).Compressed(codec)) // 3-5
			r.open()                                                                                                              // epoch 2
			r.sent(kbatch.New(kbatch.KV("", "").At(400)).InTransaction(1, 0, 0).Compressed(codec))                                // 6
			for _, c := range []struct {
				ts   int64
				iso  partition.Isolation
				want partition.OffsetResult
			}{
				{partition.TimestampLatest, partition.ReadUncommitted, partition.OffsetResult{Offset: 7, Timestamp: -1, LeaderEpoch: 2}},
				{partition.TimestampLatest, partition.ReadCommitted, partition.OffsetResult{Offset: 6, Timestamp: -1, LeaderEpoch: 2}},
				{partition.TimestampEarliest, 0, partition.OffsetResult{Offset: 0, Timestamp: -1, LeaderEpoch: 1}},
				{partition.TimestampEarliestLocal, 0, partition.OffsetResult{Offset: 0, Timestamp: -1, LeaderEpoch: 1}},
				{partition.TimestampMax, 0, partition.OffsetResult{Offset: 4, Timestamp: 400, LeaderEpoch: 1}},
				{partition.TimestampLatestTiered, 0, partition.OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}},
				{partition.TimestampEarliestPending, 0, partition.OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}},
				{0, 0, partition.OffsetResult{Offset: 0, Timestamp: 100, LeaderEpoch: 1}},
				{101, 0, partition.OffsetResult{Offset: 1, Timestamp: 300, LeaderEpoch: 1}},
				{301, 0, partition.OffsetResult{Offset: 4, Timestamp: 400, LeaderEpoch: 1}},
				{401, 0, partition.OffsetResult{Offset: -1, Timestamp: -1, LeaderEpoch: -1}},
			} {
				got, err := r.p.OffsetFor(t.Context(), time.Now(), c.ts, c.iso)
				if err != nil || got != c.want {
					t.Errorf("timestamp %d: %+v, %v, want %+v", c.ts, got, err, c.want)
				}
			}
			if _, err := r.p.OffsetFor(t.Context(), time.Now(), -7, 0); !errors.Is(err, partition.ErrUnsupportedTimestamp) {
				t.Errorf("timestamp -7: %v", err)
			}
			// What was trimmed off inside a batch is not found.
			if _, err := r.p.DeleteRecords(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			got, err := r.p.OffsetFor(t.Context(), time.Now(), 300, 0)
			if err != nil || got.Offset != 4 {
				t.Errorf("after DeleteRecords: %+v, %v, want offset 4", got, err)
			}
		})
	}
}

func TestOffsetForOfAppendTime(t *testing.T) {
	r := newRig(t)
	r.configure(func(s *metadata.TopicSettings) { s.LogAppendTime = true })
	r.sent(kbatch.New(kbatch.KV("", "").At(5), kbatch.KV("", "").At(6)))
	got, err := r.p.OffsetFor(t.Context(), time.Now(), nowMs, 0)
	if err != nil || got.Offset != 0 || got.Timestamp != nowMs {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.p.OffsetFor(t.Context(), time.Now(), partition.TimestampMax, 0); err != nil || got.Offset != 0 || got.Timestamp != nowMs {
		t.Errorf("max: %+v, %v", got, err)
	}
	r.sent(batch(1, 0, 1))
	if a := r.send(batch(1, 0, 1)); !a.Duplicate || a.LogAppendTime != nowMs {
		t.Errorf("a duplicate: %+v", a)
	}
}

func TestOffsetsOfAnEmptyLog(t *testing.T) {
	r := newRig(t)
	for ts, want := range map[int64]commitlog.Offset{-1: 0, -2: 0, -3: -1, 5: -1} {
		if got, err := r.p.OffsetFor(t.Context(), time.Now(), ts, 0); err != nil || got.Offset != want {
			t.Errorf("timestamp %d: %+v, %v, want %d", ts, got, err, want)
		}
	}
}

// TestEpochs: kafka-behaviour 7.
func TestEpochs(t *testing.T) {
	r := newRig(t) // epoch 1
	r.sent(plain(3))
	r.open() // epoch 2 writes nothing
	r.open() // epoch 3
	r.sent(plain(2))
	r.open() // epoch 4 has written nothing yet
	for epoch, want := range map[commitlog.Epoch]partition.EpochEnd{
		-1: {Epoch: -1, End: -1}, 0: {Epoch: 0, End: 0}, 1: {Epoch: 1, End: 3}, 2: {Epoch: 1, End: 3},
		3: {Epoch: 3, End: 5}, 4: {Epoch: 4, End: 5}, 5: {Epoch: -1, End: -1},
	} {
		if got := r.p.EndOffsetForEpoch(epoch); got != want {
			t.Errorf("epoch %d: %+v, want %+v", epoch, got, want)
		}
	}
	if _, d, err := r.p.Diverges(3, 1); d || err != nil {
		t.Errorf("at the end of epoch 1: diverges %v, %v", d, err)
	}
	if e, d, err := r.p.Diverges(4, 1); !d || err != nil || e.End != 3 {
		t.Errorf("past the end of epoch 1: %+v, %v, %v", e, d, err)
	}
	if _, _, err := r.p.Diverges(4, 9); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		t.Errorf("an epoch never seen: %v", err)
	}
	for current, want := range map[commitlog.Epoch]error{-1: nil, 4: nil, 3: partition.ErrStaleEpoch, 5: partition.ErrUnknownEpoch} {
		if err := r.p.CheckEpoch(current); !errors.Is(err, want) {
			t.Errorf("current epoch %d: %v, want %v", current, err, want)
		}
	}
	r.sent(plain(1))
	if _, err := r.p.DeleteRecords(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if got := r.p.EndOffsetForEpoch(1); got != (partition.EpochEnd{Epoch: 1, End: 4}) {
		t.Errorf("an epoch below the start: %+v", got)
	}
}

// TestDeleteRecords: kafka-behaviour 15.
func TestDeleteRecords(t *testing.T) {
	r := newRig(t)
	r.sent(plain(10))
	r.store.Hold()
	a := r.send(plain(5))
	for _, c := range []struct {
		to, want commitlog.Offset
		err      error
	}{{4, 4, nil}, {2, 4, nil}, {4, 4, nil}, {11, -1, commitlog.ErrOffsetOutOfRange}, {-2, -1, commitlog.ErrOffsetOutOfRange}, {-1, 10, nil}} {
		got, err := r.p.DeleteRecords(t.Context(), c.to)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("delete to %d: %d, %v, want %d, %v", c.to, got, err, c.want, c.err)
		}
	}
	r.store.Release()
	r.settle(a)
	r.configure(func(s *metadata.TopicSettings) { s.Compact, s.Delete = true, false })
	if _, err := r.p.DeleteRecords(t.Context(), -1); !errors.Is(err, partition.ErrPolicyViolation) {
		t.Errorf("a compacted topic: %v", err)
	}
	r.configure(func(s *metadata.TopicSettings) { s.Delete = true })
	if _, err := r.p.DeleteRecords(t.Context(), -1); err != nil {
		t.Errorf("compact,delete: %v", err)
	}
}

func TestCorruptionIsNamedNotHidden(t *testing.T) {
	r := newRig(t)
	r.sent(plain(3))
	if _, err := r.store.Corrupt(rigID, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.Read(t.Context(), 0, partition.ReadOptions{MaxBytes: 1000}); !errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if _, err := r.p.OffsetFor(t.Context(), time.Now(), 1, 0); !errors.Is(err, commitlog.ErrCorrupt) {
		t.Errorf("offset: %v", err)
	}
}

// fakeProof records what was asked of it.
type fakeProof struct {
	proven time.Time
	err    error
	asked  int
}

func (f *fakeProof) ProvenSince(t time.Time) bool { return !f.proven.Before(t) }
func (f *fakeProof) Prove(context.Context, time.Time) error {
	f.asked++
	return f.err
}

// TestAnswersNeedAProof is ans-2.
func TestAnswersNeedAProof(t *testing.T) {
	proof := &fakeProof{proven: time.Now()}
	owned := true
	r := &rig{t: t, store: memlog.New(memlog.Config{}), set: defaults(), host: &partition.Host{Proof: proof,
		Owns: func(metadata.TopicID, int32, commitlog.Epoch) bool { return owned }}}
	r.open()
	r.sent(plain(3))
	latest := func() error { _, err := r.p.OffsetFor(t.Context(), time.Now(), -1, 0); return err }
	read := func(from commitlog.Offset) error {
		got, err := r.p.Read(t.Context(), from, partition.ReadOptions{MaxBytes: 1000})
		got.Records.Release()
		return err
	}
	if err := read(0); err != nil || proof.asked != 0 {
		t.Errorf("a fetch with a recent proof: %v, asked %d times", err, proof.asked)
	}
	if err := latest(); err != nil || proof.asked != 1 {
		t.Errorf("latest: %v, asked %d times, want once", err, proof.asked)
	}
	if err := read(4); !errors.Is(err, commitlog.ErrOffsetOutOfRange) || proof.asked != 2 {
		t.Errorf("out of range: %v, asked %d times", err, proof.asked)
	}
	proof.err = errors.New("no quorum")
	if err := latest(); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("latest without a proof: %v", err)
	}
	if err := read(4); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("out of range without a proof: %v", err)
	}
	if err := read(0); err != nil {
		t.Errorf("a fetch while a recent proof stands: %v", err)
	}
	proof.proven = time.Now().Add(-11 * time.Second)
	if err := read(0); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("a fetch with a proof 11 s old: %v", err)
	}
	proof.err, owned = nil, false
	if err := latest(); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("latest after the image named another: %v", err)
	}
}

func TestRetention(t *testing.T) {
	day := int64(24 * 3600 * 1000)
	fill := func(t *testing.T) *rig {
		r := newRig(t)
		r.configure(func(s *metadata.TopicSettings) { s.SegmentBytes = 1000 })
		for i := range int64(4) {
			b := kbatch.New(kbatch.Record{Timestamp: nowMs - (4-i)*day, Value: bytes.Repeat([]byte("x"), 900)})
			r.sent(b)
		}
		return r
	}
	at := func(r *rig, ms int64) commitlog.Offset {
		r.t.Helper()
		if err := r.p.Retain(r.t.Context(), time.UnixMilli(ms)); err != nil {
			r.t.Fatal(err)
		}
		return r.p.Start()
	}
	t.Run("time", func(t *testing.T) {
		r := fill(t)
		r.configure(func(s *metadata.TopicSettings) { s.RetentionMs = 2 * day })
		if got := at(r, nowMs); got != 2 {
			t.Errorf("start %d, want 2", got)
		}
		r.configure(func(s *metadata.TopicSettings) { s.RetentionMs = 3*day + 1 }) // config changes act live, and never backwards
		if got := at(r, nowMs); got != 2 {
			t.Errorf("start %d, want 2", got)
		}
	})
	t.Run("an idle topic becomes empty", func(t *testing.T) {
		r := fill(t)
		if got := at(r, nowMs+30*day); got != 4 || r.p.HighWatermark() != 4 {
			t.Errorf("start %d, want 4", got)
		}
		if a := r.send(plain(1)); a.Base != 4 {
			t.Errorf("the next append is at %d, want 4", a.Base)
		}
	})
	t.Run("size", func(t *testing.T) {
		r := fill(t)
		r.configure(func(s *metadata.TopicSettings) { s.RetentionMs, s.RetentionBytes = -1, 2500 })
		if got := at(r, nowMs); got != 1 {
			t.Errorf("start %d, want 1", got)
		}
		r.configure(func(s *metadata.TopicSettings) { s.RetentionBytes = 0 })
		if got := at(r, nowMs); got != 3 {
			t.Errorf("start %d, want 3: the active segment stays", got)
		}
	})
	t.Run("compacted topics keep everything", func(t *testing.T) {
		r := fill(t)
		r.configure(func(s *metadata.TopicSettings) { s.Delete, s.Compact = false, true })
		if got := at(r, nowMs+30*day); got != 0 {
			t.Errorf("start %d, want 0", got)
		}
	})
	t.Run("unlimited", func(t *testing.T) {
		r := fill(t)
		r.configure(func(s *metadata.TopicSettings) { s.RetentionMs = -1 })
		if got := at(r, nowMs+300*day); got != 0 {
			t.Errorf("start %d, want 0", got)
		}
	})
	t.Run("what is not stable stays", func(t *testing.T) {
		r := fill(t)
		r.store.Hold()
		a := r.send(kbatch.New(kbatch.KV("a", "b").At(5)))
		if got := at(r, nowMs+30*day); got > 4 {
			t.Errorf("start %d passed the high watermark", got)
		}
		r.store.Release()
		r.settle(a)
	})
}
