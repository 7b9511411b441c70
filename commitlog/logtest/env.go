package logtest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// blink is how long a test waits for what must not happen.
const blink = 50 * time.Millisecond

// env is what the clauses share: one world, one log's name, a supply of
// different batches.
type env struct {
	testing.TB
	w    World
	id   commitlog.ID
	seed uint64
}

func newEnv(tb testing.TB, w World) *env {
	return &env{TB: tb, w: w, id: commitlog.ID{Topic: "orders", TopicID: [16]byte{1, 2, 3}, Partition: 3, Stream: 11}}
}

// ctx ends after the test's patience.
func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	e.Cleanup(cancel)
	return ctx
}

// open opens the log or ends the test.
func (e *env) open(epoch commitlog.Epoch) commitlog.Log {
	e.Helper()
	return e.openWith(epoch, commitlog.Options{})
}

func (e *env) openWith(epoch commitlog.Epoch, opts commitlog.Options) commitlog.Log {
	e.Helper()
	l, err := e.w.Open(e.ctx(), e.id, epoch, opts)
	if err != nil {
		e.Fatalf("open at epoch %d: %v", epoch, err)
	}
	return l
}

// reopen closes l and opens the log at the next epoch.
func (e *env) reopen(l commitlog.Log, epoch commitlog.Epoch) commitlog.Log {
	e.Helper()
	e.close(l)
	return e.open(epoch)
}

func (e *env) close(l commitlog.Log) {
	e.Helper()
	if err := l.Close(e.ctx()); err != nil {
		e.Fatalf("close: %v", err)
	}
}

// batch makes a batch of n records, different from every other one.
func (e *env) batch(n int) []byte {
	e.seed++
	return kbatch.Sized(int64(1000+e.seed), n, 80+40*n, e.seed).Bytes()
}

// append appends or ends the test.
func (e *env) append(l commitlog.Log, b []byte) commitlog.Commit {
	e.Helper()
	c, err := l.Append(b)
	if err != nil {
		e.Fatalf("append: %v", err)
	}
	return c
}

// appendWait appends batches and waits until all are durable.
func (e *env) appendWait(l commitlog.Log, batches ...[]byte) {
	e.Helper()
	var commits []commitlog.Commit
	for _, b := range batches {
		commits = append(commits, e.append(l, b))
	}
	l.Seal()
	for _, c := range commits {
		e.succeeds(c)
	}
}

// batches makes n batches of one to three records.
func (e *env) batches(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = e.batch(1 + i%3)
	}
	return out
}

// succeeds waits for a Commit and wants success.
func (e *env) succeeds(c commitlog.Commit) {
	e.Helper()
	if err := c.Wait(e.ctx()); err != nil {
		e.Fatalf("commit %d-%d: %v", c.Base, c.Last, err)
	}
}

// outcome waits for a Commit and returns how it ended.
func (e *env) outcome(c commitlog.Commit) error {
	e.Helper()
	select {
	case <-c.Done():
		return c.Err()
	case <-e.ctx().Done():
		e.Fatalf("commit %d-%d never resolved", c.Base, c.Last)
		return nil
	}
}

// read returns copies of the batches that one Read gives.
func (e *env) read(l commitlog.Log, from commitlog.Offset, opts commitlog.ReadOptions) []commitlog.Batch {
	e.Helper()
	out, err := readOnce(e.ctx(), l, from, opts)
	if err != nil {
		e.Fatalf("read at %d: %v", from, err)
	}
	return out
}

// readParts reads what opts allow, going on where a read ended before its limits.
func (e *env) readParts(l commitlog.Log, from commitlog.Offset, opts commitlog.ReadOptions) (out []commitlog.Batch) {
	e.Helper()
	for {
		part := e.read(l, from, opts)
		out = append(out, part...)
		for _, b := range part {
			opts.MaxBytes -= len(b)
			from = b.LastOffset() + 1
		}
		opts.MinOne = false
		if len(part) == 0 || opts.MaxBytes <= 0 {
			return out
		}
	}
}

func readOnce(ctx context.Context, l commitlog.Log, from commitlog.Offset, opts commitlog.ReadOptions) ([]commitlog.Batch, error) {
	rec, err := l.Read(ctx, from, opts)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	n := 0
	var out []commitlog.Batch
	for _, buf := range rec.Bufs {
		n += len(buf)
		for len(buf) > 0 {
			b, rest, err := commitlog.SplitBatch(buf)
			if err != nil {
				return nil, fmt.Errorf("what was read is not whole batches: %w", err)
			}
			if err := b.CheckCRC(); err != nil {
				return nil, fmt.Errorf("what was read is damaged: %w", err)
			}
			out, buf = append(out, bytes.Clone(b)), rest
		}
	}
	if n != rec.Bytes {
		return nil, fmt.Errorf("records say %d bytes and have %d", rec.Bytes, n)
	}
	return out, nil
}

// readAll reads from an offset to Stable in steps of maxBytes.
func readAll(ctx context.Context, l commitlog.Log, from commitlog.Offset, maxBytes int) ([]commitlog.Batch, error) {
	var out []commitlog.Batch
	for stable := l.Bounds().Stable; from < stable; {
		part, err := readOnce(ctx, l, from, commitlog.ReadOptions{MaxBytes: maxBytes, MinOne: true})
		if err != nil {
			return nil, err
		}
		if len(part) == 0 {
			return nil, fmt.Errorf("read at %d is empty below stable %d", from, stable)
		}
		for _, b := range part {
			if b.LastOffset() < from {
				return nil, fmt.Errorf("read at %d returns batch %d-%d", from, b.BaseOffset(), b.LastOffset())
			}
			if len(out) > 0 && b.BaseOffset() != out[len(out)-1].LastOffset()+1 {
				return nil, fmt.Errorf("batch at %d follows one that ends at %d", b.BaseOffset(), out[len(out)-1].LastOffset())
			}
			out = append(out, b)
			from = b.LastOffset() + 1
		}
	}
	return out, nil
}

// holds wants the log to hold exactly these batches from base on, at the
// epoch given for each (or any epoch if epochs is nil).
func (e *env) holds(l commitlog.Log, base commitlog.Offset, want [][]byte) {
	e.Helper()
	got, err := readAll(e.ctx(), l, base, 1<<20)
	if err != nil {
		e.Fatal(err)
	}
	if len(got) != len(want) {
		e.Fatalf("log holds %d batches from %d on, want %d", len(got), base, len(want))
	}
	for i, b := range got {
		if i == 0 && b.BaseOffset() != base {
			e.Errorf("first batch is at %d, want %d", b.BaseOffset(), base)
		}
		if !sameBut(b, want[i]) {
			e.Errorf("batch %d at offset %d differs from what was appended", i, b.BaseOffset())
		}
	}
}

// sameBut compares all of two batches but base offset and leader epoch.
func sameBut(a, b []byte) bool {
	return len(a) == len(b) && bytes.Equal(a[8:12], b[8:12]) && bytes.Equal(a[16:], b[16:])
}

// bounds checks what always holds and returns them.
func (e *env) bounds(l commitlog.Log) commitlog.Bounds {
	e.Helper()
	b := l.Bounds()
	if b.Start < 0 || b.Start > b.Stable || b.Stable > b.End {
		e.Errorf("bounds are %+v", b)
	}
	return b
}

// does runs f and ends the test if it takes longer than patience.
func (e *env) does(what string, f func()) {
	e.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-e.ctx().Done():
		e.Fatalf("%s never returned", what)
	}
}

// stays says whether c is still unresolved after a blink.
func stays(c commitlog.Commit) bool {
	t := time.NewTimer(blink)
	defer t.Stop()
	select {
	case <-c.Done():
		return false
	case <-t.C:
		return true
	}
}
