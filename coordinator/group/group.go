package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/coordinator"
)

// Group is one group: its offsets, and its members by one of two protocols.
type Group struct {
	id string
	// offsets are what was committed, by topic in order.
	offsets []topicOffsets
	// members is a *classicGroup or a *consumerGroup. A group that only keeps
	// offsets (a "simple" one) is an empty classic one without a protocol type.
	members membership
	// history is for operators: what the members did lately.
	history history
	// wake is when the machine looks at the group next, zero for never; timer is
	// its place in the machine's heap, -1 for none.
	wake  time.Time
	timer int
}

// Caller is who sent a request.
type Caller struct {
	ClientID string
	// Host is the client's address as Kafka shows it: "/127.0.0.1".
	Host string
}

// identity is what a request says of who commits or fetches offsets.
type identity struct {
	member   string
	instance *string
	// generation is the generation of a classic group or the member epoch of a
	// consumer group; negative for none.
	generation int32
	// version is the request's.
	version int16
	// transactional commits come by TxnOffsetCommit.
	transactional bool
}

// membership is what differs between the kinds of groups. Methods that check answer
// nil for yes.
type membership interface {
	// kind is the group type, protocolType and state what ListGroups shows.
	kind() string
	protocolType() string
	state() string
	// empty groups have no members and can be deleted.
	empty() bool
	// checkCommit says whether who may commit offsets; a member that may has shown
	// that it lives.
	checkCommit(now time.Time, who identity) *kerr.Error
	// checkFetch says whether who may read offsets that says who it is.
	checkFetch(who identity) *kerr.Error
	// checkOffsetDelete says whether offsets of topics that nobody subscribes to may
	// be deleted.
	checkOffsetDelete() *kerr.Error
	// subscribed says whether a member reads the topic; unknown is yes.
	subscribed(topic string) bool
	// expiresSince is from when (ms) the retention of an offset counts that was
	// committed at the given time (ms); false if it does not expire now.
	expiresSince(committed int64) (int64, bool)

	// live yields the live records of the membership, false once yield said so.
	live(yield func(coordinator.Record) bool) bool
	// tombstones adds the records that delete them.
	tombstones(records []coordinator.Record) []coordinator.Record
	// loaded ends the replay.
	loaded(now time.Time)
	// next is when tick wants to be called, zero for never.
	next() time.Time
	// delay puts off all that next counts.
	delay(d time.Duration)
	// tick does what is due.
	tick(now time.Time)
}
