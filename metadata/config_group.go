package metadata

import (
	"fmt"
	"slices"
	"strings"
)

// groupConfigs is the table of the configs of single groups: those of Apache Kafka 4.4
// for consumer groups (KIP-848), the only groups that have any here. It is sorted by
// name. The synonym is the broker config that gives the default; each value has to be
// within the bounds that other broker configs give.
var groupConfigs = []ConfigDef{
	{Name: "consumer.assignment.interval.ms", Type: TypeInt, Default: "1000", Bounded: true, Min: 0, Max: maxInt32, Dynamic: true,
		Doc: "How long the group keeps an assignment before it gets the next: changes that come meanwhile share one. Groups of up to 16 members are assigned anew at once.", Synonyms: []string{"group.consumer.assignment.interval.ms"}},
	{Name: "consumer.assignor.offload.enable", Type: TypeBoolean, Default: "true", Dynamic: true, Ignored: true,
		Doc: "Whether another thread assigns; here each partition of __consumer_offsets has its own lock.", Synonyms: []string{"group.consumer.assignor.offload.enable"}},
	{Name: "consumer.heartbeat.interval.ms", Type: TypeInt, Default: "3000", Bounded: true, Min: 1, Max: maxInt32, Dynamic: true,
		Doc: "How often the members of the group are told to send heartbeats.", Synonyms: []string{"group.consumer.heartbeat.interval.ms"}},
	{Name: "consumer.session.timeout.ms", Type: TypeInt, Default: "45000", Bounded: true, Min: 1, Max: maxInt32, Dynamic: true,
		Doc: "How long a member of the group may be silent before it is taken for dead.", Synonyms: []string{"group.consumer.session.timeout.ms"}},
}

// GroupConfigs is the table of group configs by name. The slice is the caller's.
func GroupConfigs() []ConfigDef { return slices.Clone(groupConfigs) }

// LookupGroupConfig finds a group config by name.
func LookupGroupConfig(name string) (ConfigDef, bool) { return lookup(groupConfigs, name) }

// ValidateGroupConfig is ValidateTopicConfig for a config of a group, within the bounds
// that are set for all groups.
func (img *Image) ValidateGroupConfig(name, value string) error {
	d, ok := LookupGroupConfig(name)
	if !ok {
		return unknownConfig("group", name, nearest(groupConfigs, name))
	}
	if err := d.Validate(value); err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(name, ".")
	for i, bound := range []string{"min", "max"} {
		b, ok := LookupBrokerConfig("group." + kind + "." + bound + "." + rest)
		if !ok {
			continue
		}
		n, _ := parseInt(strings.TrimSpace(value))
		limit, _ := parseInt(strings.TrimSpace(img.BrokerConfig(-1, b)[0].Value))
		if i == 0 && n < limit || i == 1 && n > limit {
			return fmt.Errorf("invalid value %s for config %s: %s is %d", value, name, b.Name, limit)
		}
	}
	return nil
}
