package broker

// DescribeConfigs v1-4: configs of topics, of groups, of this broker and of its loggers
// (KIP-133).
//
// Version notes:
//   v1 synonyms and sources (KIP-226)
//   v3 types and documentation (KIP-569)
//   v4 flexible
//
// The configs of a broker are those it runs with, so only it can answer; the
// empty broker name asks for the dynamic defaults of all brokers, which any can.

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) describeConfigs(_ context.Context, _ call, req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := answer[*kmsg.DescribeConfigsResponse](req)
	img := b.image()
	for _, rr := range req.Resources {
		dr := kmsg.NewDescribeConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = rr.ResourceType, rr.ResourceName
		dr.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		all, err := b.configsOf(img, rr.ResourceType, rr.ResourceName)
		if err != nil {
			dr.ErrorCode, dr.ErrorMessage = codeAndMessage(err)
		}
		for _, d := range all {
			// Null asks for all; an empty list for none in the protocol, but
			// Kafka reads it as all and so do its clients.
			if len(rr.ConfigNames) == 0 || slices.Contains(rr.ConfigNames, d.def.Name) {
				dr.Configs = append(dr.Configs, d.shown(req))
			}
		}
		resp.Resources = append(resp.Resources, dr)
	}
	return resp
}

// described is one config to show.
type described struct {
	def metadata.ConfigDef
	setting
}

// shown is the config in the form of the request's version.
func (d described) shown(req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	dc := kmsg.NewDescribeConfigsResponseResourceConfig()
	dc.Name, dc.Value, dc.Source = d.def.Name, d.setting.shown(), d.kafkaSource()
	dc.ReadOnly, dc.IsSensitive = d.def.ReadOnly(), d.def.Sensitive
	dc.ConfigType = kmsg.ConfigType(d.def.Type)
	dc.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if req.IncludeSynonyms {
		for _, s := range d.synonyms {
			ds := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			ds.Name, ds.Source = s.Name, kmsg.ConfigSource(s.Source)
			if !d.def.Sensitive {
				ds.Value = &s.Value
			}
			dc.ConfigSynonyms = append(dc.ConfigSynonyms, ds)
		}
	}
	if req.IncludeDocumentation {
		dc.Documentation = &d.def.Doc
	}
	return dc
}

// configsOf lists the configs of one resource.
func (b *Broker) configsOf(img *metadata.Image, kind kmsg.ConfigResourceType, name string) ([]described, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return topicConfigs(img, name)
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return brokerDefaults(img), nil
		}
		if err := b.checkSelf(name); err != nil {
			return nil, err
		}
		var out []described
		for _, def := range metadata.BrokerConfigs() {
			if def.Internal {
				continue
			}
			out = append(out, described{def, b.brokerConfig(img, def.Name)})
		}
		return out, nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return b.loggers(name)
	case kmsg.ConfigResourceTypeGroupConfig:
		return b.groupConfigs(img, name)
	default:
		return nil, fail(kerr.InvalidRequest, "resource type %d has no configs here; 2 is a topic, 4 a broker, 8 a broker's loggers, 32 a group", kind)
	}
}

// groupConfigs are those of a group, which need not exist. What is not set is as this
// broker has it.
func (b *Broker) groupConfigs(img *metadata.Image, name string) ([]described, error) {
	if err := checkGroupName(name); err != nil {
		return nil, err
	}
	var out []described
	for _, def := range metadata.GroupConfigs() {
		values := b.brokerConfig(img, def.Synonyms[0]).synonyms
		if v, ok := img.Config(metadata.KindGroup, name, def.Name); ok {
			values = slices.Insert(values, 0, metadata.ConfigValue{Name: def.Name, Value: v, Source: metadata.SourceGroup})
		}
		out = append(out, described{def, settle(def, values)})
	}
	return out, nil
}

func topicConfigs(img *metadata.Image, name string) ([]described, error) {
	if _, err := topicNamed(img, name); err != nil {
		return nil, err
	}
	var out []described
	for _, def := range metadata.TopicConfigs() {
		if def.Internal {
			continue
		}
		out = append(out, described{def, topicConfig(img, name, nil, def)})
	}
	return out, nil
}

// brokerDefaults are the dynamic configs that hold for every broker.
func brokerDefaults(img *metadata.Image) []described {
	values := img.Configs(metadata.KindBroker, "")
	var out []described
	for _, name := range slices.Sorted(maps.Keys(values)) {
		def, _ := metadata.LookupBrokerConfig(name)
		def.Name = name
		out = append(out, described{def, settle(def, []metadata.ConfigValue{{Name: name, Value: values[name], Source: metadata.SourceDynamicDefaultBroker}})})
	}
	return out
}

// checkSelf says whether a resource name is this broker's id.
func (b *Broker) checkSelf(name string) error {
	self := int(b.cfg.NodeID)
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return fail(kerr.InvalidRequest, "broker id must be a number, not %q", name)
	}
	if int(id) != self {
		return fail(kerr.InvalidRequest, "this is broker %d and knows its own configs only; ask broker %d about its own", self, id)
	}
	return nil
}

// rootLogger is the one logger there is, sourceLogger where its level comes
// from.
const (
	rootLogger   = "root"
	sourceLogger = metadata.ConfigSource(kmsg.ConfigSourceDynamicBrokerLoggerConfig)
)

// loggers shows the log level as the config of the logger "root" (KIP-412).
func (b *Broker) loggers(name string) ([]described, error) {
	if err := b.checkSelf(name); err != nil || b.cfg.LogLevel == nil {
		return nil, err
	}
	def := metadata.ConfigDef{
		Name: rootLogger, Type: metadata.TypeString, Dynamic: true,
		Doc: "The level from which this broker logs: DEBUG, INFO, WARN or ERROR.",
	}
	level := metadata.ConfigValue{Name: rootLogger, Value: b.cfg.LogLevel.Level().String(), Source: sourceLogger}
	return []described{{def, settle(def, []metadata.ConfigValue{level})}}, nil
}
