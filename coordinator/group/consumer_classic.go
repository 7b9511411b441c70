package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinConsumer, syncConsumer, heartbeatConsumer and leaveConsumer serve members
// that use the classic protocol in a consumer group.
func (m *Machine) joinConsumer(now time.Time, g *Group, c *consumerGroup, j join) {
	if c.empty() {
		m.out = c.tombstones(m.out)
		classic := newClassicGroup(m, g)
		g.members = classic
		classic.join(now, j)
		return
	}
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
