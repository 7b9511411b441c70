package commitlog_test

import (
	"context"
	"errors"
	"testing"

	"ponor/commitlog"
)

func TestCommitResolvesWithItsSlot(t *testing.T) {
	slot := commitlog.NewSlot()
	c := commitlog.NewCommit(5, 7, slot)
	if c.Resolved() || c.Err() != nil {
		t.Error("resolved before its slot")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait under a cancelled context gives %v", err)
	}
	slot.Resolve(nil)
	if err := c.Wait(t.Context()); err != nil || !c.Resolved() {
		t.Errorf("after its slot: %v, %v", err, c.Resolved())
	}
	failed := commitlog.NewSlot()
	failed.Resolve(commitlog.ErrFenced)
	if err := commitlog.NewCommit(8, 8, failed).Wait(t.Context()); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("a failed slot gives %v", err)
	}
}

func TestCommitZeroValueIsResolved(t *testing.T) {
	var c commitlog.Commit
	if !c.Resolved() || c.Err() != nil || c.Wait(t.Context()) != nil {
		t.Error("the zero Commit waits or fails")
	}
}

func TestRecordsReleaseOnce(t *testing.T) {
	n := 0
	r := commitlog.NewRecords([][]byte{{1, 2}, {3}}, func() { n++ })
	if r.Bytes != 3 {
		t.Errorf("%d bytes", r.Bytes)
	}
	r.Release()
	r.Release()
	if n != 1 || r.Bufs != nil {
		t.Errorf("released %d times", n)
	}
	var zero commitlog.Records
	zero.Release()
}
