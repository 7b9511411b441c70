package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// A client id is up to 32,767 bytes, and is part of the member id, whose length is
// two bytes in the log.
func TestLongClientIDIsRead(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("c", 32767)
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType = 3, grp, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	var resp *kmsg.JoinGroupResponse
	r.wrote(r.m.JoinGroup(r.now, group.Caller{ClientID: long}, req, func(got *kmsg.JoinGroupResponse) { resp = got }))
	r.pass(5 * time.Second)
	code(t, "JoinGroup", resp.ErrorCode, nil)
	if len(resp.MemberID) > 32767 {
		t.Fatalf("a member id has %d bytes", len(resp.MemberID))
	}
	r.sync(resp.MemberID, resp.Generation, resp.MemberID).gets("for " + resp.MemberID)
	r.crash()
	r.is("Stable", 1)
}

func TestLongInstanceIDIsRead(t *testing.T) {
	r := newRig(t)
	j := r.join("", static(strings.Repeat("i", 32767)))
	r.pass(5 * time.Second)
	id, generation := j.ok().MemberID, j.ok().Generation
	r.sync(id, generation, id).gets("for " + id)
	r.crash()
	r.is("Stable", 1)
}

// An id that was handed out is of a dynamic member.
func TestHandedOutIDIsNoStaticMember(t *testing.T) {
	r := newRig(t)
	j := r.join("", static("one"))
	first := r.join("")
	first.fails(kerr.MemberIDRequired)
	r.join(first.resp.MemberID, static("one")).fails(kerr.FencedInstanceID)
	r.join(first.resp.MemberID, static("two")).fails(kerr.UnknownMemberID)
	r.pass(5 * time.Second)
	id, generation := j.ok().MemberID, j.ok().Generation
	r.sync(id, generation, id).gets("for " + id)
}

func TestRetentionOfTheLongestIsNotShort(t *testing.T) {
	cfg, err := group.ConfigFrom(func(name string) (string, bool) {
		v, ok := map[string]string{"offsets.retention.minutes": "2147483647", "offsets.retention.check.interval.ms": "9223372036854775807"}[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.OffsetsRetention < 100*365*24*time.Hour || cfg.OffsetsRetentionCheck < 100*365*24*time.Hour {
		t.Fatalf("retention is %v, looked for every %v", cfg.OffsetsRetention, cfg.OffsetsRetentionCheck)
	}
}

// A member id that comes back as a static member is one member, and what it had is
// shared.
func TestMemberThatBecomesStaticKeepsNothing(t *testing.T) {
	b := newBench(t)
	b.topics.put("t", 4)
	one := b.subscriber("one", "t")
	b.settle(one)
	b.topics.put("u", 4)
	again := b.subscriber("one", "u")
	instance := "i"
	again.first.InstanceID = &instance
	again.beat()
	two := b.subscriber("two", "t")
	b.settle(again, two)
	if len(two.owned) != 4 || len(again.owned) != 4 {
		t.Fatalf("members have %d of u and %d of t, want 4 each", len(again.owned), len(two.owned))
	}
	b.sameAfterReplay()
}

func TestSubscriptionThatIsTooLongIsRefused(t *testing.T) {
	b := newBench(t, func(c *group.Config) { c.MaxRecordBytes = 10_000 })
	b.topics.put("t", 4)
	req := firstBeat("one", "t", strings.Repeat("x", 11_000))
	answers(t, b.beat(req), kerr.InvalidRequest)
	answers(t, b.beat(firstBeat("one", "t")), nil)
	req = request("one", 1)
	req.SubscribedTopicNames = []string{strings.Repeat("x", 11_000)}
	answers(t, b.beat(req), kerr.InvalidRequest)
	b.sameAfterReplay()
}

// An expression may match more topics than a record can have.
func TestExpressionThatMatchesVeryMuch(t *testing.T) {
	b := newBench(t, func(c *group.Config) { c.MaxRecordBytes = 10_000 })
	for i := range 100 {
		b.topics.put(fmt.Sprintf("t%02d", i)+strings.Repeat("t", 200), 1)
	}
	one := b.subscriber("one")
	expr := "t.*"
	one.first.SubscribedTopicNames, one.first.SubscribedTopicRegex = nil, &expr
	b.settle(one)
	if len(one.owned) != 100 {
		t.Fatalf("has %d partitions", len(one.owned))
	}
	for _, r := range b.log {
		if len(r.Key)+len(r.Value) > 10_000 {
			t.Fatalf("a record of %q has %d bytes", r.Key, len(r.Value))
		}
	}
	b.sameAfterReplay()
	b.failOver()
	b.settle(one)
	if len(one.owned) != 100 {
		t.Fatalf("has %d partitions after a fail-over", len(one.owned))
	}
}

// Answers are encoded when the machine does other things already.
func TestAnswersAreNobodyElses(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	joined, synced := r.join(ids[0]).ok(), (*kmsg.SyncGroupResponse)(nil)
	s := r.sync(ids[0], joined.Generation, ids[0])
	synced = s.resp
	_ = generation
	r.leave(nil, member(ids[0]))
	r.join("", static("other"), func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" })
	if *joined.ProtocolType != "consumer" || *synced.ProtocolType != "consumer" {
		t.Fatalf("the protocol types of earlier answers are %q and %q now", *joined.ProtocolType, *synced.ProtocolType)
	}

	b := newBench(t)
	first := firstBeat("one")
	expr, other := "a.*", "b.*"
	first.SubscribedTopicNames, first.SubscribedTopicRegex = nil, &expr
	answers(t, b.beat(first), nil)
	d := b.describe()
	first.SubscribedTopicRegex = &other
	answers(t, b.beat(first), nil)
	if got := *d.Members[0].SubscribedTopicRegex; got != "a.*" {
		t.Fatalf("the expression of an earlier answer is %q now", got)
	}
}
