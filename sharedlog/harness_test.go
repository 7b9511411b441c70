package sharedlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
)

// fixture is a test cluster on one bucket, with what tests do to it.
type fixture struct {
	testing.TB
	c    *sharedlogtest.Cluster
	raw  objstore.Bucket
	b    *fault.Bucket
	seed uint64
}

func newFixture(tb testing.TB) *fixture {
	raw := mem.New()
	return &fixture{TB: tb, c: sharedlogtest.New(), raw: raw, b: fault.New(raw, 1)}
}

// patience is how long a test waits for what must come on any machine.
const patience = 2 * time.Minute

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.Cleanup(cancel)
	return ctx
}

func (f *fixture) start(broker metadata.BrokerID, tune func(*sharedlog.Config)) *sharedlogtest.Node {
	f.Helper()
	return sharedlogtest.Start(f, f.c, f.b, broker, tune)
}

// topic makes a topic of n partitions owned by node.
func (f *fixture) topic(n int, node *sharedlogtest.Node) []metadata.Partition {
	f.seed++
	return f.c.CreateTopic(fmt.Sprintf("t%d", f.seed), n, node.Incarnation)
}

// open opens the log of a partition at the epoch that the image says.
func (f *fixture) open(n *sharedlogtest.Node, p metadata.Partition) commitlog.Log {
	f.Helper()
	now, ok := f.c.Image().PartitionByStream(p.Stream)
	if !ok {
		f.Fatalf("stream %d is gone", p.Stream)
	}
	l, err := n.Open(f.ctx(), p.ID(), now.Epoch, commitlog.Options{Checkpoints: remembers{}})
	if err != nil {
		f.Fatalf("open %s: %v", p.ID(), err)
	}
	return l
}

// batch is a batch of n records in about bytes bytes.
func (f *fixture) batch(n, bytes int) []byte {
	f.seed++
	return kbatch.Sized(int64(1000+f.seed), n, bytes, f.seed).Bytes()
}

// fill appends batches and waits until they are durable.
func (f *fixture) fill(l commitlog.Log, batches, bytes int) [][]byte {
	f.Helper()
	var out [][]byte
	var last commitlog.Commit
	for range batches {
		b := f.batch(2, bytes)
		out = append(out, b)
		last = f.append(l, b)
	}
	l.Seal()
	if err := last.Wait(f.ctx()); err != nil {
		f.Fatalf("append: %v", err)
	}
	return out
}

func (f *fixture) append(l commitlog.Log, b []byte) commitlog.Commit {
	f.Helper()
	for {
		c, err := l.Append(b)
		if err == nil {
			return c
		}
		if !isRetriable(err) || f.ctx().Err() != nil {
			f.Fatalf("append: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// all reads everything from an offset on.
func (f *fixture) all(l commitlog.Log, from commitlog.Offset) []commitlog.Batch {
	f.Helper()
	var out []commitlog.Batch
	for end := l.Bounds().Stable; from < end; {
		r, err := l.Read(f.ctx(), from, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
		if err != nil {
			f.Fatalf("read at %d: %v", from, err)
		}
		if r.Bytes == 0 {
			f.Fatalf("read at %d of %d is empty", from, end)
		}
		for _, p := range r.Bufs {
			for len(p) > 0 {
				b, rest, err := commitlog.SplitBatch(p)
				if err != nil {
					f.Fatal(err)
				}
				out = append(out, bytes.Clone(b))
				from = b.LastOffset() + 1
				p = rest
			}
		}
		r.Release()
	}
	return out
}

// count is how many batches were read, and the last offset of them.
func (f *fixture) count(r commitlog.Records) (last commitlog.Offset, batches int) {
	f.Helper()
	for _, p := range r.Bufs {
		for len(p) > 0 {
			b, rest, err := commitlog.SplitBatch(p)
			if err != nil {
				f.Fatal(err)
			}
			last, p = b.LastOffset(), rest
			batches++
		}
	}
	return last, batches
}

// holds wants exactly the appended batches from their first offset on, patched.
func (f *fixture) holds(l commitlog.Log, want [][]byte) {
	f.Helper()
	got := f.all(l, 0)
	if len(got) != len(want) {
		f.Fatalf("log has %d batches, want %d", len(got), len(want))
	}
	next := commitlog.Offset(0)
	for i, b := range got {
		w := bytes.Clone(want[i])
		commitlog.Batch(w).SetBase(next, b.LeaderEpoch())
		if !bytes.Equal(b, w) {
			f.Fatalf("batch %d at offset %d is not what was appended", i, next)
		}
		next = b.LastOffset() + 1
	}
}

// packed waits until the whole log is committed.
func (f *fixture) packed(p metadata.Partition, l commitlog.Log) {
	f.Helper()
	f.until("everything is packed", func() bool {
		now, _ := f.c.Image().PartitionByStream(p.Stream)
		return now.End == l.Bounds().Stable
	})
}

// until waits for a condition.
func (f *fixture) until(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("never: %s", what)
		}
	}
}

// keys lists the objects of a class.
func (f *fixture) keys(class string) []string {
	f.Helper()
	var out []string
	if err := f.raw.List(f.ctx(), "AAAAAAAAAAAAAAAAAAAAAA/1/"+class+"/", "", func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	return out
}

// remembers is a Checkpointer whose checkpoint lists the batches that matter.
type remembers struct{}

func (remembers) Fold(checkpoint []byte, batches []commitlog.BatchInfo) ([]byte, error) {
	var all []commitlog.BatchInfo
	if len(checkpoint) > 0 {
		if err := json.Unmarshal(checkpoint, &all); err != nil {
			return nil, err
		}
	}
	return json.Marshal(commitlog.KeepRelevant(append(all, batches...)))
}

// state is what a log recovered, folded.
func (f *fixture) state(l commitlog.Log) string {
	f.Helper()
	r, err := l.Recovered(f.ctx())
	if err != nil {
		f.Fatal(err)
	}
	s, err := remembers{}.Fold(r.Checkpoint, r.Batches)
	if err != nil {
		f.Fatal(err)
	}
	return string(s)
}

// replayed is the state that reading every batch gives.
func (f *fixture) replayed(l commitlog.Log) string {
	f.Helper()
	var infos []commitlog.BatchInfo
	for _, b := range f.all(l, l.Bounds().Start) {
		infos = append(infos, b.Info())
	}
	s, err := remembers{}.Fold(nil, infos)
	if err != nil {
		f.Fatal(err)
	}
	return string(s)
}
