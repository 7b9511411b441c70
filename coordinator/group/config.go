package group

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"time"
)

// OffsetsTopic is the internal topic that groups are kept in.
const OffsetsTopic = "__consumer_offsets"

// Config are the settings of every group. Each zero field is Kafka's default, except
// where it says so.
type Config struct {
	// MinSessionTimeout and MaxSessionTimeout bound what members may ask for:
	// group.min.session.timeout.ms, default 6 s, and group.max.session.timeout.ms,
	// default 30 min. Too short a session loses members to a garbage collection,
	// too long a one keeps the partitions of a dead member unread.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// InitialRebalanceDelay is how long a group that was empty waits for more
	// members (KIP-134), and again as long as some came: group.initial.rebalance.delay.ms.
	// Default 300 ms, Kafka's is 3 s. Who comes later is not a rebalance each: the
	// members that are there hear of the first newcomer at their next heartbeat, up to
	// 3 s later, and all who come until then are in the same generation. Negative is
	// not at all: the first of many members then gets everything, for a moment.
	InitialRebalanceDelay time.Duration
	// NewMemberJoinTimeout is how long a new member may wait for its first
	// generation; default 5 min, as Kafka's constant. It cannot be told from a
	// member that died.
	NewMemberJoinTimeout time.Duration
	// MaxSize is group.max.size, the most members (KIP-389); default no limit.
	MaxSize int
	// OffsetsRetention is offsets.retention.minutes, how long the offsets of a
	// group without members are kept (KIP-211); default 7 days.
	OffsetsRetention time.Duration
	// OffsetsRetentionCheck is offsets.retention.check.interval.ms, how often old
	// offsets are looked for; default 10 min.
	OffsetsRetentionCheck time.Duration
	// OffsetMetadataMaxBytes is offset.metadata.max.bytes, the longest note with an
	// offset, in UTF-16 units, as Kafka counts; default 4096. Negative allows none.
	OffsetMetadataMaxBytes int
	// MaxRecordBytes bounds one record, in bytes; default 4 MiB less 1 KiB, what package
	// coordinator writes at once. A group whose members say more than that cannot be
	// kept and gets no generation; 1,000 members of 10,000 partitions say a quarter of
	// that.
	MaxRecordBytes int
	// Exists says whether the topic of that name has that id in the newest metadata
	// of this node; a zero id stands for any. Default: all exist.
	Exists func(topic string, id [16]byte) bool
	// Consumer are the settings of groups that the coordinator assigns (KIP-848).
	Consumer ConsumerConfig
	// Topics is the newest that the node knows of topics, at the time of the call.
	// Default: none exist.
	Topics func() Topics
	// Newest is the Config with the settings that the broker has now, another one when
	// they have changed; nil: they stay what they are.
	Newest func() *Config
	// NewID makes the part of a member id that nobody can guess; default is a
	// random UUID.
	NewID func() string
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.MinSessionTimeout, 6*time.Second)
	set(&c.MaxSessionTimeout, 30*time.Minute)
	set(&c.InitialRebalanceDelay, 300*time.Millisecond)
	set(&c.NewMemberJoinTimeout, 5*time.Minute)
	set(&c.OffsetsRetention, 7*24*time.Hour)
	set(&c.OffsetsRetentionCheck, 10*time.Minute)
	if c.MaxSize == 0 {
		c.MaxSize = 1<<31 - 1
	}
	if c.OffsetMetadataMaxBytes == 0 {
		c.OffsetMetadataMaxBytes = 4096
	}
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = 4<<20 - 1<<10
	}
	if c.Exists == nil {
		c.Exists = func(string, [16]byte) bool { return true }
	}
	if c.Topics == nil {
		c.Topics = func() Topics { return noTopics{} }
	}
	c.Consumer = c.Consumer.withDefaults()
	if c.NewID == nil {
		c.NewID = randomUUID
	}
	return c
}

// randomUUID is a version 4 UUID, which is what Kafka's member ids end in.
func randomUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// forever is longer than anybody waits, and can be added to a time.
const forever = 200 * 365 * 24 * time.Hour

// ConfigFrom reads the broker configs that concern groups from a lookup of values
// by name; a value that is absent has its default. The error names the config.
func ConfigFrom(value func(name string) (string, bool)) (Config, error) {
	var c Config
	var failed error
	number := func(name string) (int64, bool) {
		text, ok := value(name)
		if !ok {
			return 0, false
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && failed == nil {
			failed = fmt.Errorf("read config %s=%q: want a whole number", name, text)
		}
		return n, err == nil
	}
	duration := func(name string, unit time.Duration, d *time.Duration) {
		if n, ok := number(name); ok {
			// As long as can be where more is meant; zero would be the default.
			if *d = time.Duration(min(n, int64(forever/unit))) * unit; n <= 0 {
				*d = -1
			}
		}
	}
	size := func(name string, s *int) {
		if n, ok := number(name); ok {
			if *s = int(n); n <= 0 {
				*s = -1
			}
		}
	}
	duration("group.min.session.timeout.ms", time.Millisecond, &c.MinSessionTimeout)
	duration("group.max.session.timeout.ms", time.Millisecond, &c.MaxSessionTimeout)
	duration("group.initial.rebalance.delay.ms", time.Millisecond, &c.InitialRebalanceDelay)
	duration("offsets.retention.minutes", time.Minute, &c.OffsetsRetention)
	duration("offsets.retention.check.interval.ms", time.Millisecond, &c.OffsetsRetentionCheck)
	size("group.max.size", &c.MaxSize)
	size("offset.metadata.max.bytes", &c.OffsetMetadataMaxBytes)
	duration("group.consumer.session.timeout.ms", time.Millisecond, &c.Consumer.SessionTimeout)
	duration("group.consumer.heartbeat.interval.ms", time.Millisecond, &c.Consumer.HeartbeatInterval)
	duration("group.consumer.min.session.timeout.ms", time.Millisecond, &c.Consumer.MinSessionTimeout)
	duration("group.consumer.max.session.timeout.ms", time.Millisecond, &c.Consumer.MaxSessionTimeout)
	duration("group.consumer.min.heartbeat.interval.ms", time.Millisecond, &c.Consumer.MinHeartbeatInterval)
	duration("group.consumer.max.heartbeat.interval.ms", time.Millisecond, &c.Consumer.MaxHeartbeatInterval)
	duration("group.consumer.assignment.interval.ms", time.Millisecond, &c.Consumer.AssignmentInterval)
	duration("group.consumer.min.assignment.interval.ms", time.Millisecond, &c.Consumer.MinAssignmentInterval)
	duration("group.consumer.max.assignment.interval.ms", time.Millisecond, &c.Consumer.MaxAssignmentInterval)
	size("group.consumer.max.size", &c.Consumer.MaxSize)
	if failed == nil {
		failed = c.Consumer.read(value)
	}
	return c, failed
}
