package broker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/rpc"
)

// heldCluster is a broker with groups, on virtual time.
type heldCluster struct {
	t *testing.T
	*cluster
	groups *coordinator.Shards[*group.Machine]

	mu     sync.Mutex
	served map[int16]time.Duration // the longest of each API
}

func holdingCluster(t *testing.T, f func(t *testing.T, h *heldCluster)) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldCluster{t: t, served: map[int16]time.Duration{}}
		h.cluster, h.groups = coordinators(t, func(c *cluster, _ *broker.Config) { c.piped, c.onReply = true, h.note })
		f(t, h)
	})
}

func (h *heldCluster) note(s rpc.Served) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served[s.Key] = max(h.served[s.Key], s.Queued+s.Handled+s.Written)
}

// longest is how long the slowest request of an API took.
func (h *heldCluster) longest(key int16) time.Duration {
	synctest.Wait() // the last one is noted after its answer
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served[key]
}

// groupMember is a member of the group g with a connection of its own.
type groupMember struct {
	*client
	id         string
	generation int32
}

// start connects a client of that name and has it ask for a member id.
func (h *heldCluster) start(software string) *groupMember {
	h.t.Helper()
	m := &groupMember{client: h.dial()}
	hello := kmsg.NewPtrApiVersionsRequest()
	hello.ClientSoftwareName, hello.ClientSoftwareVersion = software, "1"
	isCode(h.t, "hello", ask[*kmsg.ApiVersionsResponse](m.client, 3, hello).ErrorCode, nil)
	resp := ask[*kmsg.JoinGroupResponse](m.client, 9, m.joinRequest())
	isCode(h.t, "join without an id", resp.ErrorCode, kerr.MemberIDRequired)
	m.id = resp.MemberID
	return m
}

func (m *groupMember) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "g", m.id, "consumer", 10_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{}}}
	return req
}

// join returns when the member has its assignment.
func (m *groupMember) join() {
	m.t.Helper()
	resp := ask[*kmsg.JoinGroupResponse](m.client, 9, m.joinRequest())
	isCode(m.t, "join", resp.ErrorCode, nil)
	m.generation = resp.Generation
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation, req.ProtocolType, req.Protocol = "g", m.id, m.generation, kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for _, other := range resp.Members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: other.MemberID, MemberAssignment: []byte{1}})
	}
	isCode(m.t, "sync", ask[*kmsg.SyncGroupResponse](m.client, 5, req).ErrorCode, nil)
}

// beat sends a heartbeat. The answer, or why there is none, comes in its time.
func (m *groupMember) beat() <-chan error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, "g", m.id, m.generation
	done := make(chan error, 1)
	go func() {
		resp, err := m.Do(context.Background(), req)
		if err == nil {
			err = kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// says checks an answer that must be there now.
func says(t *testing.T, done <-chan error, want *kerr.Error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if want == nil && err != nil || want != nil && err != want {
			t.Errorf("the heartbeat is answered %v, want %v", err, want)
		}
	default:
		t.Errorf("the heartbeat is not answered, want %v", want)
	}
}

// isHeld checks that a heartbeat is not answered yet.
func isHeld(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("the heartbeat is answered: %v", err)
	default:
	}
}

// holdInterval is what the members' heartbeats are apart.
const holdInterval = 3 * time.Second

// running is a member whose interval is known and a heartbeat of it that was just sent.
func (h *heldCluster) running(software string) (*groupMember, <-chan error) {
	h.t.Helper()
	m := h.start(software)
	m.join()
	says(h.t, m.beat(), nil)
	time.Sleep(holdInterval)
	return m, m.beat()
}

func TestAHeldHeartbeatHearsOfANewMember(t *testing.T) {
	for _, software := range []string{"apache-kafka-java", "librdkafka", "confluent-kafka-python", "kafka-python"} {
		t.Run(software, func(t *testing.T) {
			holdingCluster(t, func(t *testing.T, h *heldCluster) {
				one, beat := h.running(software)
				time.Sleep(time.Second)
				isHeld(t, beat)
				two := h.start(software)
				isHeld(t, beat) // nobody has joined yet
				begun := time.Now()
				joined := make(chan struct{})
				go func() {
					two.join()
					close(joined)
				}()
				says(t, beat, kerr.RebalanceInProgress)
				one.join()
				<-joined
				is(t, "generation", two.generation, one.generation)
				is(t, "the join took", time.Since(begun), 0)
				is(t, "a heartbeat took", h.longest(12), 0)
			})
		})
	}
}

func TestHeartbeatsOfOtherClientsAreNotHeld(t *testing.T) {
	for _, software := range []string{"kgo", "sarama", "apache-kafka-java2", "x"} {
		holdingCluster(t, func(t *testing.T, h *heldCluster) {
			m, beat := h.running(software)
			says(t, beat, nil)
			time.Sleep(holdInterval)
			says(t, m.beat(), nil)
		})
	}
}

// A hold ends before the next heartbeat is due.
func TestAHoldEndsBeforeTheNextHeartbeat(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		m, beat := h.running("librdkafka")
		for range 3 {
			isHeld(t, beat)
			time.Sleep(holdInterval - holdInterval/10)
			isHeld(t, beat)
			time.Sleep(holdInterval / 10)
			says(t, beat, nil)
			beat = m.beat()
		}
		is(t, "a heartbeat took", h.longest(12) < holdInterval/10, true)
	})
}

// Answers are in order: what the member asks next is not held up.
func TestTheNextRequestReleasesAHeldHeartbeat(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		m, beat := h.running("apache-kafka-java")
		begun := time.Now()
		commit := commitOf("t")
		commit.MemberID, commit.Generation = m.id, m.generation
		isCode(t, "commit", ask[*kmsg.OffsetCommitResponse](m.client, 9, commit).Topics[0].Partitions[0].ErrorCode, nil)
		says(t, beat, nil)
		beat = m.beat()
		isHeld(t, beat)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: m.id}}
		isCode(t, "leave", ask[*kmsg.LeaveGroupResponse](m.client, 5, leave).ErrorCode, nil)
		says(t, beat, nil)
		is(t, "it took", time.Since(begun), 0)
	})
}

// The session of a member that is silent ends when it should, and those with a heartbeat
// that is held hear of it.
func TestAHoldKeepsNoSession(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		one, two := h.start("kafka-python"), h.start("kafka-python")
		joined := make(chan struct{})
		go func() {
			two.join()
			close(joined)
		}()
		one.join()
		<-joined
		for _, m := range []*groupMember{one, two} {
			says(t, m.beat(), nil)
		}
		time.Sleep(holdInterval)
		last := time.Now() // that two is heard
		isHeld(t, two.beat())
		_ = two.Close()
		beat := one.beat()
		for range 3 { // sessions take 10 s
			time.Sleep(holdInterval)
			says(t, beat, nil)
			beat = one.beat()
		}
		time.Sleep(10*time.Second - time.Since(last) - time.Millisecond)
		isHeld(t, beat)
		time.Sleep(2 * time.Millisecond)
		says(t, beat, kerr.RebalanceInProgress)
	})
}

// A connection that its client closed is not kept open by a hold.
func TestAHoldEndsWithItsConnection(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		m, beat := h.running("apache-kafka-java")
		isHeld(t, beat)
		begun := time.Now()
		_ = m.Close()
		synctest.Wait()
		is(t, "connections", h.server.Conns(), 0)
		is(t, "it took", time.Since(begun), 0)
	})
}

// A coordinator that moves, and a node that stops, wait for no hold.
func TestAHoldEndsWithTheCoordinator(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		_, beat := h.running("apache-kafka-java")
		isHeld(t, beat)
		topic, _ := h.Image().Topic(groupTopic)
		p, err := h.Get(topic.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		h.groups.Closed(p)
		says(t, beat, kerr.NotCoordinator)
	})
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		_, beat := h.running("apache-kafka-java")
		isHeld(t, beat)
		begun := time.Now()
		if err := h.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		says(t, beat, nil)
		is(t, "it took", time.Since(begun), 0)
	})
}
