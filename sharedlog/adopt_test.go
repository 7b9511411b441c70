package sharedlog_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/sharedlogtest"
)

// adopting packs when told to, and leaves chunks of 4 KiB and more where they are.
func adopting(c *sharedlog.Config) {
	c.PackAge, c.MaintainEvery, c.AdoptBytes = time.Millisecond, time.Millisecond, 4<<10
}

// A large chunk is written once: packing makes an index, and reads, recovery and
// other owners find everything by it. Trimmed, the slots go.
func TestLargeChunksStayInTheirSlots(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, adopting)
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	var want [][]byte
	for range 5 {
		want = append(want, f.fill(l, 3, 5<<10)...)
		f.packed(p, l)
	}
	if seg := f.keys("seg"); len(seg) > 0 {
		t.Errorf("chunks were written again: %v", seg)
	}
	m := f.start(2, adopting)
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	l = f.open(m, p)
	if got, want := f.state(l), f.replayed(l); got != want {
		t.Errorf("recovered %s, replay gives %s", got, want)
	}
	if _, err := m.Sweep(f.ctx()); err != nil {
		t.Fatal(err)
	}
	f.holds(l, want)
	if err := l.Trim(f.ctx(), l.Bounds().Stable-1); err != nil {
		t.Fatal(err)
	}
	f.until("what was trimmed is swept", func() bool {
		_, err := m.Sweep(f.ctx())
		return err == nil && len(f.keys("wal")) <= 3 // the fence, what has the last record, and what that was trimmed by
	})
	if got := f.all(l, l.Bounds().Start); len(got) != 1 || !bytes.Equal(got[0][16:], want[len(want)-1][16:]) {
		t.Errorf("the last batch is not there: %d batches", len(got))
	}
}

// What shares a slot with much else is written again, and so is what is small.
func TestSmallChunksAreWrittenAgain(t *testing.T) {
	for try := range 20 {
		if smallChunks(t) {
			return
		}
		t.Logf("try %d: slots were cut elsewhere", try)
	}
	t.Fatal("never were the slots those of the test")
}

// smallChunks says whether the slots had what they were to have.
func smallChunks(t *testing.T) bool {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { adopting(c); c.PackAge, c.Linger = time.Hour, time.Hour })
	parts := f.topic(3, n)
	logs := []commitlog.Log{f.open(n, parts[0]), f.open(n, parts[1]), f.open(n, parts[2])}
	want := make([][][]byte, 3)
	slots := [][]int{
		{20 << 10, 0, 1 << 10},    // 95 % large
		{0, 5 << 10, 3 << 10},     // 62 %
		{10 << 10, 10 << 10, 100}, // both large
		{0, 0, 20},
	}
	for _, sizes := range slots {
		var last commitlog.Commit
		for i, l := range logs {
			if sizes[i] > 0 {
				b := f.batch(2, sizes[i])
				want[i] = append(want[i], b)
				last = f.append(l, b)
			}
		}
		logs[0].Seal()
		if err := last.Wait(f.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.keys("wal")) != len(slots) {
		return false
	}
	if err := logs[2].Trim(f.ctx(), 1); err != nil { // packs
		t.Fatal(err)
	}
	for i, kinds := range []string{"idx", "seg idx", "seg"} {
		p, _ := f.c.Image().PartitionByStream(parts[i].Stream)
		var got []string
		for _, x := range p.Extents {
			got = append(got, x.Object[:3])
		}
		if strings.Join(got, " ") != kinds {
			t.Errorf("stream %d is in %v, want %s", i, got, kinds)
		}
	}
	m := f.start(2, nil)
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	f.holds(f.open(m, parts[0]), want[0])
	f.holds(f.open(m, parts[1]), want[1])
	return true
}

// No more slots stay than a takeover can list quickly; those that are swept make room.
func TestAdoptionIsBounded(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, func(c *sharedlog.Config) { adopting(c); c.MaxAdopted = 2 })
	p := f.topic(1, n)[0]
	l := f.open(n, p)
	fill := func(want int) {
		for range 4 {
			f.fill(l, 1, 5<<10)
			f.packed(p, l)
		}
		f.until(fmt.Sprint(want, " slots stay"), func() bool { return len(f.keys("wal")) == want }) // they go after the commit
	}
	fill(2)
	if err := l.Trim(f.ctx(), l.Bounds().Stable); err != nil {
		t.Fatal(err)
	}
	f.until("what was trimmed is swept", func() bool {
		_, err := n.Sweep(f.ctx())
		return err == nil && len(f.keys("wal")) == 0
	})
	fill(2)
}

// A command whose reply is lost may have made a slot part of a log: only the sweep,
// which reads index objects, may delete it (obj-1).
func TestObj1AdoptedSlotsStayWhateverTheReply(t *testing.T) {
	for _, fate := range []sharedlogtest.Fate{sharedlogtest.Applied, sharedlogtest.Lost, sharedlogtest.Dropped} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			f := newFixture(t)
			first := true
			f.c.Hook = func(_ metadata.Incarnation, cmd *metadatapb.Command) sharedlogtest.Fate {
				if c := cmd.GetCommitExtents(); c != nil && len(c.Streams) > 0 && first {
					first = false
					return fate
				}
				return sharedlogtest.Applied
			}
			n := f.start(1, adopting)
			p := f.topic(1, n)[0]
			l := f.open(n, p)
			want := f.fill(l, 3, 5<<10)
			f.packed(p, l)
			want = append(want, f.fill(l, 1, 100)...) // a round behind it
			f.packed(p, l)
			m := f.start(2, nil)
			if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
				t.Fatal(err)
			}
			f.holds(f.open(m, p), want)
		})
	}
}
