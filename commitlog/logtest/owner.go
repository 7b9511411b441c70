package logtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"ponor/commitlog"
)

func ownerClauses() []Clause {
	return []Clause{
		{Name: "C4 a failed commit is unknown and no hole", Needs: []string{"Failer"}, Test: failedCommitIsUnknown},
		{Name: "C5 an older owner cannot append", Test: olderOwnerCannotAppend},
		{Name: "C5 an older owner's pending commit succeeds only if it was taken over", Needs: []string{"Holder"}, Test: pendingCommitOfOlderOwner},
		{Name: "C5 open below the newest epoch is fenced", Test: openBelowIsFenced},
		{Name: "C6 what was durable survives close", Test: durableSurvivesClose},
		{Name: "C6 what was durable survives a takeover", Test: durableSurvivesTakeover},
		{Name: "C6 what was durable survives a crash", Needs: []string{"Holder", "Crasher"}, Test: durableSurvivesCrash},
		{Name: "C13 a closed log says so", Test: closedLogSaysSo},
		{Name: "C13 close resolves what is outstanding", Test: closeResolves},
		{Name: "C13 close gives up when its context ends", Needs: []string{"Holder"}, Test: closeGivesUp},
		{Name: "C13 a log that was taken says so", Test: takenLogSaysSo},
	}
}

// prefix wants the log to hold a prefix of all, at least the first n, and
// returns how many.
func (e *env) prefix(l commitlog.Log, all [][]byte, n int) int {
	e.Helper()
	got, err := readAll(e.ctx(), l, 0, 1<<20)
	if err != nil {
		e.Fatal(err)
	}
	if len(got) < n || len(got) > len(all) {
		e.Fatalf("log holds %d batches; %d were acknowledged, %d appended", len(got), n, len(all))
	}
	for i, b := range got {
		if !sameBut(b, all[i]) {
			e.Fatalf("batch %d differs from what was appended", i)
		}
	}
	if b := e.bounds(l); b.Stable != b.End || (len(got) > 0 && got[len(got)-1].LastOffset()+1 != b.End) {
		e.Errorf("a log just opened has bounds %+v and %d batches", b, len(got))
	}
	return len(got)
}

func failedCommitIsUnknown(tb testing.TB, w World) {
	e := newEnv(tb, w)
	f := w.(Failer)
	l := e.open(0)
	all := e.batches(4)
	e.appendWait(l, all...)
	f.Fail(errors.New("the medium is on fire"))
	var commits []commitlog.Commit
	for range 3 {
		b := e.batch(2)
		c, err := l.Append(b)
		if err != nil {
			break
		}
		commits, all = append(commits, c), append(all, b)
		l.Seal()
	}
	for _, c := range commits {
		if err := e.outcome(c); err == nil {
			e.Error("a commit succeeded although its write failed")
		}
	}
	f.Fail(nil)
	l = e.open(1)
	n := e.prefix(l, all, 4)
	all = all[:n]
	// Nothing of the failed ones may come back under the new owner.
	more := e.batches(3)
	e.appendWait(l, more...)
	e.holds(l, 0, append(all, more...))
	l = e.reopen(l, 2)
	e.holds(l, 0, append(all, more...))
	e.close(l)
}

func olderOwnerCannotAppend(tb testing.TB, w World) {
	e := newEnv(tb, w)
	a := e.open(3)
	all := e.batches(3)
	e.appendWait(a, all...)
	b := e.open(4)
	if c, err := a.Append(e.batch(1)); err == nil {
		a.Seal()
		if err := e.outcome(c); err == nil {
			e.Error("an older owner's append succeeded after a newer one opened the log")
		}
	}
	more := e.batches(2)
	e.appendWait(b, more...)
	e.holds(b, 0, append(all, more...))
	_ = a.Close(e.ctx())
	e.appendWait(b, e.batch(1)) // the old owner's Close takes nothing away
	e.close(b)
}

func pendingCommitOfOlderOwner(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h := w.(Holder)
	a := e.open(0)
	all := e.batches(3)
	e.appendWait(a, all...)
	h.Hold()
	defer h.Release()
	var commits []commitlog.Commit
	for _, b := range e.batches(4) {
		commits, all = append(commits, e.append(a, b)), append(all, b)
	}
	a.Seal()
	var b commitlog.Log
	var openErr error
	opened := make(chan struct{})
	ctx := e.ctx()
	go func() {
		defer close(opened)
		b, openErr = w.Open(ctx, e.id, 1, commitlog.Options{})
	}()
	// Open may have to wait for the medium; a shared one need not.
	select {
	case <-opened:
	case <-time.After(blink):
		h.Release()
		<-opened
	}
	if openErr != nil {
		e.Fatalf("open over an older owner: %v", openErr)
	}
	found := e.bounds(b).End
	h.Release()
	for _, c := range commits {
		if err := e.outcome(c); err == nil && c.Last >= found {
			e.Errorf("commit %d-%d of the older owner succeeded; the new owner's log ended at %d", c.Base, c.Last, found)
		}
	}
	all = all[:e.prefix(b, all, 3)]
	more := e.batches(2)
	e.appendWait(b, more...)
	e.holds(b, 0, append(all, more...))
	_ = a.Close(e.ctx())
	e.close(b)
}

func openBelowIsFenced(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(5)
	e.appendWait(l, e.batch(1))
	if _, err := w.Open(e.ctx(), e.id, 4, commitlog.Options{}); !errors.Is(err, commitlog.ErrFenced) {
		e.Errorf("open at epoch 4 after 5 gives %v, want ErrFenced", err)
	}
	e.appendWait(l, e.batch(1)) // and it took nothing away
	e.close(l)
	if _, err := w.Open(e.ctx(), e.id, 4, commitlog.Options{}); !errors.Is(err, commitlog.ErrFenced) {
		e.Errorf("open at epoch 4 after 5 was closed gives %v, want ErrFenced", err)
	}
}

func durableSurvivesClose(tb testing.TB, w World) {
	e := newEnv(tb, w)
	var all [][]byte
	for epoch := range commitlog.Epoch(4) {
		l := e.open(epoch)
		if n := e.prefix(l, all, len(all)); n != len(all) {
			e.Fatalf("epoch %d finds %d batches, want %d", epoch, n, len(all))
		}
		more := e.batches(3)
		e.appendWait(l, more...)
		all = append(all, more...)
		e.holds(l, 0, all)
		e.close(l)
	}
}

func durableSurvivesTakeover(tb testing.TB, w World) {
	e := newEnv(tb, w)
	var all [][]byte
	var old commitlog.Log
	for epoch := range commitlog.Epoch(4) {
		l := e.open(epoch)
		e.prefix(l, all, len(all))
		more := e.batches(3)
		e.appendWait(l, more...)
		all = append(all, more...)
		if old != nil {
			_ = old.Close(e.ctx())
		}
		old = l
	}
	e.holds(old, 0, all)
	e.close(old)
}

func durableSurvivesCrash(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h, c := w.(Holder), w.(Crasher)
	var all [][]byte
	for epoch := range commitlog.Epoch(3) {
		l := e.open(epoch)
		all = all[:e.prefix(l, all, len(all))]
		more := e.batches(3)
		e.appendWait(l, more...)
		all = append(all, more...)
		h.Hold()
		var commits []commitlog.Commit
		sent := e.batches(4)
		for _, b := range sent {
			commits = append(commits, e.append(l, b))
			l.Seal()
		}
		stays(commits[3])
		// Whatever says durable before the crash has to be there after it.
		acked := 0
		for i, cm := range commits {
			if cm.Resolved() && cm.Err() == nil {
				acked = i + 1
			}
		}
		c.Crash()
		h.Release()
		n := len(all) + acked
		l = e.open(epoch)
		all = append(all, sent...)
		all = all[:e.prefix(l, all, n)]
		e.close(l)
	}
}

func closedLogSaysSo(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	e.appendWait(l, e.batch(1))
	e.close(l)
	if _, err := l.Append(e.batch(1)); !errors.Is(err, commitlog.ErrClosed) {
		e.Errorf("append after close gives %v, want ErrClosed", err)
	}
	if _, err := l.Read(e.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20}); !errors.Is(err, commitlog.ErrClosed) {
		e.Errorf("read after close gives %v, want ErrClosed", err)
	}
	if err := l.Trim(e.ctx(), 1); !errors.Is(err, commitlog.ErrClosed) {
		e.Errorf("trim after close gives %v, want ErrClosed", err)
	}
	l.Seal() // does nothing, and no harm
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("second close gives %v", err)
	}
}

func closeResolves(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	var commits []commitlog.Commit
	all := e.batches(5)
	for _, b := range all {
		commits = append(commits, e.append(l, b))
	}
	e.close(l)
	for _, c := range commits {
		if !c.Resolved() {
			e.Fatalf("commit %d is unresolved after close", c.Base)
		}
		if err := c.Err(); err != nil {
			e.Errorf("commit %d failed in an orderly close: %v", c.Base, err)
		}
	}
	l = e.open(1)
	e.holds(l, 0, all)
	e.close(l)
}

func closeGivesUp(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h := w.(Holder)
	l := e.open(0)
	h.Hold()
	defer h.Release()
	c := e.append(l, e.batch(1))
	ctx, cancel := context.WithTimeout(e.Context(), blink)
	defer cancel()
	e.does("close of a log whose medium is held", func() {
		if err := l.Close(ctx); err == nil {
			e.Error("close had to give up and says nothing")
		}
	})
	if err := e.outcome(c); err == nil {
		e.Error("a commit succeeded although nothing could become durable")
	}
	h.Release()
	if _, err := l.Append(e.batch(1)); err == nil {
		e.Error("append was accepted after close")
	}
}

func takenLogSaysSo(tb testing.TB, w World) {
	e := newEnv(tb, w)
	a := e.open(0)
	e.appendWait(a, e.batch(1))
	b := e.open(1)
	// The old owner may learn of it only by an append that fails.
	if c, err := a.Append(e.batch(1)); err == nil {
		a.Seal()
		if e.outcome(c) == nil {
			e.Error("an older owner's append succeeded")
		}
	}
	if _, err := a.Append(e.batch(1)); !errors.Is(err, commitlog.ErrFenced) {
		e.Errorf("append by an older owner gives %v, want ErrFenced", err)
	}
	if _, err := a.Read(e.ctx(), 0, commitlog.ReadOptions{MaxBytes: 1 << 20}); !errors.Is(err, commitlog.ErrFenced) {
		e.Errorf("read by an older owner gives %v, want ErrFenced", err)
	}
	_ = a.Close(e.ctx())
	e.close(b)
}
