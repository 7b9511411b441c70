package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
)

func TestAQuorumFormsFromEqualJoinLists(t *testing.T) {
	for _, voters := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d voters", voters), func(t *testing.T) {
			c := newCluster(t)
			c.voters(voters)
			observer := c.start(9, false)
			for i := 1; i <= voters; i++ {
				c.broker(c.nodes[i])
			}
			c.broker(observer)
			id := c.topic(observer, "t", 7, -1)
			for _, n := range c.nodes {
				if p, ok := n.Image().Partition(id, 6); !ok && n == observer {
					t.Errorf("%s does not have its own topic: %v", n.name, p)
				}
			}
			c.sameHash()
			if q := c.leader().Quorum(); len(q) != voters {
				t.Errorf("quorum is %v", q)
			}
			if id := observer.Image().ClusterID(); len(id) != 22 {
				t.Errorf("cluster id %q", id)
			}
		})
	}
}

func TestManySubmittersShareEntries(t *testing.T) {
	c := newCluster(t)
	c.voters(3)
	for i := 1; i <= 3; i++ {
		c.broker(c.nodes[i])
	}
	before := c.nodes[1].Image().Index()
	var wg sync.WaitGroup
	const each = 200
	for _, n := range c.nodes {
		for range each {
			wg.Go(func() {
				r, err := n.SubmitOwn(c.context(), noop())
				if err != nil || r.Err != nil {
					t.Errorf("submit: %v, %v", err, r.Err)
				}
			})
		}
	}
	wg.Wait()
	c.sameHash()
	if used := uint64(c.nodes[1].Image().Index() - before); used > 3*each/2 {
		t.Errorf("%d commands took %d entries", 3*each, used)
	}
}

func TestBarrierSeesWhatCompletedElsewhere(t *testing.T) {
	c := newCluster(t)
	c.voters(3)
	observer := c.start(4, false)
	c.broker(c.nodes[1])
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		c.topic(c.nodes[1], name, 1, 1)
		img, err := observer.Barrier(c.context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := img.Topic(name); !ok {
			t.Fatalf("barrier does not show %s", name)
		}
	}
}

func TestKilledLeaderIsReplacedBeforeTheElectionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.ElectionTimeout = 20e9 }
		c.voters(3)
		c.broker(c.nodes[1])
		old := c.leader()
		start := time.Now()
		c.kill(old)
		next := c.leader()
		if took := time.Since(start); took > 2e9 {
			t.Errorf("new leader after %v", took)
		}
		c.broker(next)
		c.sameHash()
	})
}

func TestStalledLeaderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		observer := c.start(4, false)
		c.broker(c.nodes[1])
		c.broker(observer)
		old := c.leader()
		resume := c.net.stall(old.name)
		eventually(t, "other leader", func() bool {
			for _, n := range c.nodes {
				if n != old && n.Leading() {
					return true
				}
			}
			return false
		})
		for range 5 {
			if r, err := observer.SubmitOwn(c.context(), noop()); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
		}
		resume()
		eventually(t, "single leader", func() bool { return !old.Leading() })
		seen := observer.Image().Index()
		if img, err := old.Barrier(c.context()); err != nil || img.Index() < seen {
			t.Errorf("deposed leader at index %d, others at %d: %v", img.Index(), seen, err)
		}
		c.sameHash()
	})
}

func TestWithoutAMajorityItIsSaidWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.voters(3)
		n := c.leader()
		var dead []string
		for _, other := range c.nodes {
			if other != n {
				c.kill(other)
				dead = append(dead, other.name)
			}
		}
		slices.Sort(dead)
		eventually(t, "it steps down", func() bool { return !n.Leading() })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := n.Barrier(ctx)
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("it says %v", err)
		}
		for _, want := range []string{fmt.Sprintf("no majority of the metadata quorum: the controllers at %s:9093 and %s:9093 do not answer", dead[0], dead[1]), "'ponor quorum status --controllers "} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it says %v, not %q", err, want)
			}
		}
	})
}
