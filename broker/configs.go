package broker

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

// setting is a config as it holds now: its value, where that comes from, and
// every place that gives one, the strongest first.
type setting struct {
	value    string
	source   metadata.ConfigSource
	hidden   bool // it is a secret, or there is no value
	synonyms []metadata.ConfigValue
}

// shown is the value as clients see it: null for a secret and for none.
func (s setting) shown() *string {
	if s.hidden {
		return nil
	}
	return &s.value
}

// kafkaSource is the source as kmsg has it; the numbers are the same.
func (s setting) kafkaSource() kmsg.ConfigSource { return kmsg.ConfigSource(s.source) }

// settle takes the strongest of the values as the setting.
func settle(def metadata.ConfigDef, values []metadata.ConfigValue) setting {
	if len(values) == 0 {
		return setting{source: metadata.SourceDefault, hidden: true}
	}
	return setting{value: values[0].Value, source: values[0].Source, hidden: def.Sensitive, synonyms: values}
}

// topicConfig is one config of a topic. overrides are those of a topic that may
// not be in the image yet; nil takes the image's.
func topicConfig(img *metadata.Image, topic string, overrides map[string]string, def metadata.ConfigDef) setting {
	effective, values, ok := img.TopicConfig(topic, def)
	if v, set := overrides[def.Name]; set && (!ok || values[0].Source != metadata.SourceTopic) {
		values = slices.Insert(values, 0, metadata.ConfigValue{Name: def.Name, Value: v, Source: metadata.SourceTopic})
		effective = v
	}
	s := settle(def, values)
	s.value = effective // values[0] may be in hours
	return s
}

// brokerConfig is one config of this broker, in Kafka's order: set for this
// broker, set for all, what it was started with, the default.
func (b *Broker) brokerConfig(img *metadata.Image, name string) setting {
	def, _ := metadata.LookupBrokerConfig(name)
	values := img.BrokerConfig(b.cfg.NodeID, def)
	if v, ok := b.static(name); ok {
		at := len(values)
		if at > 0 && values[at-1].Source == metadata.SourceDefault {
			at--
		}
		values = slices.Insert(values, at, metadata.ConfigValue{Name: name, Value: v, Source: metadata.SourceStaticBroker})
	}
	return settle(def, values)
}

// intConfig is a whole number among this broker's configs.
func (b *Broker) intConfig(img *metadata.Image, name string, def int) int {
	if n, err := strconv.Atoi(b.brokerConfig(img, name).value); err == nil {
		return n
	}
	return def
}

// static is a config that this node was started with.
func (b *Broker) static(name string) (string, bool) {
	if v, ok := b.cfg.BrokerConfigs[name]; ok {
		return v, true
	}
	switch name {
	case "auto.create.topics.enable":
		return strconv.FormatBool(b.cfg.AutoCreateTopics), true
	case "fetch.max.bytes":
		return strconv.Itoa(b.cfg.FetchMaxBytes), true
	case "node.id", "broker.id":
		return strconv.Itoa(int(b.cfg.NodeID)), true
	}
	return "", false
}
