package metadata

import (
	"slices"
	"strings"
)

// ConfigKind is a resource kind as Kafka numbers it.
type ConfigKind int8

// The kinds of resources that can have config overrides.
const (
	KindTopic         ConfigKind = 2
	KindBroker        ConfigKind = 4 // name "" is the default of all brokers
	KindClientMetrics ConfigKind = 16
	KindGroup         ConfigKind = 32
)

// overrides are the configs set on one resource, by name.
type overrides struct {
	key    configKey
	values []configValue // sorted by name; replaced, never changed
}

type configValue struct{ name, value string }

// encode orders resources by kind and then name.
func (k configKey) encode() string { return string([]byte{byte(k.kind)}) + k.name }

// Configs are the overrides set on a resource, a fresh map; empty if none.
func (img *Image) Configs(kind ConfigKind, name string) map[string]string {
	m := make(map[string]string)
	if o, ok := img.configs.Get(configKey{kind, name}.encode()); ok {
		for _, v := range o.values {
			m[v.name] = v.value
		}
	}
	return m
}

// Config is one override of a resource.
func (img *Image) Config(kind ConfigKind, name, config string) (string, bool) {
	o, ok := img.configs.Get(configKey{kind, name}.encode())
	if !ok {
		return "", false
	}
	for _, v := range o.values {
		if v.name == config {
			return v.value, true
		}
	}
	return "", false
}

// ConfigType is the type of a config's value, as DescribeConfigs numbers it.
type ConfigType int8

// The types of config values.
const (
	TypeUnknown  ConfigType = 0
	TypeBoolean  ConfigType = 1
	TypeString   ConfigType = 2
	TypeInt      ConfigType = 3
	TypeShort    ConfigType = 4
	TypeLong     ConfigType = 5
	TypeDouble   ConfigType = 6
	TypeList     ConfigType = 7
	TypeClass    ConfigType = 8
	TypePassword ConfigType = 9
)

// ConfigSource is where a value comes from, as DescribeConfigs numbers it.
type ConfigSource int8

// The sources of config values.
const (
	SourceUnknown              ConfigSource = 0
	SourceTopic                ConfigSource = 1
	SourceDynamicBroker        ConfigSource = 2 // one broker's override
	SourceDynamicDefaultBroker ConfigSource = 3 // the override for all brokers
	SourceStaticBroker         ConfigSource = 4 // the node's own settings
	SourceDefault              ConfigSource = 5
	SourceGroup                ConfigSource = 8
)

// ConfigDef is one row of the config table: validation, DescribeConfigs and the
// documents all come from it.
type ConfigDef struct {
	Name    string
	Type    ConfigType
	Default string
	// NoDefault: there is no value unless one is set (Kafka's null).
	NoDefault bool
	// Min and Max bound a number, if Bounded.
	Bounded  bool
	Min, Max float64
	// Enum lists the legal values of a string, or of a list's members.
	Enum []string
	// Check is a further condition on the value, nil for none.
	Check func(value string) error
	Doc   string // one line
	// Synonyms are the broker configs that give a topic config its default,
	// the strongest first.
	Synonyms []string
	// Dynamic: it can be changed while nodes run. The others are ReadOnly in
	// DescribeConfigs.
	Dynamic bool
	// Sensitive values are never shown.
	Sensitive bool
	// Ignored: accepted and shown, but nothing here acts on it.
	Ignored bool
	// Internal: accepted, but not shown.
	Internal bool
}

// ReadOnly says whether the value cannot be changed while nodes run.
func (d ConfigDef) ReadOnly() bool { return !d.Dynamic }

func sortConfigs(list []configValue) {
	slices.SortFunc(list, func(a, b configValue) int { return strings.Compare(a.name, b.name) })
}

func (img *Image) hasConfigs(key configKey) bool {
	_, ok := img.configs.Get(key.encode())
	return ok
}
