package sharedlog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/sharedlogtest"
)

// mutedQuorum takes no commands until it is heard again.
type mutedQuorum struct {
	sharedlog.Meta
	heard chan struct{}
}

func (m *mutedQuorum) SubmitOwn(ctx context.Context, cmd *metadatapb.Command) (metadata.Result, error) {
	select {
	case <-m.heard:
		return m.Meta.SubmitOwn(ctx, cmd)
	case <-ctx.Done():
		return metadata.Result{}, ctx.Err()
	}
}

// startMuted is a node whose quorum does not answer, with a bound on unpacked slots.
func (f *fixture) startMuted(slots int) (*sharedlogtest.Node, *mutedQuorum) {
	f.Helper()
	quorum := &mutedQuorum{heard: make(chan struct{})}
	n, err := sharedlogtest.StartAs(f.c, f.b, f.c.Register(1), func(c *sharedlog.Config) {
		quorum.Meta, c.Meta = c.Meta, quorum
		c.MaxSlots = slots
	})
	if err != nil {
		f.Fatal(err)
	}
	return n, quorum
}

// Nothing can be packed while the metadata has no quorum. Appends go on all the
// same: the bound on unpacked WAL keeps takeovers short, and there are none. It
// holds again afterwards.
func TestAppendsOutlastAMetadataOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const bound = 8
		n, quorum := f.startMuted(bound)
		defer n.Crash()
		l := f.open(n, f.topic(1, n)[0])
		var want [][]byte
		add := func() {
			want = append(want, f.fill(l, 1, 100)...)
		}
		for range bound - 1 {
			add()
		}
		time.Sleep(time.Minute)
		for range 10 * bound {
			add()
		}
		if got := n.Stats().UnpackedSlots; got < 10*bound {
			t.Errorf("%d unpacked slots: something was packed without a quorum", got)
		}
		// One pack round after the other goes on while appends do, which need not
		// wait for all of what was left behind.
		undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Key: "/seg/", Delay: time.Second})
		close(quorum.heard)
		synctest.Wait()
		for range bound / 2 {
			add()
		}
		undo()
		for range 20 * bound {
			add()
			time.Sleep(time.Second)
		}
		if got := n.Stats().UnpackedSlots; got > bound {
			t.Errorf("%d unpacked slots after the outage, the bound is %d", got, bound)
		}
		f.holds(l, want)
	})
}

// The bound is raised while the metadata has no quorum, not lifted.
func TestUnpackedWALIsBoundedInAMetadataOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const bound = 2
		n, _ := f.startMuted(bound)
		defer n.Crash()
		l := f.open(n, f.topic(1, n)[0])
		f.fill(l, 1, 100)
		time.Sleep(time.Minute)
		for range 100 * bound {
			c, err := l.Append(f.batch(1, 100))
			if errors.Is(err, commitlog.ErrBackpressure) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			l.Seal()
			if err := c.Wait(f.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		t.Errorf("%d unpacked slots, the bound is %d, and appends are still taken", n.Stats().UnpackedSlots, bound)
	})
}
