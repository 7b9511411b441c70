package wal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/wal"
)

const (
	cluster = "cluster-of-the-test"
	prefix  = cluster + "/1"
)

var (
	inc    = metadata.Incarnation{Broker: 3, Epoch: 17}
	sealer = metadata.Incarnation{Broker: 1, Epoch: 18}
)

// stored is a batch that a test appended.
type stored struct {
	stream commitlog.StreamID
	base   commitlog.Offset
	bytes  commitlog.Batch // as it must be found: base and epoch patched
	slot   *commitlog.Slot
	ref    wal.Ref
}

// rig runs a Writer on a memory store behind faults.
type rig struct {
	t      *testing.T
	mem    *mem.Bucket
	faults *fault.Bucket
	w      *wal.Writer
	ran    chan error
	next   map[commitlog.StreamID]commitlog.Offset
	mu     sync.Mutex
	order  []*wal.Slot // as OnDurable saw them
	fenced error
}

func newRig(t *testing.T, change func(*wal.Config)) *rig {
	t.Helper()
	store := mem.New()
	r := &rig{t: t, mem: store, faults: fault.New(store, 1), ran: make(chan error, 1), next: map[commitlog.StreamID]commitlog.Offset{}}
	cfg := wal.Config{
		Bucket: r.faults, Prefix: prefix, ClusterID: cluster, Generation: 1, Incarnation: inc,
		OnDurable: func(seq uint64, s *wal.Slot) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if s.Commit().Err() != nil || seq != s.Seq() {
				t.Errorf("OnDurable of slot %d, %d with %v", seq, s.Seq(), s.Commit().Err())
			}
			select {
			case <-s.Commit().Done():
				t.Errorf("slot %d has resolved before OnDurable", seq)
			default:
			}
			r.order = append(r.order, s)
		},
		OnFenced: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fenced != nil {
				t.Error("OnFenced called twice")
			}
			r.fenced = err
		},
	}
	if change != nil {
		change(&cfg)
	}
	w, err := wal.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.w = w
	go func() { r.ran <- w.Run(context.WithoutCancel(t.Context())) }()
	return r
}

// close ends the rig; what is outstanding must become durable.
func (r *rig) close() {
	r.t.Helper()
	if err := r.w.Close(context.WithoutCancel(r.t.Context())); err != nil && !errors.Is(err, commitlog.ErrFenced) {
		r.t.Errorf("close: %v", err)
	}
	r.faults.Clear()
	r.faults.Land()
}

func batch(bytes int, seed uint64) commitlog.Batch {
	return kbatch.Sized(1000+int64(seed), 1+int(seed%3), bytes, seed).Bytes()
}

// tryAppend appends a batch to a stream at epoch 5.
func (r *rig) tryAppend(stream commitlog.StreamID, b commitlog.Batch) (stored, error) {
	base := r.next[stream]
	ref, slot, err := r.w.Append(stream, 5, base, b)
	if err != nil {
		return stored{}, err
	}
	r.next[stream] = base + commitlog.Offset(b.LastOffsetDelta()) + 1
	own := append(commitlog.Batch(nil), b...)
	own.SetBase(base, 5)
	return stored{stream, base, own, slot, ref}, nil
}

func (r *rig) append(stream commitlog.StreamID, size int) stored {
	r.t.Helper()
	s, err := r.tryAppend(stream, batch(size, uint64(r.next[stream])))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// wait returns the outcome of a Commit; a virtual hour is for ever.
func wait(t *testing.T, s *commitlog.Slot) error {
	t.Helper()
	select {
	case <-s.Done():
		return s.Err()
	case <-time.After(time.Hour):
		t.Fatal("commit does not resolve")
		return nil
	}
}

func mustCommit(t *testing.T, list ...stored) {
	t.Helper()
	for _, s := range list {
		if err := wait(t, s.slot); err != nil {
			t.Fatalf("commit of stream %d offset %d: %v", s.stream, s.base, err)
		}
	}
}

func resolved(s *commitlog.Slot) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// object reads a slot object and checks everything in it.
func object(t *testing.T, b objstore.Bucket, seq uint64) (wal.Header, wal.Index, []wal.Index, []byte) {
	t.Helper()
	key := wal.SlotKey(prefix, inc, seq)
	info, err := b.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, info.Size)
	n, err := b.GetRange(t.Context(), key, 0, data)
	if err != nil {
		t.Fatal(err)
	}
	data = data[:n]
	h, own, repeated, err := wal.DecodeSlot(data, int64(n))
	if err != nil {
		t.Fatalf("slot %d: %v", seq, err)
	}
	if front, err := wal.DecodeHeader(data); err != nil || front != h {
		t.Fatalf("slot %d: header %+v, footer %+v, %v", seq, front, h, err)
	}
	if h.ClusterID != cluster || h.Generation != 1 || h.Incarnation != inc || h.Seq != seq || own.Seq != seq {
		t.Fatalf("slot %d: header %+v", seq, h)
	}
	return h, own, repeated, data
}

// find checks that exactly these batches are in slots [0, end) of the store, in
// order by stream, that chunks are sorted and their checksums right.
func find(t *testing.T, b objstore.Bucket, end uint64, want []stored) {
	t.Helper()
	got := map[commitlog.StreamID][]byte{}
	next := map[commitlog.StreamID]commitlog.Offset{}
	for seq := range end {
		_, own, _, data := object(t, b, seq)
		for i, c := range own.Chunks {
			if i > 0 && own.Chunks[i-1].Stream >= c.Stream {
				t.Errorf("slot %d: chunks are not sorted by stream", seq)
			}
			body := data[c.Pos : c.Pos+c.Len]
			if sum := objstore.BytesBody(body).CRC32C; sum != c.CRC32C {
				t.Errorf("slot %d stream %d: chunk checksum %08x, index %08x", seq, c.Stream, sum, c.CRC32C)
			}
			if c.Base != next[c.Stream] {
				t.Errorf("slot %d stream %d: chunk at offset %d, want %d", seq, c.Stream, c.Base, next[c.Stream])
			}
			next[c.Stream] = c.End
			got[c.Stream] = append(got[c.Stream], body...)
			checkDeltas(t, c, body)
		}
	}
	all := map[commitlog.StreamID][]byte{}
	for _, s := range want {
		all[s.stream] = append(all[s.stream], s.bytes...)
	}
	for stream, bytesWant := range all {
		if !bytes.Equal(got[stream], bytesWant) {
			t.Errorf("stream %d: %d bytes in the store, want %d, or they differ", stream, len(got[stream]), len(bytesWant))
		}
		delete(got, stream)
	}
	for stream := range got {
		t.Errorf("stream %d: nobody appended it", stream)
	}
}

// checkDeltas compares a chunk's deltas with what its batches say.
func checkDeltas(t *testing.T, c wal.Chunk, body []byte) {
	t.Helper()
	var infos []commitlog.BatchInfo
	for len(body) > 0 {
		b, rest, err := commitlog.SplitBatch(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		infos = append(infos, b.Info())
		body = rest
	}
	if want, got := fmt.Sprint(commitlog.KeepRelevant(infos)), fmt.Sprint(c.Batches); got != want {
		t.Errorf("stream %d: deltas %s, want %s", c.Stream, got, want)
	}
}
