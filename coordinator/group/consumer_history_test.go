package group_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ponor/coordinator/group"
	"ponor/coordinator/group/assignor"
)

// saga is one random history of a consumer group.
type saga struct {
	*bench
	r       *rand.Rand
	clients []*subscriber
	made    int
	epochs  [2]int32 // group and assignment
}

var sagaTopics = []string{"foo", "bar", "baz"}

func (s *saga) join() {
	s.made++
	c := s.subscriber(fmt.Sprintf("member-%d", s.made))
	for _, t := range sagaTopics {
		if s.r.IntN(3) > 0 {
			c.first.SubscribedTopicNames = append(c.first.SubscribedTopicNames, t)
		}
	}
	switch s.r.IntN(4) {
	case 0:
		c.first.SubscribedTopicRegex = ptr("ba.")
	case 1:
		c.first.RackID = ptr([]string{"a", "b"}[s.r.IntN(2)])
	case 2:
		c.first.InstanceID = ptr(fmt.Sprintf("instance-%d", s.made))
	}
	c.first.ServerAssignor = []*string{nil, ptr("range"), ptr("uniform")}[s.r.IntN(3)]
	s.clients = append(s.clients, c)
}

func (s *saga) step() {
	if len(s.clients) == 0 {
		s.join()
		return
	}
	i := s.r.IntN(len(s.clients))
	c := s.clients[i]
	switch s.r.IntN(24) {
	case 0:
		s.join()
	case 1: // leaves
		s.beat(request(c.id, -1))
		s.clients = slices.Delete(s.clients, i, i+1)
	case 2: // dies
		s.clients = slices.Delete(s.clients, i, i+1)
	case 3: // restarts
		if c.first.InstanceID != nil && c.epoch > 0 {
			req := request(c.id, -2)
			req.InstanceID = c.first.InstanceID
			s.beat(req)
			s.made++
			again := s.subscriber(fmt.Sprintf("member-%d", s.made))
			id := again.first.MemberID
			again.first = c.first
			again.first.MemberID = id
			s.clients[i] = again
		}
	case 4:
		s.topics.put(sagaTopics[s.r.IntN(3)], int32(1+s.r.IntN(6)), []string{"a", "b"}[s.r.IntN(2)])
	case 5:
		s.topics.drop(sagaTopics[s.r.IntN(3)])
	case 6:
		s.pass(time.Duration(s.r.IntN(40)) * time.Second)
	case 7:
		s.failOver()
	case 8, 9:
		c.lose()
	default:
		s.pass(time.Duration(s.r.IntN(3000)) * time.Millisecond)
		c.beat()
	}
}

// check looks at what must hold at every moment.
func (s *saga) check() {
	s.t.Helper()
	d := s.describe()
	if got := [2]int32{d.Epoch, d.AssignmentEpoch}; got[0] < s.epochs[0] || got[1] < s.epochs[1] || got[1] > got[0] {
		s.t.Fatalf("C2: group and assignment epoch went from %v to %v", s.epochs, got)
	} else {
		s.epochs = got
	}
	alive := make(map[string]bool)
	for _, m := range d.Members {
		alive[m.MemberID] = true
		if m.MemberEpoch > d.AssignmentEpoch {
			s.t.Fatalf("C2: member %s is at epoch %d, the assignment at %d", m.MemberID, m.MemberEpoch, d.AssignmentEpoch)
		}
	}
	owners := make(map[assignor.Partition]string)
	for _, c := range s.clients {
		if !alive[c.id] {
			continue // it will be told that it is fenced
		}
		for p := range c.owned {
			if other, twice := owners[p]; twice {
				s.t.Fatalf("C1: %s and %s both read %v", other, c.id, p)
			}
			owners[p] = c.id
		}
	}
	s.sameAfterReplay()
}

// end lets the group settle and checks that everything is read.
func (s *saga) end() {
	s.t.Helper()
	s.settle(s.clients...)
	s.check()
	owned := make(map[assignor.Partition]bool)
	for _, c := range s.clients {
		for p := range c.owned {
			owned[p] = true
		}
	}
	want := 0
	for name, topic := range s.topics.topics {
		read := slices.ContainsFunc(s.clients, func(c *subscriber) bool {
			return slices.Contains(c.first.SubscribedTopicNames, name) || c.first.SubscribedTopicRegex != nil && name != "foo"
		})
		if !read {
			continue
		}
		for n := range topic.Partitions {
			want++
			if !owned[assignor.Partition{Topic: topic.ID, Number: n}] {
				s.t.Fatalf("nobody reads %s-%d in the end", name, n)
			}
		}
	}
	if len(owned) != want {
		s.t.Fatalf("%d partitions are read, %d exist", len(owned), want)
	}
}

func TestConsumerGroupHistories(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := &saga{bench: newBench(t, func(c *group.Config) {
				c.Consumer.SessionTimeout = 30 * time.Second
				if seed%2 == 1 {
					restsFor(time.Duration(1+seed%8) * time.Second)(c)
				}
			}), r: rand.New(rand.NewPCG(seed, 848))}
			s.topics.put("foo", 3)
			s.topics.put("bar", 4, "a")
			for range 120 {
				s.step()
				s.check()
			}
			s.end()
		})
	}
}
