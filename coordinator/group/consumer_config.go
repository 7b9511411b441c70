package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ponor/coordinator/group/assignor"
)

// ConsumerConfig are the settings of consumer groups. Each zero field is Kafka's
// default, except where it says so.
type ConsumerConfig struct {
	// SessionTimeout is group.consumer.session.timeout.ms, default 45 s: a member
	// that is not heard of for that long is dead. HeartbeatInterval is
	// group.consumer.heartbeat.interval.ms: how often members are told to be heard,
	// and so how long each step of a rebalance takes at most; one that waits for
	// partitions of others is told a tenth of it. Default 3 s, as often as classic
	// members; Kafka's is 5 s.
	SessionTimeout, HeartbeatInterval time.Duration
	// AssignmentInterval is group.consumer.assignment.interval.ms (KIP-1263): for so long
	// a group keeps an assignment before it gets the next, however many members come and
	// go meanwhile. Default 1 s; negative is not at all.
	AssignmentInterval time.Duration
	// SmallGroup is up to how many members a group is assigned anew at once by each
	// change: that costs little, and whoever joins a few others waits for nothing.
	// Default 16, negative for no group.
	SmallGroup int
	// Of returns what one group is set to instead. Default: nothing is. The bounds of
	// that are group.consumer.min.session.timeout.ms, default 45 s, and so on: 60 s, 1 s
	// (Kafka's is 5 s), 15 s, 0 and 15 s.
	Of                                           func(group string) ConsumerSettings
	MinSessionTimeout, MaxSessionTimeout         time.Duration
	MinHeartbeatInterval, MaxHeartbeatInterval   time.Duration
	MinAssignmentInterval, MaxAssignmentInterval time.Duration
	// MaxSize is group.consumer.max.size, the most members; default no limit.
	MaxSize int
	// Assignors is group.consumer.assignors, those that members may ask for; the
	// first is for who asks for none. Default uniform and range.
	Assignors []string
	// Migration is group.consumer.migration.policy, whether groups may change their
	// protocol while they have members; default MigrateBoth.
	Migration Migration
}

// ConsumerSettings are the configs of one group: consumer.session.timeout.ms,
// consumer.heartbeat.interval.ms and consumer.assignment.interval.ms. Zero is not set;
// a negative AssignmentInterval is none.
type ConsumerSettings struct {
	SessionTimeout, HeartbeatInterval, AssignmentInterval time.Duration
}

// ConsumerSettingsFrom reads the configs of one group from a lookup of those that it
// has, which were checked when they were set.
func ConsumerSettingsFrom(value func(name string) (string, bool)) ConsumerSettings {
	ms := func(name string) time.Duration {
		text, ok := value(name)
		number, _ := strconv.Atoi(text) // none is zero
		if ok && number == 0 {
			return -1
		}
		return time.Duration(number) * time.Millisecond
	}
	return ConsumerSettings{
		SessionTimeout: ms("consumer.session.timeout.ms"), HeartbeatInterval: ms("consumer.heartbeat.interval.ms"),
		AssignmentInterval: ms("consumer.assignment.interval.ms"),
	}
}

// Migration says in which direction groups with members may change their protocol.
type Migration string

// The migration policies, by Kafka's names.
const (
	MigrateBoth  Migration = "bidirectional"
	MigrateUp    Migration = "upgrade"   // classic to consumer
	MigrateDown  Migration = "downgrade" // consumer to classic
	MigrateNever Migration = "disabled"
)

func (m Migration) up() bool   { return m == MigrateBoth || m == MigrateUp }
func (m Migration) down() bool { return m == MigrateBoth || m == MigrateDown }

// withDefaults fills the zero fields.
func (c ConsumerConfig) withDefaults() ConsumerConfig {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.SessionTimeout, 45*time.Second)
	set(&c.HeartbeatInterval, 3*time.Second)
	set(&c.MinSessionTimeout, 45*time.Second)
	set(&c.MaxSessionTimeout, time.Minute)
	set(&c.MinHeartbeatInterval, time.Second)
	set(&c.MaxHeartbeatInterval, 15*time.Second)
	if c.AssignmentInterval == 0 {
		c.AssignmentInterval = time.Second
	}
	if c.MaxAssignmentInterval == 0 {
		c.MaxAssignmentInterval = 15 * time.Second
	}
	if c.SmallGroup == 0 {
		c.SmallGroup = 16
	}
	if c.Of == nil {
		c.Of = func(string) ConsumerSettings { return ConsumerSettings{} }
	}
	if c.MaxSize == 0 {
		c.MaxSize = 1<<31 - 1
	}
	if len(c.Assignors) == 0 {
		c.Assignors = []string{"uniform", "range"}
	}
	if c.Migration == "" {
		c.Migration = MigrateBoth
	}
	return c
}

// sessionTimeout is that of one group.
func (c *ConsumerConfig) sessionTimeout(group string) time.Duration {
	if d := c.Of(group).SessionTimeout; d > 0 {
		return min(max(d, c.MinSessionTimeout), c.MaxSessionTimeout)
	}
	return c.SessionTimeout
}

// heartbeatInterval is that of one group.
func (c *ConsumerConfig) heartbeatInterval(group string) time.Duration {
	if d := c.Of(group).HeartbeatInterval; d > 0 {
		return min(max(d, c.MinHeartbeatInterval), c.MaxHeartbeatInterval)
	}
	return c.HeartbeatInterval
}

// assignmentInterval is that of one group; none is not positive.
func (c *ConsumerConfig) assignmentInterval(group string) time.Duration {
	if d := c.Of(group).AssignmentInterval; d != 0 {
		return min(max(d, c.MinAssignmentInterval), c.MaxAssignmentInterval)
	}
	return c.AssignmentInterval
}

// read takes the settings that are no numbers.
func (c *ConsumerConfig) read(value func(name string) (string, bool)) error {
	if text, ok := value("group.consumer.assignors"); ok && text != "" {
		for name := range strings.SplitSeq(text, ",") {
			name = strings.TrimSpace(name)
			if _, ok := assignor.Named(name); !ok {
				return fmt.Errorf("read config group.consumer.assignors=%q: there is no assignor %q; choose of uniform, range", text, name)
			}
			c.Assignors = append(c.Assignors, name)
		}
	}
	if text, ok := value("group.consumer.migration.policy"); ok && text != "" {
		c.Migration = Migration(strings.ToLower(text))
		if !slices.Contains([]Migration{MigrateBoth, MigrateUp, MigrateDown, MigrateNever}, c.Migration) {
			return fmt.Errorf("read config group.consumer.migration.policy=%q: choose of bidirectional, upgrade, downgrade, disabled", text)
		}
	}
	return nil
}
