package logtest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

func readClauses() []Clause {
	return []Clause{
		{Name: "C7 readers see nothing above stable", Needs: []string{"Holder"}, Test: nothingAboveStable},
		{Name: "C7 bounds never move back", Test: boundsNeverMoveBack},
		{Name: "C8 read starts with the batch that holds the offset", Test: readStartsInside},
		{Name: "C8 read returns whole batches within its limits", Test: readKeepsLimits},
		{Name: "C8 read at stable is empty and does not wait", Test: readAtStable},
		{Name: "C8 read outside is out of range", Test: readOutside},
		{Name: "C8 many readers beside an appender", Test: manyReaders},
		{Name: "C14 corrupt bytes are never returned", Needs: []string{"Corrupter"}, Test: corruptIsReported},
		{Name: "BatchAt finds the first batch at or after a time", Test: batchAt},
		{Name: "MaxTimestampBatch finds the first of the largest", Test: maxTimestampBatch},
	}
}

func nothingAboveStable(tb testing.TB, w World) {
	e := newEnv(tb, w)
	h := w.(Holder)
	l := e.open(0)
	all := e.batches(2)
	e.appendWait(l, all...)
	stable := e.bounds(l).Stable
	h.Hold()
	defer h.Release()
	c := e.append(l, e.batch(3))
	if b := e.bounds(l); b.Stable != stable || b.End != stable+3 {
		e.Errorf("bounds are %+v while three records are held, stable was %d", b, stable)
	}
	for _, from := range []commitlog.Offset{0, stable, stable + 1, stable + 3} {
		for _, b := range e.read(l, from, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true, Limit: stable + 100}) {
			if b.LastOffset() >= stable {
				e.Errorf("read at %d returns batch %d-%d, stable is %d", from, b.BaseOffset(), b.LastOffset(), stable)
			}
		}
	}
	if at, ok, err := l.BatchAt(e.ctx(), int64(1000+e.seed)); err != nil || ok {
		e.Errorf("the held batch is found by its time: %d, %v, %v", at, ok, err)
	}
	h.Release()
	e.succeeds(c)
	if b := e.bounds(l); b.Stable != stable+3 {
		e.Errorf("stable is %d after the commit", b.Stable)
	}
	e.close(l)
}

func boundsNeverMoveBack(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		last := l.Bounds()
		for {
			b := l.Bounds()
			if b.Start < last.Start || b.Stable < last.Stable || b.Start > b.Stable || b.Stable > b.End {
				e.Errorf("bounds went from %+v to %+v", last, b)
				return
			}
			last = b
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	for i := range 20 {
		e.appendWait(l, e.batches(3)...)
		if i%5 == 4 {
			if err := l.Trim(e.ctx(), commitlog.Offset(i)); err != nil {
				e.Errorf("trim to %d: %v", i, err)
			}
		}
		last := l.Bounds()
		if last.Stable != commitlog.Offset((i+1)*6) {
			e.Errorf("stable is %d after %d records were acknowledged", last.Stable, (i+1)*6)
		}
	}
	close(stop)
	wg.Wait()
	e.close(l)
}

func readStartsInside(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	sizes := []commitlog.Offset{1, 5, 2, 9}
	var all [][]byte
	for _, n := range sizes {
		all = append(all, e.batch(int(n)))
	}
	e.appendWait(l, all...)
	check := func() {
		base := commitlog.Offset(0)
		for i, n := range sizes {
			for from := base; from < base+n; from++ {
				got := e.readParts(l, from, commitlog.ReadOptions{MaxBytes: 1 << 20})
				if len(got) != len(all)-i || got[0].BaseOffset() != base || !sameBut(got[0], all[i]) {
					e.Fatalf("read at %d gives %d batches, want %d from the one at %d", from, len(got), len(all)-i, base)
				}
			}
			base += n
		}
	}
	check()
	l = e.reopen(l, 1)
	check()
	e.close(l)
}

func readKeepsLimits(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	all := e.batches(6) // offsets 0, 1-2, 3-5, 6, 7-8, 9-11
	e.appendWait(l, all...)
	size := func(n int) (sum int) {
		for _, b := range all[:n] {
			sum += len(b)
		}
		return sum
	}
	cases := []struct {
		name string
		opts commitlog.ReadOptions
		want int
	}{
		{"room for three exactly", commitlog.ReadOptions{MaxBytes: size(3)}, 3},
		{"a byte less", commitlog.ReadOptions{MaxBytes: size(3) - 1}, 2},
		{"room for none", commitlog.ReadOptions{MaxBytes: 10}, 0},
		{"room for none but at least one", commitlog.ReadOptions{MaxBytes: 10, MinOne: true}, 1},
		{"no room but at least one", commitlog.ReadOptions{MinOne: true}, 1},
		{"limit between batches", commitlog.ReadOptions{MaxBytes: 1 << 20, Limit: 6}, 3},
		{"limit inside a batch", commitlog.ReadOptions{MaxBytes: 1 << 20, Limit: 8}, 5},
		{"limit above stable", commitlog.ReadOptions{MaxBytes: 1 << 20, Limit: 1000}, 6},
	}
	for _, c := range cases {
		if got := e.readParts(l, 0, c.opts); len(got) != c.want {
			e.Errorf("%s: %d batches, want %d", c.name, len(got), c.want)
		}
	}
	if got := e.read(l, 7, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true, Limit: 7}); len(got) != 0 {
		e.Errorf("read at its limit gives %d batches", len(got))
	}
	e.close(l)
}

func readAtStable(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	at := func(from commitlog.Offset) {
		e.does("a read at stable", func() {
			got, err := readOnce(e.ctx(), l, from, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
			if err != nil || len(got) != 0 {
				e.Errorf("read at stable %d gives %d batches, %v", from, len(got), err)
			}
		})
	}
	at(0)
	e.appendWait(l, e.batches(3)...)
	at(6)
	e.close(l)
}

func readOutside(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.open(0)
	e.appendWait(l, e.batches(6)...)
	if err := l.Trim(e.ctx(), 7); err != nil {
		e.Fatalf("trim: %v", err)
	}
	for _, from := range []commitlog.Offset{-1, 0, 6, 13, 1 << 40} {
		if _, err := readOnce(e.ctx(), l, from, commitlog.ReadOptions{MaxBytes: 1 << 20}); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
			e.Errorf("read at %d of 7 to 12 gives %v, want ErrOffsetOutOfRange", from, err)
		}
	}
	if got := e.readParts(l, 7, commitlog.ReadOptions{MaxBytes: 1 << 20}); len(got) != 2 {
		e.Errorf("read at start gives %d batches, want 2", len(got))
	}
	e.close(l)
}

func manyReaders(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	all := e.batches(300)
	ctx := e.ctx()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for from, n := commitlog.Offset(0), 0; n < len(all); {
				got, err := readOnce(ctx, l, from, commitlog.ReadOptions{MaxBytes: 700, MinOne: true})
				if err != nil {
					e.Errorf("read at %d: %v", from, err)
					return
				}
				for _, b := range got {
					if b.BaseOffset() != from || !sameBut(b, all[n]) {
						e.Errorf("read at %d gives another batch, at %d", from, b.BaseOffset())
						return
					}
					from, n = b.LastOffset()+1, n+1
				}
				if len(got) == 0 {
					time.Sleep(time.Millisecond) // the log has no wake-up of its own
				}
			}
		})
	}
	for chunk := range slices.Chunk(all, 10) {
		e.appendWait(l, chunk...)
	}
	wg.Wait()
	e.close(l)
}

// smallSegments makes a log roll every few batches.
func smallSegments() commitlog.Settings {
	return commitlog.Settings{SegmentBytes: 1500, IndexBytes: 300}
}

func corruptIsReported(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	all := e.batches(12)
	e.appendWait(l, all...)
	e.close(l)
	const bad = commitlog.Offset(8) // the second record of batch 7-8
	name, err := w.(Corrupter).Corrupt(e.id, bad)
	if err != nil {
		e.Fatalf("corrupt: %v", err)
	}
	complains := func(what string, err error) {
		if !errors.Is(err, commitlog.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			e.Errorf("%s gives %v, want ErrCorrupt that names %s", what, err, name)
		}
	}
	l, err = w.Open(e.ctx(), e.id, 1, commitlog.Options{Settings: smallSegments})
	if err != nil {
		complains("open", err) // found as early as that: as good
		return
	}
	_, err = readOnce(e.ctx(), l, bad, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOne: true})
	complains("read of the damaged batch", err)
	// What comes before is served or refused, never wrong.
	if got, err := readOnce(e.ctx(), l, 0, commitlog.ReadOptions{MaxBytes: 1 << 20}); err != nil {
		complains("read that runs into the damaged batch", err)
	} else {
		for i, b := range got {
			if !sameBut(b, all[i]) {
				e.Errorf("batch %d before the damage differs", i)
			}
		}
	}
	e.close(l)
}

// timed appends one batch of two records for each time and returns the bases.
func (e *env) timed(l commitlog.Log, times ...int64) []commitlog.Offset {
	e.Helper()
	var bases []commitlog.Offset
	for _, ms := range times {
		c := e.append(l, kbatch.New(kbatch.KV("k", "v").At(ms-1), kbatch.KV("k", "w").At(ms)).Bytes())
		l.Seal()
		e.succeeds(c)
		bases = append(bases, c.Base)
	}
	return bases
}

func batchAt(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	if _, ok, err := l.BatchAt(e.ctx(), 0); ok || err != nil {
		e.Errorf("an empty log answers %v, %v", ok, err)
	}
	// Times may go back: the first batch that reaches the time counts.
	times := []int64{100, 300, 200, 300, 500, 400}
	for range 30 {
		times = append(times, 450)
	}
	times = append(times, 900)
	bases := e.timed(l, times...)
	check := func() {
		for _, ms := range []int64{0, 100, 101, 200, 300, 301, 500, 501, 900} {
			want := bases[slices.IndexFunc(times, func(t int64) bool { return t >= ms })]
			if got, ok, err := l.BatchAt(e.ctx(), ms); err != nil || !ok || got != want {
				e.Errorf("batch at time %d is %d, %v, %v; want %d", ms, got, ok, err, want)
			}
		}
		if got, ok, err := l.BatchAt(e.ctx(), 901); ok || err != nil {
			e.Errorf("batch after all times is %d, %v, %v", got, ok, err)
		}
	}
	check()
	e.close(l)
	l = e.openWith(1, commitlog.Options{Settings: smallSegments})
	check()
	if err := l.Trim(e.ctx(), bases[2]); err != nil {
		e.Fatalf("trim: %v", err)
	}
	if got, ok, err := l.BatchAt(e.ctx(), 300); err != nil || !ok || got != bases[3] {
		e.Errorf("after a trim to %d batch at time 300 is %d, %v, %v; want %d", bases[2], got, ok, err, bases[3])
	}
	e.close(l)
}

func maxTimestampBatch(tb testing.TB, w World) {
	e := newEnv(tb, w)
	l := e.openWith(0, commitlog.Options{Settings: smallSegments})
	if _, ok, err := l.MaxTimestampBatch(e.ctx()); ok || err != nil {
		e.Errorf("an empty log answers %v, %v", ok, err)
	}
	want := commitlog.Offset(0)
	check := func(when string) {
		if got, ok, err := l.MaxTimestampBatch(e.ctx()); err != nil || !ok || got != want {
			e.Errorf("%s: batch of the largest time is %d, %v, %v; want %d", when, got, ok, err, want)
		}
	}
	bases := e.timed(l, 100, 700, 200, 700, 300)
	want = bases[1]
	check("one segment")
	for range 30 {
		e.timed(l, 600)
	}
	check("many segments")
	e.close(l)
	l = e.openWith(1, commitlog.Options{Settings: smallSegments})
	check("after a re-open")
	want = e.timed(l, 800)[0]
	check("a new largest")
	e.close(l)
}
