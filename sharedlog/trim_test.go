package sharedlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/sharedlogtest"
)

// A trim whose caller has gone away may still apply. From then on the log
// starts where the metadata says: its records are deleted, not corrupt.
func TestAbandonedTrimMovesTheStart(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	for range 3 {
		f.fill(l, 2, 100)
		f.packed(p, l)
	}
	ctx, cancel := context.WithCancel(f.ctx())
	var late *metadatapb.Command
	f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
		if cmd.GetTrimStreams() == nil {
			return sharedlogtest.Applied
		}
		late = cmd
		cancel()
		return sharedlogtest.Dropped // so far
	}
	if err := l.Trim(ctx, 9); err == nil || late == nil {
		t.Fatalf("trim: %v, command %v", err, late)
	}
	if got := l.Bounds().Start; got != 0 {
		t.Fatalf("the log starts at %d before the trim applies", got)
	}
	f.all(l, 0)
	if res := f.c.Submit(late); res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := l.Bounds().Start; got != 9 {
		t.Errorf("the log starts at %d, in the metadata at 9", got)
	}
	f.deleted(l, 0)
	f.deleted(l, 8)
	f.all(l, 9)
}

// A read that meets a start which moved meanwhile says that its records were
// deleted.
func TestReadOfWhatIsTrimmedMeanwhile(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { c.PackAge = time.Millisecond })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	for range 3 {
		f.fill(l, 2, 100)
		f.packed(p, l)
	}
	m := f.start(2, nil) // has nothing in memory
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	l = f.open(m, p)
	p, _ = f.c.Image().PartitionByStream(p.Stream)
	// The log does not know of this command, as a read does not that looked at
	// the start before.
	f.c.Must(&metadatapb.Command{From: m.Incarnation.Proto(), CmdSeq: 1 << 40, Body: &metadatapb.Command_TrimStreams{TrimStreams: &metadatapb.TrimStreams{
		Streams: []*metadatapb.StreamStart{{Stream: uint64(p.Stream), Epoch: int32(p.Epoch), Start: 9}},
	}}})
	f.deleted(l, 0)
}

// deleted wants an offset to be out of range.
func (f *fixture) deleted(l commitlog.Log, at commitlog.Offset) {
	f.Helper()
	if _, err := l.Read(f.ctx(), at, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true}); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		f.Errorf("read at %d: %v, want ErrOffsetOutOfRange", at, err)
	}
}
