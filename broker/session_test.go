package broker_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/metadata"
)

// consumer drives one fetch session by name (version 12).
type consumer struct {
	*client
	id, epoch int32
}

// open makes a session over partitions 0 to n-1 of a topic.
func (c *cluster) open(topic string, n int32) *consumer {
	c.t.Helper()
	s := &consumer{client: c.dial()}
	req := fetchRequest(0)
	req.SessionEpoch = 0
	for i := range n {
		addFetch(req, topic, metadata.TopicID{}, i, 0)
	}
	resp := ask[*kmsg.FetchResponse](s.client, 12, req)
	isCode(c.t, "open", resp.ErrorCode, nil)
	is(c.t, "partitions in the first response", len(fetchParts(resp)), int(n))
	s.id, s.epoch = resp.SessionID, 1
	return s
}

// poll sends an incremental fetch; edit changes it.
func (s *consumer) poll(edit ...func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
	s.t.Helper()
	req := fetchRequest(0)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	for _, f := range edit {
		f(req)
	}
	resp := ask[*kmsg.FetchResponse](s.client, 12, req)
	if resp.ErrorCode == 0 {
		s.epoch++
		is(s.t, "session id", resp.SessionID, s.id)
	}
	return resp
}

func moveTo(topic string, number int32, offset int64) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) { addFetch(r, topic, metadata.TopicID{}, number, offset) }
}

func forget(topic string, number int32) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.Partitions = topic, []int32{number}
		r.ForgottenTopics = append(r.ForgottenTopics, f)
	}
}

// numbers are the partitions that a response mentions.
func numbers(resp *kmsg.FetchResponse) []int32 {
	var out []int32
	for _, p := range fetchParts(resp) {
		out = append(out, p.Partition)
	}
	slices.Sort(out)
	return out
}

func mentions(t *testing.T, what string, resp *kmsg.FetchResponse, want ...int32) {
	t.Helper()
	if got := numbers(resp); !slices.Equal(got, want) {
		t.Errorf("%s: response mentions %v, want %v", what, got, want)
	}
}

// KIP-227: a response has only what changed; what was delivered but not moved
// past is sent again (Kafka 4.4).
func TestSessionSendsWhatChanged(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 5)
	s := c.open("t", 5)
	is(t, "has a session", s.id != 0, true)
	mentions(t, "nothing new", s.poll())
	w := c.dial()
	w.mustProduce("t", 2, "a")
	mentions(t, "after a produce", s.poll(), 2)
	mentions(t, "not moved past", s.poll(), 2)
	mentions(t, "moved past", s.poll(moveTo("t", 2, 1)))
	mentions(t, "still", s.poll())
	w.mustProduce("t", 2, "b")
	w.mustProduce("t", 4, "c")
	resp := s.poll()
	mentions(t, "two partitions", resp, 2, 4)
	for _, p := range fetchParts(resp) {
		is(t, "records of one batch", len(values(t, p)), 1)
	}
}

// KIP-227: forgotten partitions are not answered, and a session without any ends.
func TestSessionForgets(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 2)
	s := c.open("t", 2)
	w := c.dial()
	w.mustProduce("t", 0, "a")
	w.mustProduce("t", 1, "b")
	mentions(t, "both", s.poll(), 0, 1)
	mentions(t, "one forgotten", s.poll(forget("t", 0)), 1)
	mentions(t, "all forgotten", s.poll(forget("t", 1)))
	isCode(t, "ended", s.poll().ErrorCode, kerr.FetchSessionIDNotFound)
}

// KIP-227: epochs count up, and anything else is refused without harm.
func TestSessionEpochs(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	s := c.open("t", 1)
	epoch := func(e int32) func(*kmsg.FetchRequest) {
		return func(r *kmsg.FetchRequest) { r.SessionEpoch = e }
	}
	for _, bad := range []int32{2, 7, -2} {
		isCode(t, "wrong epoch", s.poll(epoch(bad)).ErrorCode, kerr.InvalidFetchSessionEpoch)
	}
	isCode(t, "right epoch", s.poll().ErrorCode, nil)
	isCode(t, "the same again", s.poll(epoch(1)).ErrorCode, kerr.InvalidFetchSessionEpoch)
	isCode(t, "unknown id", s.poll(func(r *kmsg.FetchRequest) { r.SessionID++ }).ErrorCode, kerr.FetchSessionIDNotFound)
	// -1 ends a session, and is a full fetch without one.
	resp := ask[*kmsg.FetchResponse](s.client, 12, func() *kmsg.FetchRequest {
		r := fetchRequest(0)
		r.SessionID, r.SessionEpoch = s.id, -1
		addFetch(r, "t", metadata.TopicID{}, 0, 0)
		return r
	}())
	is(t, "session id", resp.SessionID, 0)
	isCode(t, "ended", s.poll().ErrorCode, kerr.FetchSessionIDNotFound)
}

// Kafka 4.4: going from names to ids within a session is an error.
func TestSessionDoesNotMixNamesAndIDs(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	s := c.open("t", 1)
	req := fetchRequest(0)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	addFetch(req, "", id, 0, 0)
	resp := ask[*kmsg.FetchResponse](s.client, 13, req)
	isCode(t, "by id", resp.ErrorCode, kerr.FetchSessionTopicIDError)
	isCode(t, "by name", s.poll().ErrorCode, nil)
}

// Kafka 4.4: a partition in error is answered every time, until forgotten; and
// its recovery is told.
func TestSessionRepeatsErrors(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 2)
	s := c.open("t", 2)
	c.move(id, 1, 2)
	for range 3 {
		resp := s.poll()
		mentions(t, "moved away", resp, 1)
		isCode(t, "moved away", fetchParts(resp)[0].ErrorCode, kerr.NotLeaderForPartition)
	}
	c.move(id, 1, 1)
	resp := s.poll()
	mentions(t, "back", resp, 1)
	isCode(t, "back", fetchParts(resp)[0].ErrorCode, nil)
	mentions(t, "quiet", s.poll())
	c.must(deleteTopic(id))
	resp = s.poll()
	mentions(t, "deleted", resp, 0, 1)
	isCode(t, "deleted", fetchParts(resp)[0].ErrorCode, kerr.UnknownTopicOrPartition)
	mentions(t, "forgotten", s.poll(forget("t", 0)), 1)
}

// A topic that did not exist when the session began is found when it does.
func TestSessionFindsANewTopic(t *testing.T) {
	c := newCluster(t)
	s := c.open("later", 1)
	isCode(t, "unknown", fetchParts(s.poll())[0].ErrorCode, kerr.UnknownTopicOrPartition)
	c.topic("later", 1)
	isCode(t, "known", fetchParts(s.poll())[0].ErrorCode, nil)
}

// A waiting incremental fetch is woken by any partition of its session.
func TestSessionWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.topic("t", 50)
		s := c.open("t", 50)
		s.poll()
		done := make(chan *kmsg.FetchResponse, 1)
		go func() { done <- s.poll(func(r *kmsg.FetchRequest) { r.MaxWaitMillis = int32(long.Milliseconds()) }) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("an empty poll did not wait")
		default:
		}
		c.dial().mustProduce("t", 31, "x")
		mentions(t, "woken", <-done, 31)
	})
}

// A session serves one request at a time, whatever connection it comes on.
func TestSessionIsNotShared(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.topic("t", 1)
		s := c.open("t", 1)
		done := make(chan *kmsg.FetchResponse, 1)
		go func() {
			req := fetchRequest(long)
			req.SessionID, req.SessionEpoch = s.id, 1
			done <- ask[*kmsg.FetchResponse](s.client, 12, req)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("an empty poll did not wait")
		default:
		}
		for _, epoch := range []int32{1, 2} {
			req := fetchRequest(0)
			req.SessionID, req.SessionEpoch = s.id, epoch
			isCode(t, "at the same time", ask[*kmsg.FetchResponse](c.dial(), 12, req).ErrorCode, kerr.InvalidFetchSessionEpoch)
		}
		c.dial().mustProduce("t", 0, "x")
		mentions(t, "the first one", <-done, 0)
	})
}

// Every partition with records gets its turn, even if each response has room for
// one only (KIP-227 rotates).
func TestSessionRotates(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 4)
	w := c.dial()
	s := c.open("t", 4)
	for n := range int32(4) {
		for range 3 {
			w.mustProduce("t", n, "x")
		}
	}
	served := map[int32]int{}
	offsets := map[int32]int64{}
	var moves []func(*kmsg.FetchRequest)
	for range 8 {
		resp := s.poll(append(moves, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 })...)
		moves = nil
		for _, p := range fetchParts(resp) {
			if len(p.RecordBatches) > 0 {
				served[p.Partition]++
				offsets[p.Partition]++
				moves = append(moves, moveTo("t", p.Partition, offsets[p.Partition]))
			}
		}
	}
	for n := range int32(4) {
		is(t, "times served", served[n], 2)
	}
}

// KIP-227: a full cache gives session id 0; the fetch itself works. A session
// ends with its connection, which makes room.
func TestSessionCacheIsBounded(t *testing.T) {
	c := newCluster(t, func(_ *cluster, cfg *broker.Config) { cfg.FetchSessions = 2 })
	c.topic("t", 1)
	first, second := c.open("t", 1), c.open("t", 1)
	third := c.open("t", 1)
	is(t, "third", third.id, 0)
	isCode(t, "first lives", first.poll().ErrorCode, nil)
	_ = second.Close()
	for deadline := time.Now().Add(long); c.open("t", 1).id == 0; {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection kept its session")
		}
	}
}

// A session that was idle for two minutes gives way (Kafka's
// min.incremental.fetch.session.eviction.ms).
func TestSessionEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(c *cluster, cfg *broker.Config) { c.piped, cfg.FetchSessions = true, 1 })
		c.topic("t", 2)
		first := c.open("t", 1)
		time.Sleep(time.Minute)
		is(t, "too early", c.open("t", 1).id, 0)
		time.Sleep(time.Minute + time.Second)
		isCode(t, "the first lives", first.poll().ErrorCode, nil)
		// In use just now, but it has had its time and is the smaller.
		second := c.open("t", 2)
		is(t, "a larger one takes its place", second.id != 0, true)
		isCode(t, "the first is gone", first.poll().ErrorCode, kerr.FetchSessionIDNotFound)
		time.Sleep(2*time.Minute + time.Second)
		is(t, "an idle one gives way to a smaller", c.open("t", 1).id != 0, true)
		isCode(t, "the second is gone", second.poll().ErrorCode, kerr.FetchSessionIDNotFound)
	})
}

// A broker that the cluster gave up hears no news of its partitions. So every
// few seconds a session looks at all of them, and finds out.
func TestSessionNoticesALossThatNobodyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(c *cluster, _ *broker.Config) { c.piped = true })
		id := c.topic("t", 2)
		s := c.open("t", 2)
		mentions(t, "quiet", s.poll())
		c.setOpening(id, 1, true) // Get refuses, but nothing wakes the session
		mentions(t, "not noticed yet", s.poll())
		time.Sleep(6 * time.Second)
		resp := s.poll()
		mentions(t, "noticed", resp, 1)
		isCode(t, "partition", fetchParts(resp)[0].ErrorCode, kerr.NotLeaderForPartition)
	})
}

// Draining answers what waits.
func TestDrainingEndsPolls(t *testing.T) {
	drain := make(chan struct{})
	c := newCluster(t, func(_ *cluster, cfg *broker.Config) { cfg.Draining = drain })
	id := c.topic("t", 1)
	done := make(chan struct{})
	cl := c.dial()
	go func() {
		defer close(done)
		req := fetchRequest(long)
		addFetch(req, "t", id, 0, 0)
		ask[*kmsg.FetchResponse](cl, 12, req)
	}()
	select {
	case <-done:
		t.Fatal("an empty poll did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	begun := time.Now()
	close(drain)
	<-done
	if time.Since(begun) > long/2 {
		t.Error("draining did not end the poll")
	}
}
