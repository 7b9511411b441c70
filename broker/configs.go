package broker

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

// setting is a config as it holds now: its value, where that comes from, and
// every place that could have given one, the strongest first.
type setting struct {
	value    string
	source   kmsg.ConfigSource
	hidden   bool // it is a secret, or there is no value
	synonyms []synonym
}

// synonym is one place that gives a config a value.
type synonym struct {
	name, value string
	source      kmsg.ConfigSource
}

// shown is the value as clients see it: null for a secret and for none.
func (s setting) shown() *string {
	if s.hidden {
		return nil
	}
	return &s.value
}

// settle takes the strongest of the synonyms as the setting.
func settle(def metadata.ConfigDef, synonyms []synonym) setting {
	if len(synonyms) == 0 {
		return setting{source: kmsg.ConfigSourceDefaultConfig, hidden: true}
	}
	return setting{value: synonyms[0].value, source: synonyms[0].source, hidden: def.Sensitive, synonyms: synonyms}
}

// topicConfig resolves one config of a topic: the topic's override, then the
// broker's config of that meaning, then the default.
func (b *Broker) topicConfig(img *metadata.Image, overrides map[string]string, def metadata.ConfigDef) setting {
	var from []synonym
	if v, ok := overrides[def.Name]; ok {
		from = append(from, synonym{def.Name, v, kmsg.ConfigSourceDynamicTopicConfig})
	}
	hasDefault := false
	for _, name := range def.Synonyms {
		for _, s := range b.brokerSynonyms(img, name) {
			s.value = inUnitOf(def.Name, s.name, s.value)
			from = append(from, s)
			hasDefault = hasDefault || s.source == kmsg.ConfigSourceDefaultConfig
		}
	}
	if !hasDefault && !def.NoDefault {
		from = append(from, synonym{def.Name, def.Default, kmsg.ConfigSourceDefaultConfig})
	}
	return settle(def, from)
}

// inUnitOf converts a broker config in hours or minutes to the milliseconds of
// the topic config it stands for.
func inUnitOf(topicConfig, brokerConfig, value string) string {
	unit := int64(1)
	switch {
	case !strings.HasSuffix(topicConfig, ".ms"):
		return value
	case strings.HasSuffix(brokerConfig, ".hours"):
		unit = 3600_000
	case strings.HasSuffix(brokerConfig, ".minutes"):
		unit = 60_000
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return value
	}
	return strconv.FormatInt(n*unit, 10)
}

// brokerConfig resolves one config of this broker.
func (b *Broker) brokerConfig(img *metadata.Image, name string) setting {
	def, _ := metadata.LookupBrokerConfig(name)
	return settle(def, b.brokerSynonyms(img, name))
}

// brokerSynonyms are the places that give a broker config of exactly this name
// a value, the strongest first (Kafka's order: this broker, all brokers, the
// configuration it was started with, the default).
func (b *Broker) brokerSynonyms(img *metadata.Image, name string) []synonym {
	var from []synonym
	self := strconv.Itoa(int(b.cfg.NodeID))
	if v, ok := img.Config(metadata.KindBroker, self, name); ok {
		from = append(from, synonym{name, v, kmsg.ConfigSourceDynamicBrokerConfig})
	}
	if v, ok := img.Config(metadata.KindBroker, "", name); ok {
		from = append(from, synonym{name, v, kmsg.ConfigSourceDynamicDefaultBrokerConfig})
	}
	if v, ok := b.static(name); ok {
		from = append(from, synonym{name, v, kmsg.ConfigSourceStaticBrokerConfig})
	}
	if def, ok := metadata.LookupBrokerConfig(name); ok && !def.NoDefault {
		from = append(from, synonym{name, def.Default, kmsg.ConfigSourceDefaultConfig})
	}
	return from
}

// static is a config that this node was started with.
func (b *Broker) static(name string) (string, bool) {
	if v, ok := b.cfg.BrokerConfigs[name]; ok {
		return v, true
	}
	switch name {
	case "auto.create.topics.enable":
		return strconv.FormatBool(b.cfg.AutoCreateTopics), true
	case "node.id", "broker.id":
		return strconv.Itoa(int(b.cfg.NodeID)), true
	}
	return "", false
}
