package group

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/coordinator/group/assignor"
	"ponor/internal/wall"
)

// Topics is one version of what the node knows of topics.
type Topics interface {
	// Version counts up with all that the node hears of.
	Version() uint64
	// Marks are the same as long as nothing has changed of the topics and how many
	// partitions they have, and of the racks of these.
	Marks() (topics, racks any)
	// Topic is a topic by its name.
	Topic(name string) (assignor.Topic, bool)
	// Name is the name of the topic with an id.
	Name(id [16]byte) (string, bool)
	// Names are the topics that a regular expression may match.
	Names() iter.Seq[string]
}

// noTopics is the default.
type noTopics struct{}

func (noTopics) Version() uint64                     { return 0 }
func (noTopics) Marks() (topics, racks any)          { return nil, nil }
func (noTopics) Topic(string) (assignor.Topic, bool) { return assignor.Topic{}, false }
func (noTopics) Name([16]byte) (string, bool)        { return "", false }
func (noTopics) Names() iter.Seq[string]             { return func(func(string) bool) {} }

// resolved are the topics that matched a regular expression.
type resolved struct {
	topics  []string // sorted
	version int64    // of the topics
	at      int64    // ms
}

// lookInterval is how often a group looks whether its topics have changed, at most:
// the marks also change for those of others.
const lookInterval = time.Second

// compile reads a regular expression, which must match the whole name. Go's are
// RE2's, as Kafka's broker has them.
func compile(expr string) (*regexp.Regexp, *refusal) {
	if _, err := regexp.Compile(expr); err != nil {
		return nil, refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", expr, err)
	}
	re, err := regexp.Compile(`\A(?:` + expr + `)\z`)
	if err != nil {
		return nil, refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", expr, err)
	}
	return re, nil
}

// resolve finds the topics of the members' expressions anew, and forgets those that
// nobody uses. With all false it leaves those that are known.
func (c *consumerGroup) resolve(now time.Time, all bool) {
	used := make(map[string]bool)
	for _, m := range c.members {
		if m.regex != "" {
			used[m.regex] = true
		}
	}
	for _, expr := range slices.Sorted(maps.Keys(c.regexes)) {
		if !used[expr] {
			delete(c.regexes, expr)
			c.erase(memberKey(keyConsumerRegex, c.g.id, expr))
			c.reads = nil
		}
	}
	for _, expr := range slices.Sorted(maps.Keys(used)) {
		old, known := c.regexes[expr]
		if known && !all {
			continue
		}
		topics := c.matching(expr)
		if known && slices.Equal(old.topics, topics) {
			continue
		}
		c.regexes[expr] = resolved{topics: topics, version: int64(c.m.cfg().Topics().Version()), at: wall.Milli(now)}
		c.writeRegex(expr)
		c.reads = nil
	}
}

func (c *consumerGroup) matching(expr string) []string {
	re, err := compile(expr)
	if err != nil {
		return nil // a newer version took it
	}
	topics := []string{}
	for name := range c.m.cfg().Topics().Names() {
		if re.MatchString(name) {
			topics = append(topics, name)
		}
	}
	slices.Sort(topics)
	return topics
}

// subscriptions are the names of all topics that some member reads.
func (c *consumerGroup) subscriptions() map[string]struct{} {
	if c.reads == nil {
		c.reads = make(map[string]struct{})
		for _, m := range c.members {
			for _, t := range m.topics {
				c.reads[t] = struct{}{}
			}
			for _, t := range c.regexes[m.regex].topics {
				c.reads[t] = struct{}{}
			}
		}
	}
	return c.reads
}

// look compares the topics with what they were when the epoch began, if they may have
// changed, now and then or at once, and says whether they differ.
func (c *consumerGroup) look(now time.Time, atOnce bool) bool {
	topics := c.m.cfg().Topics()
	names, racks := topics.Marks()
	if c.racks != racks && !c.sayRacks() {
		c.racks = racks
	}
	same := c.names == names && c.racks == racks
	if !atOnce && !c.looked.IsZero() && (same || now.Sub(c.looked) < lookInterval) {
		return false
	}
	if c.names != names || c.looked.IsZero() {
		c.resolve(now, true)
	}
	seen := seenTopics{names: slices.Sorted(maps.Keys(c.subscriptions())), racks: c.sayRacks()}
	if same && !c.looked.IsZero() && seen.racks == c.seen.racks && slices.Equal(seen.names, c.seen.names) {
		c.looked = now
		return false // one more member that reads what others read
	}
	c.looked, c.names, c.racks, c.seen = now, names, racks, seen
	hash := c.hashTopics(topics, seen)
	changed := hash != c.hash
	c.hash = hash
	return changed
}

// sayRacks says whether some member said where it is.
func (c *consumerGroup) sayRacks() bool {
	for _, m := range c.members {
		if m.rack != nil {
			return true
		}
	}
	return false
}

// seenTopics are the names of topics that a hash was made of, sorted, and whether it is
// also of their racks.
type seenTopics struct {
	names []string
	racks bool
}

// hashTopics is a number for all that an assignment is made of besides members. The
// racks of replicas are part of it only if some member says where it is: partitions
// that move to another rack shall disturb nobody else.
func (c *consumerGroup) hashTopics(topics Topics, seen seenTopics) int64 {
	h := fnv.New64a()
	var number [4]byte
	for _, name := range seen.names {
		t, ok := topics.Topic(name)
		if !ok {
			continue
		}
		_, _ = h.Write([]byte(name))
		_, _ = h.Write(t.ID[:])
		binary.BigEndian.PutUint32(number[:], uint32(t.Partitions))
		_, _ = h.Write(number[:])
		if !seen.racks {
			continue
		}
		for _, list := range t.Racks {
			list = slices.Clone(list)
			slices.Sort(list)
			for _, rack := range list {
				_, _ = h.Write([]byte(rack))
				_, _ = h.Write([]byte{0})
			}
			_, _ = h.Write([]byte{1})
		}
	}
	return int64(h.Sum64())
}

// bump begins a new group epoch.
func (c *consumerGroup) bump() {
	c.epoch++
	c.settled = false
	c.writeEpoch()
}

// catchUp makes a new epoch if the group needs one, and the targets of the newest, or
// leaves that to a later heartbeat if the group rests.
func (c *consumerGroup) catchUp(now time.Time, bump bool) {
	if c.look(now, bump) || bump {
		c.bump()
	}
	if c.epoch > c.targetEpoch && c.rest(now) <= 0 {
		c.assign(now)
	}
}

// rest is how long the group keeps its targets yet. An assignment of a large group is
// dear, above all to the members, which give up and take partitions for it: those that
// come within the rest share one.
func (c *consumerGroup) rest(now time.Time) time.Duration {
	cfg := &c.m.cfg().Consumer
	if c.made.IsZero() || len(c.members) <= cfg.SmallGroup {
		return 0
	}
	return c.made.Add(cfg.assignmentInterval(c.g.id)).Sub(now)
}

// assign makes the targets of the group epoch.
func (c *consumerGroup) assign(now time.Time) {
	topics := c.m.cfg().Topics()
	known := make(map[string]assignor.Topic)
	var list []assignor.Topic
	for _, name := range slices.Sorted(maps.Keys(c.subscriptions())) {
		if t, ok := topics.Topic(name); ok {
			known[name] = t
			list = append(list, t)
		}
	}
	ids := slices.Sorted(maps.Keys(c.members))
	members := make([]assignor.Member, len(ids))
	for i, id := range ids {
		m := c.members[id]
		am := assignor.Member{ID: id, Owned: c.targets[id].sorted()}
		if m.instance != nil {
			am.Instance = *m.instance
		}
		if m.rack != nil {
			am.Rack = *m.rack
		}
		for _, name := range c.topicsOf(m) {
			if t, ok := known[name]; ok {
				am.Topics = append(am.Topics, t.ID)
			}
		}
		members[i] = am
	}
	use, _ := assignor.Named(c.assignorName())
	for i, given := range use(list, members) {
		target := make(partitionSet, len(given))
		for _, p := range given {
			target[p] = 0
		}
		if old, ok := c.targets[ids[i]]; !ok || !old.sameKeys(target) {
			c.targets[ids[i]] = target
			c.writeTarget(ids[i])
		}
	}
	c.targetEpoch, c.made = c.epoch, now
	c.writeTargetEpoch()
	c.g.history.joined(now, c.epoch, len(c.members))
}

// topicsOf are the names of what a member reads, each once.
func (c *consumerGroup) topicsOf(m *consumerMember) []string {
	matched := c.regexes[m.regex].topics
	if m.regex == "" || len(matched) == 0 {
		return m.topics
	}
	all := slices.Concat(m.topics, matched)
	slices.Sort(all)
	return slices.Compact(all)
}

// hasUnread says whether the target of a member has partitions of topics that it does
// not read.
func (c *consumerGroup) hasUnread(m *consumerMember) bool {
	if len(c.targets[m.id]) == 0 {
		return false
	}
	reads := make(map[[16]byte]bool)
	for _, name := range c.topicsOf(m) {
		if t, ok := c.m.cfg().Topics().Topic(name); ok {
			reads[t.ID] = true
		}
	}
	for p := range c.targets[m.id] {
		if !reads[p.Topic] {
			return true
		}
	}
	return false
}

// assignorName is what most members ask for; who asks for none has the first that is
// configured.
func (c *consumerGroup) assignorName() string {
	votes := make(map[string]int)
	for _, m := range c.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	best := c.m.cfg().Consumer.Assignors[0]
	for _, name := range c.m.cfg().Consumer.Assignors {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}
