package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// consumerGroup is the membership of a group whose members are assigned by the
// coordinator (KIP-848).
type consumerGroup struct{}

var _ membership = (*consumerGroup)(nil)

// replayConsumer takes a record of a consumer group, whose key has that version.
// Those of versions that it does not know are skipped.
func (m *Machine) replayConsumer(version int16, r coordinator.Record) error {
	_, _ = version, r
	return nil
}

func (c *consumerGroup) kind() string         { return "consumer" }
func (c *consumerGroup) protocolType() string { return "consumer" }
func (c *consumerGroup) state() string        { return "Empty" }
func (c *consumerGroup) empty() bool          { return true }

func (c *consumerGroup) checkCommit(time.Time, identity) *kerr.Error { return nil }
func (c *consumerGroup) checkFetch(identity) *kerr.Error             { return nil }
func (c *consumerGroup) checkOffsetDelete() *kerr.Error              { return nil }
func (c *consumerGroup) subscribed(string) bool                      { return false }

func (c *consumerGroup) expiresSince(committed int64) (int64, bool) { return committed, true }

func (c *consumerGroup) live(func(coordinator.Record) bool) bool { return true }

func (c *consumerGroup) tombstones(records []coordinator.Record) []coordinator.Record {
	return records
}

func (c *consumerGroup) loaded(time.Time) {}
func (c *consumerGroup) next() time.Time  { return time.Time{} }
func (c *consumerGroup) tick(time.Time)   {}

// joinConsumer, syncConsumer, heartbeatConsumer and leaveConsumer serve members
// that use the classic protocol in a consumer group.
func (m *Machine) joinConsumer(_ time.Time, _ *Group, _ *consumerGroup, j join) {
	j.fail(j.req.MemberID, kerr.InconsistentGroupProtocol)
}

func (m *Machine) syncConsumer(_ time.Time, _ *Group, _ *consumerGroup, _ *kmsg.SyncGroupRequest, reply func(*kmsg.SyncGroupResponse)) {
	reply(failedSync(kerr.UnknownMemberID))
}

func (m *Machine) heartbeatConsumer(time.Time, *Group, *consumerGroup, *kmsg.HeartbeatRequest) *kerr.Error {
	return kerr.UnknownMemberID
}

func (m *Machine) leaveConsumer(time.Time, *Group, *consumerGroup, kmsg.LeaveGroupRequestMember) *kerr.Error {
	return kerr.UnknownMemberID
}
