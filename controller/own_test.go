package controller_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func allocate() *metadatapb.Command {
	return &metadatapb.Command{Body: &metadatapb.Command_AllocateIds{
		AllocateIds: &metadatapb.AllocateIDs{Space: metadatapb.AllocateIDs_OBJECT, Count: 1},
	}}
}

// Every id that a command allocates tells when it took effect, so ids must
// grow in the order of submission, and no command may take effect twice.
func TestOwnCommandsKeepOrderThroughLostRepliesAndLeaderChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		b := c.start(4, false)
		inc := c.broker(b)
		stop := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rng.IntN(20)) * time.Millisecond):
				}
				c.net.reset(b.name) // requests and replies in flight are lost
				if i%40 == 39 {
					resume := c.net.stall(c.leader().name)
					time.Sleep(3 * time.Second)
					resume()
				}
			}
		})
		const total = 400
		firsts := make([]uint64, total)
		var wg sync.WaitGroup
		for i := range total {
			wg.Go(func() {
				r, err := b.SubmitOwn(c.context(), allocate())
				if err != nil || r.Err != nil {
					t.Errorf("command %d: %v, %v", i, err, r.Err)
				}
				firsts[i] = r.First
			})
			synctest.Wait() // the order of the calls is the order of i
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		close(stop)
		chaos.Wait()
		for i := 1; i < total; i++ {
			if firsts[i] != firsts[i-1]+1 {
				t.Fatalf("command %d got id %d after %d", i, firsts[i], firsts[i-1])
			}
		}
		w, _ := b.Image().WAL(inc)
		if w.CmdSeq != total {
			t.Errorf("cmd_seq is %d after %d commands", w.CmdSeq, total)
		}
		c.sameHash()
	})
}

func TestOwnCommandThatWasNotSentIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(1)
		b := c.start(4, false)
		inc := c.broker(b)
		resume := c.net.stall("n1")
		short, cancel := context.WithTimeout(c.context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		var sent, waiting error
		wg.Go(func() { _, sent = b.SubmitOwn(short, noop()) })
		synctest.Wait()
		wg.Go(func() { _, waiting = b.SubmitOwn(short, noop()) })
		wg.Wait()
		if !errors.Is(sent, controller.ErrUnknownOutcome) {
			t.Errorf("the one on its way: %v", sent)
		}
		if !errors.Is(waiting, controller.ErrNotSubmitted) {
			t.Errorf("the one behind it: %v", waiting)
		}
		resume()
		eventually(t, "first command", func() bool { w, _ := b.Image().WAL(inc); return w.CmdSeq == 1 })
		if r, err := b.SubmitOwn(c.context(), noop()); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		if w, _ := b.Image().WAL(inc); w.CmdSeq != 3 {
			t.Errorf("cmd_seq is %d; the withdrawn command's number 2 must not be used again", w.CmdSeq)
		}
	})
}

func TestRejectionsAreResultsNotErrors(t *testing.T) {
	c := newCluster(t)
	c.voters(1)
	n := c.nodes[1]
	c.broker(n)
	r, err := n.SubmitOwn(c.context(), &metadatapb.Command{Body: &metadatapb.Command_Sealed{
		Sealed: &metadatapb.Sealed{Incarnation: &metadatapb.Incarnation{Broker: 9, Epoch: 99}},
	}})
	if err != nil || !errors.Is(r.Rejected(), metadata.ErrUnknownIncarnation) {
		t.Errorf("got %v, %v", r.Err, err)
	}
}

func TestProducerIDsAreUniqueAndOutliveTheQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		seen := map[int64]bool{}
		take := func(n *node, count int) {
			t.Helper()
			for range count {
				id, err := n.AllocateProducerID(c.context())
				if err != nil {
					t.Fatal(err)
				}
				if seen[id] {
					t.Fatalf("producer id %d twice", id)
				}
				seen[id] = true
			}
		}
		for i := 1; i <= 3; i++ {
			c.broker(c.nodes[i])
			take(c.nodes[i], 25_000)
		}
		time.Sleep(time.Second) // the reserve fills in the background
		lonely := c.nodes[3]
		if c.leader() == lonely {
			lonely = c.nodes[2]
		}
		c.kill(lonely)
		take(lonely, 10_000)
	})
}

// cmd-1: a part of the process that still works for an incarnation that has
// ended does not speak for the next one.
func TestOwnCommandOfAnIncarnationThatHasEndedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(1)
		n := c.nodes[1]
		inc := c.broker(n)
		old := noop()
		old.From = metadata.Incarnation{Broker: inc.Broker, Epoch: inc.Epoch + 1}.Proto()
		if _, err := n.SubmitOwn(c.context(), old); !errors.Is(err, controller.ErrNotSubmitted) {
			t.Errorf("a command of another incarnation: %v, want ErrNotSubmitted", err)
		}
		own := noop()
		own.From = inc.Proto()
		if r, err := n.SubmitOwn(c.context(), own); err != nil || r.Err != nil {
			t.Errorf("a command of ours: %v, %v", err, r.Err)
		}
	})
}
