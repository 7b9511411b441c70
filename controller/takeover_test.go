package controller_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// sealer seals everything at slot 0 and counts, or blocks until released.
type sealer struct {
	mu    sync.Mutex
	asked []metadata.Incarnation
	block chan struct{}
	waits atomic.Int32
}

// waiting is how many are blocked now.
func (s *sealer) waiting() int { return int(s.waits.Load()) }

func (s *sealer) Seal(ctx context.Context, w metadata.WAL) (*metadatapb.Sealed, error) {
	s.mu.Lock()
	s.asked = append(s.asked, w.Incarnation)
	block := s.block
	s.mu.Unlock()
	if block != nil {
		s.waits.Add(1)
		defer s.waits.Add(-1)
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &metadatapb.Sealed{Incarnation: w.Incarnation.Proto()}, nil
}

func (s *sealer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// serving starts three voters that are brokers and seal, and one topic.
func serving(c *cluster, brokers int) (metadata.TopicID, map[int]metadata.Incarnation) {
	c.voters(3)
	incs := map[int]metadata.Incarnation{}
	for id := 4; id <= brokers; id++ {
		c.start(id, false)
	}
	for id := 1; id <= brokers; id++ {
		incs[id] = c.broker(c.nodes[id])
		c.nodes[id].SetSealer(&sealer{})
	}
	return c.topic(c.nodes[1], "t", 12, 3), incs
}

func state(n *node, inc metadata.Incarnation) metadata.WALState {
	w, _ := n.Image().WAL(inc)
	return w.State
}

func TestKilledBrokerIsFencedAtOnceAndItsPartitionsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = 20 * time.Second }
		id, incs := serving(c, 5)
		witness := c.leader()
		dead := c.nodes[5]
		start := time.Now()
		c.kill(dead)
		eventually(t, "seal", func() bool { return state(witness, incs[5]) == metadata.Sealed })
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("sealed after %v", took)
		}
		owners := map[metadata.BrokerID]int{}
		for p := range witness.Image().Partitions(id) {
			if p.Owner.Broker == 5 || !p.Openable() {
				t.Errorf("%s: owner %v, unsealed %v", &p, p.Owner, p.Unsealed)
			}
			owners[p.Owner.Broker]++
		}
		for b, n := range owners {
			if n > 4 {
				t.Errorf("broker %d owns %d of 12 partitions", b, n)
			}
		}
		c.sameHash()
	})
}

// A dying process closes its sockets one after the other: the connection with its
// heartbeats may end while its listener still accepts.
func TestDyingBrokerWhoseListenerEndsLastIsFencedWithinItsSession(t *testing.T) {
	for _, victim := range []int{3, 5} { // a voter and a plain broker
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = 10 * time.Minute }
			_, incs := serving(c, 5)
			dying := c.nodes[victim]
			if c.leader() == dying {
				dying = c.nodes[1]
			}
			inc := incs[dying.id]
			c.net.stall(dying.name)
			c.net.reset(dying.name)
			time.Sleep(time.Second)
			c.kill(dying)
			witness := c.leader()
			eventually(t, "fence", func() bool { return state(witness, inc) != metadata.Active })
		})
	}
}

func TestKilledLeaderThatIsABrokerIsFencedByTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = 20 * time.Second }
		_, incs := serving(c, 3)
		old := c.leader()
		time.Sleep(2 * time.Second) // beyond RestartGrace: the cluster has been up for a while
		start := time.Now()
		c.kill(old)
		witness := c.leader()
		eventually(t, "seal", func() bool { return state(witness, incs[old.id]) == metadata.Sealed })
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("sealed after %v", took)
		}
	})
}

func TestSilentBrokerIsFencedAfterItsSessionAndRegistersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		id, incs := serving(c, 4)
		silent := c.nodes[4]
		fenced := silent.Fenced()
		start := time.Now()
		resume := c.net.stall(silent.name)
		eventually(t, "fence", func() bool { return state(c.nodes[1], incs[4]) != metadata.Active })
		if took := time.Since(start); took < 800*time.Millisecond || took > 3*time.Second {
			t.Errorf("fenced after %v of a session of 1 s", took)
		}
		resume()
		<-fenced
		if got := silent.Incarnation(); !got.IsZero() {
			t.Errorf("still registered as %v", got)
		}
		if _, err := silent.SubmitOwn(c.context(), noop()); !errors.Is(err, controller.ErrNotSubmitted) {
			t.Errorf("submit while fenced: %v", err)
		}
		again := c.broker(silent)
		if again.Epoch <= incs[4].Epoch {
			t.Errorf("new incarnation %v after %v", again, incs[4])
		}
		for p := range silent.Image().Partitions(id) {
			if p.Owner == incs[4] {
				t.Errorf("%s is still with %v", &p, p.Owner)
			}
		}
		if r, err := silent.SubmitOwn(c.context(), noop()); err != nil || r.Err != nil {
			t.Errorf("submit as %v: %v, %v", again, err, r.Err)
		}
		old := noop()
		old.From = incs[4].Proto()
		if _, err := silent.SubmitOwn(c.context(), old); !errors.Is(err, controller.ErrNotSubmitted) {
			t.Errorf("submit in the name of the past incarnation: %v", err)
		}
		select {
		case <-silent.done:
			t.Errorf("node stopped: %v", silent.err)
		default:
		}
	})
}

// A silent broker is fenced when its session ends, not at a tick after that.
func TestSilentBrokerIsFencedWhenItsSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const session, heartbeat = 20 * time.Second, 7 * time.Second
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout, cfg.HeartbeatInterval = session, heartbeat }
		_, incs := serving(c, 4)
		for range 5 { // whenever its last heartbeat was
			time.Sleep(heartbeat/3 + session)
			silent := c.nodes[4]
			heard := time.Now()
			silent.AskMoves() // sends a heartbeat
			synctest.Wait()
			resume := c.net.stall(silent.name)
			eventually(t, "fence", func() bool { return state(c.nodes[1], incs[4]) != metadata.Active })
			if took := time.Since(heard); took < session || took > session+100*time.Millisecond {
				t.Errorf("fenced %v after its last heartbeat, in a session of %v", took, session)
			}
			resume()
			eventually(t, "the fence is known", func() bool { return silent.Incarnation() != incs[4] })
			incs[4] = c.broker(silent)
		}
	})
}

// The next leader has heard of the last one's process by Raft, so that the session
// of one that hangs need not begin with the election.
func TestSilentLeaderIsFencedAfterItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const session = 20 * time.Second
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = session }
		_, incs := serving(c, 3)
		time.Sleep(2 * time.Second) // beyond RestartGrace
		silent := c.leader()
		witness := c.nodes[silent.id%3+1]
		start := time.Now()
		resume := c.net.stall(silent.name)
		defer resume()
		eventually(t, "fence", func() bool { return state(witness, incs[silent.id]) != metadata.Active })
		// An election begins after 600 ms or more.
		if took := time.Since(start); took < session-time.Second || took > session+500*time.Millisecond {
			t.Errorf("fenced after %v of a session of %v", took, session)
		}
	})
}

func TestLeaderThatLostItsOfficeButLivesIsNotFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		// The election takes longer than the session.
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = 300 * time.Millisecond }
		_, incs := serving(c, 3)
		time.Sleep(12 * time.Second) // beyond RestartGrace
		old := c.leader()
		resume := c.net.stall(old.name)
		eventually(t, "another leader", func() bool { return c.leader() != old })
		witness := c.leader()
		resume()
		time.Sleep(5 * time.Second)
		if s := state(witness, incs[old.id]); s != metadata.Active {
			t.Errorf("its WAL is %v", s)
		}
	})
}

func TestBrokerWithoutAStoreIsFencedOnlyIfItIsAlone(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			_, incs := serving(c, 4)
			// The writes began to hang for all at once, as they do.
			began := time.Now()
			stuck := func() controller.Stats { return controller.Stats{OldestUnresolved: time.Since(began)} }
			c.nodes[4].SetStats(stuck)
			if !alone {
				c.nodes[3].SetStats(stuck)
			}
			if alone {
				eventually(t, "fence", func() bool { return state(c.nodes[1], incs[4]) != metadata.Active })
				return
			}
			time.Sleep(time.Minute)
			if state(c.nodes[1], incs[4]) != metadata.Active || state(c.nodes[1], incs[3]) != metadata.Active {
				t.Error("fenced although the store is what is in trouble")
			}
		})
	}
}

func TestRestartedBrokerKeepsItsPartitionsAndSealsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) { cfg.SessionTimeout = 20 * time.Second }
		id, incs := serving(c, 4)
		owned := c.nodes[1].Image().OwnedCount(incs[4])
		old := c.nodes[4]
		old.cancel() // leaves without a word to the leader
		<-old.done
		restarted := c.start(4, false)
		again := c.broker(restarted)
		s := &sealer{}
		restarted.SetSealer(s)
		eventually(t, "seal", func() bool { return state(restarted, incs[4]) == metadata.Sealed })
		if got := restarted.Image().OwnedCount(again); got != owned {
			t.Errorf("owns %d partitions, had %d", got, owned)
		}
		for p := range restarted.Image().Partitions(id) {
			if p.Owner == again && p.Epoch != 1 {
				t.Errorf("%s at epoch %d", &p, p.Epoch)
			}
		}
	})
}

func TestDeadSealerIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, incs := serving(c, 5)
		blocked := &sealer{block: make(chan struct{})}
		for _, n := range c.nodes {
			n.SetSealer(blocked)
		}
		witness := c.leader()
		c.kill(c.nodes[5])
		eventually(t, "fence", func() bool { return state(witness, incs[5]) == metadata.Fenced })
		w, _ := witness.Image().WAL(incs[5])
		first := w.Sealer
		if first == incs[witness.id] {
			// The witness must live on; let somebody else be the victim.
			close(blocked.block)
			return
		}
		eventually(t, "sealing", func() bool { return blocked.count() > 0 })
		c.kill(c.nodes[int(first.Broker)])
		working := &sealer{}
		for _, n := range c.nodes {
			n.SetSealer(working)
		}
		eventually(t, "other sealer", func() bool {
			n := c.leader()
			w, _ := n.Image().WAL(incs[5])
			return w.Sealer != first
		})
		close(blocked.block)
		n := c.leader()
		eventually(t, "seal", func() bool {
			return state(n, incs[5]) == metadata.Sealed && state(n, first) == metadata.Sealed
		})
	})
}

// A sealer that lives and heartbeats but cannot reach the store must not keep
// the partitions of a dead broker from everybody: others are asked, each in
// turn, and what still hangs ends once the WAL is sealed.
func TestSealerThatDoesNotGetDoneIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, incs := serving(c, 5)
		hung := &sealer{block: make(chan struct{})}
		for _, n := range c.nodes {
			n.SetSealer(hung)
		}
		witness := c.leader()
		victim := 5
		if witness.id == victim {
			victim = 4
		}
		start := time.Now()
		c.kill(c.nodes[victim])
		eventually(t, "fence", func() bool { return state(witness, incs[victim]) == metadata.Fenced })
		// Whoever is asked first, second and third hangs; the fourth works.
		seen := map[metadata.Incarnation]bool{}
		for len(seen) < 4 {
			w, _ := witness.Image().WAL(incs[victim])
			if !seen[w.Sealer] {
				seen[w.Sealer] = true
				if len(seen) == 3 {
					for _, n := range c.nodes {
						if !seen[incs[n.id]] {
							n.SetSealer(&sealer{})
						}
					}
				}
			}
			if w.State == metadata.Sealed {
				break
			}
			if time.Since(start) > 5*time.Minute {
				t.Fatalf("after %v only %v were asked", time.Since(start), seen)
			}
			time.Sleep(100 * time.Millisecond)
		}
		eventually(t, "seal", func() bool { return state(witness, incs[victim]) == metadata.Sealed })
		if took := time.Since(start); took < 25*time.Second || took > 45*time.Second {
			t.Errorf("sealed after %v, three sealers hung for 10 s each", took)
		}
		if n := hung.count(); n != 3 {
			t.Errorf("%d sealers hung, want 3", n)
		}
		eventually(t, "end of the hung ones", func() bool { return hung.waiting() == 0 })
	})
}

func TestSecondProcessWithTheSameIDIsRefusedWhileTheFirstLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		_, incs := serving(c, 4)
		first := c.nodes[4]
		second := c.startAs("m4", 4, false)
		ctx, cancel := context.WithTimeout(c.context(), 5*time.Second)
		defer cancel()
		_, err := second.Register(ctx, controller.Registration{Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "m4", Port: 9092}}})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second process: %v", err)
		}
		if !second.log.has("another process is running as node 4 at n4:9092") {
			t.Errorf("no warning that helps: %s", second.log.String())
		}
		if got := first.Incarnation(); got != incs[4] {
			t.Errorf("first process is %v, was %v", got, incs[4])
		}
	})
}

func TestSupersededProcessStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		serving(c, 4)
		first := c.nodes[4]
		resume := c.net.stall(first.name)
		second := c.startAs("m4", 4, false)
		c.broker(second)
		resume()
		<-first.done
		if !errors.Is(first.err, controller.ErrSuperseded) {
			t.Errorf("first process ended with %v", first.err)
		}
	})
}

func TestWholeClusterRestartDoesNotShuffle(t *testing.T) {
	dirs := map[int]string{1: t.TempDir(), 2: t.TempDir(), 3: t.TempDir()}
	c := newCluster(t)
	c.tune = func(cfg *controller.Config) {
		cfg.DataDir = dirs[int(cfg.NodeID)]
		cfg.RestartGrace = 20 * time.Second
	}
	c.voters(3)
	for id := 1; id <= 3; id++ {
		c.broker(c.nodes[id])
	}
	topic := c.topic(c.nodes[1], "t", 9, 3)
	owners := map[int32]metadata.BrokerID{}
	for p := range c.nodes[1].Image().Partitions(topic) {
		owners[p.Number] = p.Owner.Broker
	}
	c.net.kill("n1", "n2", "n3")
	for _, name := range []string{"n1", "n2", "n3"} {
		c.net.listen(name + ":9092").Close() // nobody listens there any more
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		c.net.kill(name) // listening took it back
	}
	// Data directories are flocked: the old processes must be gone.
	for _, f := range c.all {
		c.stop(f)
	}
	for id := 1; id <= 3; id++ {
		c.start(id, true)
	}
	c.leader()
	for id := 1; id <= 3; id++ {
		c.broker(c.nodes[id])
	}
	for p := range c.nodes[2].Image().Partitions(topic) {
		if p.Owner.Broker != owners[p.Number] {
			t.Errorf("%s moved from %d to %d", &p, owners[p.Number], p.Owner.Broker)
		}
	}
	c.sameHash()
}

func TestBrokerThatComesLateAfterAWholeRestartKeepsItsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := newCluster(t)
		c.tune = func(cfg *controller.Config) {
			cfg.RestartGrace = 20 * time.Second
			if cfg.Voter {
				cfg.DataDir = dir
			}
		}
		c.voters(1)
		c.start(2, false)
		c.broker(c.nodes[1])
		c.broker(c.nodes[2])
		topic := c.topic(c.nodes[1], "t", 4, 2)
		c.net.kill("n1", "n2")
		for _, n := range c.all {
			c.stop(n)
		}
		c.start(1, true)
		c.broker(c.nodes[1])
		time.Sleep(5 * time.Second) // five sessions
		late := c.start(2, false)
		inc := c.broker(late)
		owned := 0
		for p := range late.Image().Partitions(topic) {
			if p.Owner == inc {
				owned++
			}
		}
		if owned != 2 {
			t.Errorf("the late broker owns %d of 4 partitions, it had 2", owned)
		}
	})
}

// A voter that stops does not wait for its calls to one that hangs: they would
// hold it up for Raft's timeout, ten seconds each.
func TestStopDoesNotWaitForAVoterThatHangs(t *testing.T) {
	for name, leads := range map[string]bool{"the leader hangs": true, "a follower hangs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				serving(c, 3)
				hung := c.leader()
				if !leads {
					hung = c.nodes[hung.id%3+1]
				}
				defer c.net.stall(hung.name)()
				delete(c.nodes, hung.id)
				time.Sleep(5 * time.Second) // it was asked for its vote, or sent entries
				stops := c.leader()
				begun := time.Now()
				c.stop(stops)
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("stopped in %v", took)
				}
			})
		})
	}
}
