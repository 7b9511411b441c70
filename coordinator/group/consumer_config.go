package group

import (
	"fmt"
	"slices"
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
	// Of returns what one group is set to instead, its configs consumer.session.timeout.ms
	// and consumer.heartbeat.interval.ms; zero is not set. Default: none is. The bounds of
	// that are group.consumer.min.session.timeout.ms, default 45 s, and so on: 60 s, 1 s
	// (Kafka's is 5 s) and 15 s.
	Of                                         func(group string) (sessionTimeout, heartbeatInterval time.Duration)
	MinSessionTimeout, MaxSessionTimeout       time.Duration
	MinHeartbeatInterval, MaxHeartbeatInterval time.Duration
	// MaxSize is group.consumer.max.size, the most members; default no limit.
	MaxSize int
	// Assignors is group.consumer.assignors, those that members may ask for; the
	// first is for who asks for none. Default uniform and range.
	Assignors []string
	// Migration is group.consumer.migration.policy, whether groups may change their
	// protocol while they have members; default MigrateBoth.
	Migration Migration
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
	if c.Of == nil {
		c.Of = func(string) (time.Duration, time.Duration) { return 0, 0 }
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
	if d, _ := c.Of(group); d > 0 {
		return min(max(d, c.MinSessionTimeout), c.MaxSessionTimeout)
	}
	return c.SessionTimeout
}

// heartbeatInterval is that of one group.
func (c *ConsumerConfig) heartbeatInterval(group string) time.Duration {
	if _, d := c.Of(group); d > 0 {
		return min(max(d, c.MinHeartbeatInterval), c.MaxHeartbeatInterval)
	}
	return c.HeartbeatInterval
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
