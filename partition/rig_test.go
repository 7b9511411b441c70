package partition_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/partition"
)

// rig is one partition over a medium in memory that outlives its owners.
type rig struct {
	t     testing.TB
	store *memlog.Store
	set   metadata.TopicSettings // behind mu: logs ask from their goroutines
	mu    sync.Mutex
	host  *partition.Host
	epoch commitlog.Epoch
	p     *partition.Partition
}

var rigID = commitlog.ID{Topic: "t", TopicID: metadata.TopicID{1}, Stream: 1}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, store: memlog.New(memlog.Config{}), set: defaults()}
	r.open()
	return r
}

// open makes the next owner, at the next epoch.
func (r *rig) open() *partition.Partition {
	r.t.Helper()
	r.epoch++
	p, err := partition.Open(r.t.Context(), partition.Config{ID: rigID, Epoch: r.epoch, Store: r.store, Host: r.host,
		Settings: r.settings})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.store.Release() // or a test that failed would wait for ever
		_ = p.Close(context.Background())
	})
	r.p = p
	return p
}

func (r *rig) settings() metadata.TopicSettings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set
}

// configure changes the topic's settings while everything runs.
func (r *rig) configure(change func(*metadata.TopicSettings)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.set)
}

// send appends and expects it to be taken.
func (r *rig) send(b kbatch.Batch) partition.Appended {
	r.t.Helper()
	a, err := r.p.Append(b.Bytes(), clientAt(nowMs))
	if err != nil {
		r.t.Fatalf("append %v: %v", b, err)
	}
	return a
}

// sent appends and waits until it is durable.
func (r *rig) sent(b kbatch.Batch) partition.Appended {
	r.t.Helper()
	a := r.send(b)
	r.settle(a)
	return a
}

func (r *rig) settle(a partition.Appended) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := a.Commit.Wait(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// refuse appends and expects an error.
func (r *rig) refuse(b kbatch.Batch, want error) {
	r.t.Helper()
	if a, err := r.p.Append(b.Bytes(), clientAt(nowMs)); !errors.Is(err, want) {
		r.t.Fatalf("append %v: got %+v, %v, want %v", b, a, err, want)
	}
}

// mark ends a transaction and waits until that is durable.
func (r *rig) mark(id int64, commit bool) partition.Appended {
	r.t.Helper()
	a, err := r.p.AppendMarker(partition.Marker{ProducerID: id, Commit: commit, Time: nowMs})
	if err != nil {
		r.t.Fatal(err)
	}
	r.settle(a)
	return a
}

// read returns what one Read found, as text: "base-last base-last".
func (r *rig) read(from commitlog.Offset, isolation partition.Isolation) string {
	r.t.Helper()
	got, err := r.p.Read(r.t.Context(), from, partition.ReadOptions{MaxBytes: 1 << 20, Isolation: isolation})
	if err != nil {
		r.t.Fatalf("read %d: %v", from, err)
	}
	defer got.Records.Release()
	text := ""
	for _, buf := range got.Records.Bufs {
		for len(buf) > 0 {
			b, rest, err := commitlog.SplitBatch(buf)
			if err != nil {
				r.t.Fatal(err)
			}
			text += fmt.Sprintf("%d-%d ", b.BaseOffset(), b.LastOffset())
			buf = rest
		}
	}
	return text
}

// batch of n records of one producer, epoch 0.
func batch(id int64, seq int32, n int) kbatch.Batch {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(id, seq, i)
	}
	return kbatch.Values(nowMs, values...).Idempotent(id, 0, seq)
}

func plain(n int) kbatch.Batch { return batch(-1, -1, n).Idempotent(-1, -1, -1) }
