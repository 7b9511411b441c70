package logtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"ponor/commitlog"
)

func appendClauses() []Clause {
	return []Clause{
		{Name: "C1 offsets are dense in call order", Test: offsetsAreDense},
		{Name: "C1 what is no batch is refused and moves nothing", Test: noBatchIsRefused},
		{Name: "C2 append does not wait and its commit does", Needs: []string{"Holder"}, Test: appendDoesNotWait},
		{Name: "C2 a commit resolves", Test: commitResolves},
		{Name: "C3 commits resolve in order", Needs: []string{"Holder"}, Test: commitsResolveInOrder},
		{Name: "C3 after a failed commit nothing succeeds", Needs: []string{"Failer"}, Test: nothingSucceedsAfterFailure},
		{Name: "C9 only base offset and epoch are patched", Test: onlyBaseAndEpochPatched},
		{Name: "C12 append copies", Test: appendCopies},
	}
}

func offsetsAreDense(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(5)
	if b := e.bounds(l); b != (commitlog.Bounds{}) {
		e.Fatalf("a new log has bounds %+v", b)
	}
	var end commitlog.Offset
	var commits []commitlog.Commit
	var all [][]byte
	for _, n := range []int{1, 3, 2, 1, 7} {
		b := e.batch(n)
		c := e.append(l, b)
		if c.Base != end || c.Last != end+commitlog.Offset(n)-1 {
			e.Errorf("batch of %d appended at end %d is %d-%d", n, end, c.Base, c.Last)
		}
		end += commitlog.Offset(n)
		if got := e.bounds(l).End; got != end {
			e.Errorf("end is %d, want %d", got, end)
		}
		commits, all = append(commits, c), append(all, b)
	}
	l.Seal()
	for _, c := range commits {
		e.succeeds(c)
	}
	e.holds(l, 0, all)
	e.close(l)
}

func noBatchIsRefused(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	good := e.batch(2)
	for name, bad := range map[string][]byte{
		"nothing": nil, "a cut batch": good[:len(good)-1], "two batches": slices.Concat(good, good), "text": bytes.Repeat([]byte("x"), 100),
	} {
		if _, err := l.Append(bad); !errors.Is(err, commitlog.ErrCorrupt) {
			e.Errorf("append of %s gives %v, want ErrCorrupt", name, err)
		}
	}
	if b := e.bounds(l); b.End != 0 {
		e.Errorf("end moved to %d", b.End)
	}
	e.appendWait(l, good)
	e.holds(l, 0, [][]byte{good})
	e.close(l)
}

func appendDoesNotWait(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h := w.(Holder)
	l := e.open(0)
	e.appendWait(l, e.batch(1))
	h.Hold()
	defer h.Release()
	var commits []commitlog.Commit
	e.does("append while the medium is held", func() {
		for range 10 {
			c, err := l.Append(e.batch(1))
			if err != nil {
				e.Errorf("append: %v", err)
				return
			}
			commits = append(commits, c)
		}
		l.Seal()
	})
	if len(commits) < 10 {
		return
	}
	if !stays(commits[0]) || commits[9].Resolved() {
		e.Error("a commit resolved although nothing could become durable")
	}
	if got := e.bounds(l); got.End != 11 || got.Stable != 1 {
		e.Errorf("bounds are %+v while ten appends are held", got)
	}
	h.Release()
	for _, c := range commits {
		e.succeeds(c)
	}
	if got := e.bounds(l); got.Stable != 11 {
		e.Errorf("stable is %d after all commits resolved", got.Stable)
	}
	e.close(l)
}

// commitResolves also holds that Stable is past a batch when its Commit says
// durable, so that a reply may carry a high watermark that includes it.
func commitResolves(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	for range 5 {
		c := e.append(l, e.batch(2))
		e.succeeds(c)
		if s := e.bounds(l).Stable; s <= c.Last {
			e.Errorf("commit %d-%d succeeded and stable is %d", c.Base, c.Last, s)
		}
	}
	e.close(l)
}

func commitsResolveInOrder(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h := w.(Holder)
	l := e.open(0)
	for range 5 {
		h.Hold()
		var commits []commitlog.Commit
		for range 4 {
			commits = append(commits, e.append(l, e.batch(1)))
			l.Seal() // a write of its own, where the medium does that
		}
		h.Release()
		// Whichever commit is seen resolved, all before it are.
		for i := len(commits) - 1; i >= 0; i-- {
			e.succeeds(commits[i])
			for _, c := range commits[:i] {
				if !c.Resolved() {
					e.Fatalf("commit %d resolved before commit %d", commits[i].Base, c.Base)
				}
			}
		}
	}
	e.close(l)
}

func nothingSucceedsAfterFailure(tb testing.TB, w World) {
	e := newEnv(tb, w)
	f := w.(Failer)
	l := e.open(0)
	e.appendWait(l, e.batches(3)...)
	f.Fail(errors.New("the medium is on fire"))
	first := e.append(l, e.batch(1))
	var later []commitlog.Commit
	for range 3 {
		if c, err := l.Append(e.batch(1)); err == nil {
			later = append(later, c)
		}
	}
	l.Seal()
	if err := e.outcome(first); err == nil {
		e.Error("a commit succeeded although its write failed")
	}
	f.Fail(nil)
	if c, err := l.Append(e.batch(1)); err == nil {
		e.Error("an append was accepted after a failed commit")
		later = append(later, c)
	} else if !errors.Is(err, commitlog.ErrFenced) {
		e.Errorf("append after a failed commit gives %v, want ErrFenced", err)
	}
	l.Seal()
	for _, c := range later {
		if err := e.outcome(c); err == nil {
			e.Errorf("commit %d succeeded after an earlier one failed", c.Base)
		}
	}
	// A lost log still lets go.
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}

func onlyBaseAndEpochPatched(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(7)
	all := e.batches(4)
	e.appendWait(l, all...)
	e.close(l)
	l = e.open(9)
	more := e.batch(2)
	e.appendWait(l, more)
	all = append(all, more)
	got, err := readAll(e.ctx(), l, 0, 1<<20)
	if err != nil {
		e.Fatal(err)
	}
	e.holds(l, 0, all)
	for i, b := range got {
		want := commitlog.Epoch(7)
		if i == len(all)-1 {
			want = 9
		}
		if b.LeaderEpoch() != want {
			e.Errorf("batch %d has leader epoch %d, want %d", i, b.LeaderEpoch(), want)
		}
	}
	e.close(l)
}

func appendCopies(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	all := e.batches(5)
	buf := make([]byte, 4096)
	var commits []commitlog.Commit
	for _, b := range all {
		n := copy(buf, b)
		commits = append(commits, e.append(l, buf[:n]))
		for i := range buf {
			buf[i] = 0xee
		}
	}
	l.Seal()
	for _, c := range commits {
		e.succeeds(c)
	}
	e.holds(l, 0, all)
	e.close(l)
	l = e.open(1)
	e.holds(l, 0, all)
	e.close(l)
}
