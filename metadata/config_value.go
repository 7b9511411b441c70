package metadata

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ponor/internal/editdistance"
)

// TopicConfigs is the table of topic configs by name. The slice is the
// caller's.
func TopicConfigs() []ConfigDef { return slices.Clone(topicConfigs) }

// BrokerConfigs is the table of broker configs by name. The slice is the
// caller's.
func BrokerConfigs() []ConfigDef { return slices.Clone(brokerConfigs) }

func lookup(table []ConfigDef, name string) (ConfigDef, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(d ConfigDef, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return ConfigDef{}, false
	}
	return table[i], true
}

// LookupTopicConfig finds a topic config by name.
func LookupTopicConfig(name string) (ConfigDef, bool) { return lookup(topicConfigs, name) }

// LookupBrokerConfig finds a broker config by name.
func LookupBrokerConfig(name string) (ConfigDef, bool) { return lookup(brokerConfigs, name) }

// ValidateTopicConfig says why a topic config cannot have a value, in words
// for whoever asked for it. An unknown name gets the nearest known one.
func ValidateTopicConfig(name, value string) error {
	d, ok := LookupTopicConfig(name)
	if !ok {
		return unknownConfig("topic", name, NearestConfig(name))
	}
	return d.Validate(value)
}

// ValidateBrokerConfig is ValidateTopicConfig for a change of a broker config;
// one that cannot change while nodes run is refused.
func ValidateBrokerConfig(name, value string) error {
	d, ok := LookupBrokerConfig(name)
	if !ok {
		return unknownConfig("broker", name, nearest(brokerConfigs, name))
	}
	if d.ReadOnly() {
		return fmt.Errorf("config %s cannot be changed while brokers run; set it in the nodes' own settings", name)
	}
	return d.Validate(value)
}

func unknownConfig(what, name, near string) error {
	if near != "" {
		return fmt.Errorf("unknown %s config name: %s; did you mean %s?", what, name, near)
	}
	return fmt.Errorf("unknown %s config name: %s", what, name)
}

// ValidateTopicConfigs checks a topic's overrides one by one and, as
// ValidateTopicConfig cannot, against each other.
func ValidateTopicConfigs(overrides map[string]string) error {
	names := make([]string, 0, len(overrides))
	for name := range overrides {
		names = append(names, name)
	}
	slices.Sort(names) // the same complaint every time
	for _, name := range names {
		if err := ValidateTopicConfig(name, overrides[name]); err != nil {
			return err
		}
	}
	lag := func(name string) int64 {
		v, ok := overrides[name]
		if !ok {
			d, _ := LookupTopicConfig(name)
			v = d.Default
		}
		n, _ := parseInt(v)
		return n
	}
	if low, high := lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms"); low > high {
		return fmt.Errorf("config min.compaction.lag.ms (%d) is above max.compaction.lag.ms (%d)", low, high)
	}
	return nil
}

// Validate says why the config cannot have a value.
func (d ConfigDef) Validate(value string) error {
	if err := d.validate(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("invalid value %.100q for config %s: %w", value, d.Name, err)
	}
	return nil
}

func (d ConfigDef) validate(value string) error {
	switch d.Type {
	case TypeBoolean:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("has to be true or false")
		}
	case TypeInt, TypeShort, TypeLong:
		n, err := parseInt(value)
		if err != nil {
			return err
		}
		if err := d.inRange(n); err != nil {
			return err
		}
	case TypeDouble:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("has to be a number")
		}
		if d.Bounded && (f < d.Min || f > d.Max) {
			return fmt.Errorf("has to be between %v and %v", d.Min, d.Max)
		}
	case TypeList:
		if err := d.validList(splitList(value)); err != nil {
			return err
		}
	default:
		if d.Enum != nil && !slices.Contains(d.Enum, value) {
			return fmt.Errorf("has to be one of %s", strings.Join(d.Enum, ", "))
		}
	}
	if d.Check != nil {
		return d.Check(value)
	}
	return nil
}

func parseInt(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("has to be a whole number")
	}
	return n, nil
}

// inRange checks a whole number against the type and the bounds.
func (d ConfigDef) inRange(n int64) error {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	switch d.Type {
	case TypeInt:
		low, high = math.MinInt32, math.MaxInt32
	case TypeShort:
		low, high = math.MinInt16, math.MaxInt16
	default:
	}
	if d.Bounded {
		low = max(low, int64(d.Min))
		if d.Max < math.MaxInt64 { // as a float it is one too many to convert
			high = min(high, int64(d.Max))
		}
	}
	if n < low || n > high {
		return fmt.Errorf("has to be between %d and %d", low, high)
	}
	return nil
}

func (d ConfigDef) validList(list []string) error {
	for i, v := range list {
		switch {
		case v == "":
			return fmt.Errorf("has an empty element")
		case slices.Contains(list[:i], v):
			return fmt.Errorf("has %s twice", v)
		case d.Enum != nil && !slices.Contains(d.Enum, v):
			return fmt.Errorf("can only have %s", strings.Join(d.Enum, ", "))
		}
	}
	return nil
}

// splitList reads a comma separated list; the empty string is the empty list
// (which cleanup.policy may be since Kafka 4.2).
func splitList(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// NearestConfig is the topic config whose name is closest to one that does not
// exist, empty if none is close.
func NearestConfig(name string) string { return nearest(topicConfigs, name) }

// nearest finds the name at the smallest edit distance, at most a third of the
// asked name's length; the first in the table's order of equals.
func nearest(table []ConfigDef, name string) string {
	if len(name) > 100 {
		return ""
	}
	best, at := "", len(name)/3+1
	for _, d := range table {
		// A broker's name for a topic config is no typing error.
		if slices.Contains(d.Synonyms, name) {
			return d.Name
		}
		if n := editdistance.Of(strings.ToLower(name), d.Name); n < at && !d.Internal {
			best, at = d.Name, n
		}
	}
	return best
}

// ConfigValue is a value that a config has or would have, and where it comes
// from.
type ConfigValue struct {
	Name   string // of the config that is set: the config or a synonym of it
	Value  string // in the unit of Name
	Source ConfigSource
}

// TopicConfig lists the values of a topic config, the strongest first: the
// topic's override, the overrides for all brokers under the synonyms, the
// default. The first is the one in force, and Effective is it in the topic
// config's own unit. ok is false for NoDefault configs that are not set.
func (img *Image) TopicConfig(topic string, d ConfigDef) (effective string, values []ConfigValue, ok bool) {
	if v, set := img.Config(KindTopic, topic, d.Name); set {
		values = append(values, ConfigValue{d.Name, v, SourceTopic})
	}
	for _, synonym := range d.Synonyms {
		if v, set := img.Config(KindBroker, "", synonym); set {
			values = append(values, ConfigValue{synonym, v, SourceDynamicDefaultBroker})
		}
	}
	if !d.NoDefault {
		values = append(values, d.defaultValue())
	}
	if len(values) == 0 {
		return "", nil, false
	}
	if first := values[0]; first.Source != SourceDefault {
		return rescale(first), values, true
	}
	return d.Default, values, true
}

// defaultValue is the default under the name of the broker config that gives
// it, as Kafka shows it.
func (d ConfigDef) defaultValue() ConfigValue {
	for i := len(d.Synonyms) - 1; i >= 0; i-- {
		if b, ok := LookupBrokerConfig(d.Synonyms[i]); ok && !b.NoDefault {
			return ConfigValue{b.Name, b.Default, SourceDefault}
		}
	}
	return ConfigValue{d.Name, d.Default, SourceDefault}
}

// rescale turns hours and minutes into milliseconds. What is not a number
// stays as it is.
func rescale(v ConfigValue) string {
	by := scaled(v.Name)
	n, err := parseInt(strings.TrimSpace(v.Value))
	if by == 1 || err != nil {
		return v.Value
	}
	if n < 0 {
		return strconv.FormatInt(n, 10) // -1 is unlimited in every unit
	}
	return strconv.FormatInt(min(n, math.MaxInt64/by)*by, 10)
}

// BrokerConfig lists the values of a broker config that are in the image, the
// strongest first: the override of one broker, the one for all, the default. A
// node puts the setting it was started with before the default.
func (img *Image) BrokerConfig(broker BrokerID, d ConfigDef) []ConfigValue {
	var values []ConfigValue
	if v, set := img.Config(KindBroker, strconv.Itoa(int(broker)), d.Name); set {
		values = append(values, ConfigValue{d.Name, v, SourceDynamicBroker})
	}
	if v, set := img.Config(KindBroker, "", d.Name); set {
		values = append(values, ConfigValue{d.Name, v, SourceDynamicDefaultBroker})
	}
	if !d.NoDefault {
		values = append(values, ConfigValue{d.Name, d.Default, SourceDefault})
	}
	return values
}
