package s3test_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/internal/s3test"
	"ponor/metadata"
	"ponor/sharedlog/objstore/s3"
	"ponor/sharedlog/wal"
)

const clusterID = "cluster-of-the-test"

var incarnation = metadata.Incarnation{Broker: 3, Epoch: 17}

func walConfig(tb testing.TB, server *s3test.Server) wal.Config {
	return wal.Config{
		Bucket: store(tb, server.Store("x"), s3.Options{Timeout: 300 * time.Millisecond}),
		Prefix: clusterID + "/1", ClusterID: clusterID, Generation: 1, Incarnation: incarnation,
		MaxObject: 20_000, PutsPerSecond: 1000, PutBurst: 1000,
	}
}

// A WAL under every fault that leaves a put's outcome open: all that was
// appended becomes durable, in order, and an own attempt whose answer was lost
// is never taken for a fence.
func TestWALSurvivesFaults(t *testing.T) {
	for name, fault := range map[string]s3test.Fault{
		"503":                   {Status: 503, Code: "SlowDown", Every: 2},
		"reset before":          {Reset: true, Every: 2},
		"reset after":           {ResetAfter: true, Every: 2},
		"error after":           {StatusAfter: 500, Every: 2},
		"answer lost":           {SilentAfter: true, Every: 4},
		"conflict":              {Status: 409, Code: "ConditionalRequestConflict", Every: 2},
		"conflicts for a while": {Status: 409, Code: "ConditionalRequestConflict", Times: 12},
		"slow":                  {Delay: 100 * time.Millisecond, Every: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting for the next attempt
			server := s3test.Start(t)
			fault.Method = "PUT"
			server.Add(fault)
			server.Add(s3test.Fault{Method: "GET", Every: 2, Status: 503, Code: "SlowDown"})
			cfg := walConfig(t, server)
			w, err := wal.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- w.Run(context.WithoutCancel(t.Context())) }()
			slots := map[*commitlog.Slot]bool{}
			var appended []commitlog.Batch
			base := commitlog.Offset(0)
			for i := range 60 {
				b := commitlog.Batch(kbatch.Sized(int64(i), 1, 5000, uint64(i)).Bytes())
				_, slot, err := w.Append(1, 5, base, b)
				for errors.Is(err, commitlog.ErrUnavailable) || errors.Is(err, commitlog.ErrBackpressure) {
					time.Sleep(time.Millisecond)
					_, slot, err = w.Append(1, 5, base, b)
				}
				if err != nil {
					t.Fatalf("append %d: %v", i, err)
				}
				own := bytes.Clone(b)
				commitlog.Batch(own).SetBase(base, 5)
				appended = append(appended, own)
				base += commitlog.Offset(b.LastOffsetDelta()) + 1
				slots[slot] = true
			}
			for s := range slots {
				if <-s.Done(); s.Err() != nil {
					t.Errorf("a slot failed: %v", s.Err())
				}
			}
			if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Fatalf("close: %v", err)
			}
			if err := <-ran; err != nil {
				t.Errorf("run: %v", err)
			}
			findAll(t, cfg, w.Durable(), appended)
			t.Logf("%d slots, requests %v", w.Durable(), server.Counts())
		})
	}
}

// findAll reads the batches of stream 1 back from the slots below end.
func findAll(t *testing.T, cfg wal.Config, end uint64, want []commitlog.Batch) {
	t.Helper()
	for seq := range end {
		_, index, err := wal.ReadIndex(t.Context(), cfg.Bucket, cfg.Prefix, cfg.Incarnation, seq)
		if err != nil {
			t.Fatalf("slot %d: %v", seq, err)
		}
		for _, c := range index.Chunks {
			body := make([]byte, c.Len)
			if n, err := cfg.Bucket.GetRange(t.Context(), wal.SlotKey(cfg.Prefix, cfg.Incarnation, seq), c.Pos, body); err != nil || n != len(body) {
				t.Fatalf("slot %d: %d bytes, %v", seq, n, err)
			}
			for len(body) > 0 {
				b, rest, err := commitlog.SplitBatch(body)
				if err != nil || len(want) == 0 || !bytes.Equal(b, want[0]) {
					t.Fatalf("slot %d: not the batch that comes next (%v), %d still to come", seq, err, len(want))
				}
				want, body = want[1:], rest
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("%d batches are lost", len(want))
	}
}

// The sealer's fence, put while the writer's answers get lost, ends the writer;
// everything that was acknowledged is below it.
func TestWALMeetsAFence(t *testing.T) {
	server := s3test.Start(t)
	server.Add(s3test.Fault{Method: "PUT", Every: 3, ResetAfter: true})
	cfg := walConfig(t, server)
	w, err := wal.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.WithoutCancel(t.Context())) }()
	acked := make(chan uint64, 1)
	go func() {
		var n uint64
		defer func() { acked <- n }()
		for i := range commitlog.Offset(100_000) {
			_, slot, err := w.Append(1, 5, i, kbatch.Sized(int64(i), 1, 5000, uint64(i)).Bytes())
			for errors.Is(err, commitlog.ErrUnavailable) || errors.Is(err, commitlog.ErrBackpressure) {
				_, slot, err = w.Append(1, 5, i, kbatch.Sized(int64(i), 1, 5000, uint64(i)).Bytes())
			}
			if err != nil {
				return
			}
			w.Seal()
			if <-slot.Done(); slot.Err() != nil {
				return
			}
			n++
		}
	}()
	for w.Durable() < 10 {
		time.Sleep(time.Millisecond)
	}
	sealed, err := wal.Seal(t.Context(), wal.SealConfig{
		Bucket: cfg.Bucket, Prefix: cfg.Prefix, ClusterID: clusterID, Generation: 1, Incarnation: incarnation,
		By: metadata.Incarnation{Broker: 1, Epoch: 18},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ran; !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("writer ended with %v, want ErrFenced", err)
	}
	if n := <-acked; n > sealed.End {
		t.Errorf("%d slots were acknowledged, sealed at %d", n, sealed.End)
	}
	_ = w.Close(context.WithoutCancel(t.Context()))
	t.Logf("sealed at %d, requests %v", sealed.End, server.Counts())
}
