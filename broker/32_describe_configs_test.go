package broker_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/metadata"
)

const (
	ofTopic  = kmsg.ConfigResourceTypeTopic
	ofBroker = kmsg.ConfigResourceTypeBroker
	ofLogger = kmsg.ConfigResourceTypeBrokerLogger
	ofGroup  = kmsg.ConfigResourceTypeGroupConfig
)

func describeRequest(kind kmsg.ConfigResourceType, name string, configs ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, name, configs
	req.Resources = append(req.Resources, rr)
	return req
}

// describe returns one resource's configs by name.
func (cl *client) describe(version int16, req *kmsg.DescribeConfigsRequest, want *kerr.Error) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	cl.t.Helper()
	dr := ask[*kmsg.DescribeConfigsResponse](cl, version, req).Resources[0]
	isCode(cl.t, "describe "+dr.ResourceName, dr.ErrorCode, want)
	is(cl.t, "has a message", dr.ErrorMessage != nil, want != nil)
	out := make(map[string]kmsg.DescribeConfigsResponseResourceConfig)
	for _, c := range dr.Configs {
		out[c.Name] = c
	}
	return out
}

func text(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}

func TestDescribeTopicConfigs(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1, "retention.ms", "5000")
	cl := c.dial()
	for v := int16(1); v <= 4; v++ {
		got := cl.describe(v, describeRequest(ofTopic, "t"), nil)
		for _, def := range metadata.TopicConfigs() {
			_, shown := got[def.Name]
			is(t, def.Name+" is shown", shown, !def.Internal)
		}
		r := got["retention.ms"]
		is(t, "override", text(r.Value), "5000")
		is(t, "source", r.Source, kmsg.ConfigSourceDynamicTopicConfig)
		is(t, "synonyms only when asked", len(r.ConfigSynonyms), 0)
		is(t, "documentation only when asked", r.Documentation == nil, true)
		is(t, "default", text(got["cleanup.policy"].Value), "delete")
		is(t, "source", got["cleanup.policy"].Source, kmsg.ConfigSourceDefaultConfig)
		if v >= 3 { // KIP-569
			is(t, "type", r.ConfigType, kmsg.ConfigTypeLong)
			is(t, "type", got["cleanup.policy"].ConfigType, kmsg.ConfigTypeList)
		}
	}
	req := describeRequest(ofTopic, "t", "retention.ms")
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	got := cl.describe(4, req, nil)
	is(t, "only those asked for", len(got), 1)
	r := got["retention.ms"]
	is(t, "documented", len(text(r.Documentation)) > 10, true)
	var from []string
	for _, s := range r.ConfigSynonyms {
		from = append(from, s.Name+"="+text(s.Value))
	}
	is(t, "synonyms", strings.Join(from, " "), "retention.ms=5000 log.retention.hours=168")
	cl.describe(4, describeRequest(ofTopic, "nope"), kerr.UnknownTopicOrPartition)
	cl.describe(4, describeRequest(ofTopic, "a/b"), kerr.InvalidTopicException)
	cl.describe(4, describeRequest(kmsg.ConfigResourceType(77), "t"), kerr.InvalidRequest)
}

// A broker knows its own configs only; "" is the default of all brokers.
func TestDescribeBrokerConfigs(t *testing.T) {
	c := newCluster(t, func(_ *cluster, cfg *broker.Config) {
		cfg.AutoCreateTopics = true
		cfg.BrokerConfigs = map[string]string{"broker.rack": "zone-0"}
	})
	cl := c.dial()
	is(t, "no dynamic defaults", len(cl.describe(4, describeRequest(ofBroker, ""), nil)), 0)
	isCode(t, "alter", cl.alter(ofBroker, "", set("log.retention.ms", "7000")).ErrorCode, nil)
	isCode(t, "alter", cl.alter(ofBroker, "1", set("message.max.bytes", "5000")).ErrorCode, nil)
	got := cl.describe(4, describeRequest(ofBroker, "1"), nil)
	for name, want := range map[string]struct {
		value  string
		source kmsg.ConfigSource
	}{
		"log.retention.ms":          {"7000", kmsg.ConfigSourceDynamicDefaultBrokerConfig},
		"message.max.bytes":         {"5000", kmsg.ConfigSourceDynamicBrokerConfig},
		"auto.create.topics.enable": {"true", kmsg.ConfigSourceStaticBrokerConfig},
		"broker.rack":               {"zone-0", kmsg.ConfigSourceStaticBrokerConfig},
		"node.id":                   {"1", kmsg.ConfigSourceStaticBrokerConfig},
		"log.retention.hours":       {"168", kmsg.ConfigSourceDefaultConfig},
		"log.dirs":                  {"<null>", kmsg.ConfigSourceDefaultConfig},
	} {
		is(t, name, text(got[name].Value), want.value)
		is(t, name, got[name].Source, want.source)
	}
	is(t, "node.id is read-only", got["node.id"].ReadOnly, true)
	is(t, "defaults of all", len(cl.describe(4, describeRequest(ofBroker, ""), nil)), 1)
	c.topic("t", 1)
	r := cl.describe(4, describeRequest(ofTopic, "t"), nil)["retention.ms"]
	is(t, "a topic's default is the brokers'", text(r.Value), "7000")
	is(t, "its source", r.Source, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	cl.describe(4, describeRequest(ofBroker, "2"), kerr.InvalidRequest)
	cl.describe(4, describeRequest(ofBroker, "x"), kerr.InvalidRequest)
}

// KIP-412: the log level is the broker logger "root".
func TestBrokerLogger(t *testing.T) {
	var level slog.LevelVar
	cl := newCluster(t, func(_ *cluster, cfg *broker.Config) { cfg.LogLevel = &level }).dial()
	is(t, "level", text(cl.describe(4, describeRequest(ofLogger, "1"), nil)["root"].Value), "INFO")
	isCode(t, "set", cl.alter(ofLogger, "1", set("root", "debug")).ErrorCode, nil)
	is(t, "level", level.Level(), slog.LevelDebug)
	isCode(t, "bad level", cl.alter(ofLogger, "1", set("root", "loud")).ErrorCode, kerr.InvalidConfig)
	isCode(t, "bad logger", cl.alter(ofLogger, "1", set("kafka.x", "INFO")).ErrorCode, kerr.InvalidConfig)
	isCode(t, "append", cl.alter(ofLogger, "1", op{"root", 2, kmsg.StringPtr("x")}).ErrorCode, kerr.InvalidRequest)
	isCode(t, "another broker", cl.alter(ofLogger, "2", set("root", "INFO")).ErrorCode, kerr.InvalidRequest)
	isCode(t, "delete", cl.alter(ofLogger, "1", op{"root", 1, nil}).ErrorCode, nil)
	is(t, "level", level.Level(), slog.LevelInfo)
}

// op is one operation of IncrementalAlterConfigs.
type op struct {
	name  string
	kind  int8
	value *string
}

func set(name, value string) op { return op{name, 0, &value} }

func alterRequest(kind kmsg.ConfigResourceType, name string, ops ...op) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kind, name
	for _, o := range ops {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op, rc.Value = o.name, kmsg.IncrementalAlterConfigOp(o.kind), o.value
		rr.Configs = append(rr.Configs, rc)
	}
	req.Resources = append(req.Resources, rr)
	return req
}

func (cl *client) alter(kind kmsg.ConfigResourceType, name string, ops ...op) kmsg.IncrementalAlterConfigsResponseResource {
	cl.t.Helper()
	return ask[*kmsg.IncrementalAlterConfigsResponse](cl, 1, alterRequest(kind, name, ops...)).Resources[0]
}

func TestIncrementalAlterConfigs(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1, "cleanup.policy", "delete")
	cl := c.dial()
	now := func(name string) string { return c.Image().Configs(metadata.KindTopic, "t")[name] }
	for v := int16(0); v <= 1; v++ {
		resp := ask[*kmsg.IncrementalAlterConfigsResponse](cl, v, alterRequest(ofTopic, "t", set("retention.ms", "77")))
		isCode(t, "set", resp.Resources[0].ErrorCode, nil)
	}
	is(t, "set", now("retention.ms"), "77")
	isCode(t, "append", cl.alter(ofTopic, "t", op{"cleanup.policy", 2, kmsg.StringPtr("compact")}).ErrorCode, nil)
	is(t, "appended", now("cleanup.policy"), "delete,compact")
	isCode(t, "delete", cl.alter(ofTopic, "t", op{"retention.ms", 1, nil}).ErrorCode, nil)
	is(t, "deleted", now("retention.ms"), "")
	only := alterRequest(ofTopic, "t", set("retention.ms", "5"))
	only.ValidateOnly = true
	isCode(t, "validate", ask[*kmsg.IncrementalAlterConfigsResponse](cl, 1, only).Resources[0].ErrorCode, nil)
	is(t, "not changed", now("retention.ms"), "")
	for _, tc := range []struct {
		name string
		resp kmsg.IncrementalAlterConfigsResponseResource
		want *kerr.Error
	}{
		{"unknown operation (it takes Kafka 4.4's controller down)", cl.alter(ofTopic, "t", op{"retention.ms", 9, kmsg.StringPtr("1")}), kerr.InvalidRequest},
		{"null value", cl.alter(ofTopic, "t", op{"retention.ms", 0, nil}), kerr.InvalidRequest},
		{"one config twice", cl.alter(ofTopic, "t", set("retention.ms", "1"), set("retention.ms", "2")), kerr.InvalidRequest},
		{"unknown config", cl.alter(ofTopic, "t", set("retention.mss", "1")), kerr.InvalidConfig},
		{"bad value", cl.alter(ofTopic, "t", set("retention.ms", "x")), kerr.InvalidConfig},
		{"unknown topic", cl.alter(ofTopic, "nope", set("retention.ms", "1")), kerr.UnknownTopicOrPartition},
		{"unknown resource type", cl.alter(77, "t", set("retention.ms", "1")), kerr.InvalidRequest},
		{"bad broker id", cl.alter(ofBroker, "one", set("log.retention.ms", "1")), kerr.InvalidRequest},
	} {
		isCode(t, tc.name, tc.resp.ErrorCode, tc.want)
		is(t, tc.name+": has a message", tc.resp.ErrorMessage != nil, true)
	}
	twice := alterRequest(ofTopic, "t", set("retention.ms", "1"))
	twice.Resources = append(twice.Resources, twice.Resources[0])
	for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](cl, 1, twice).Resources {
		isCode(t, "one resource twice", r.ErrorCode, kerr.InvalidRequest)
	}
}

// AlterConfigs replaces: what it does not name goes back to its default.
func TestAlterConfigsReplaces(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1, "retention.ms", "5", "segment.bytes", "2000000")
	cl := c.dial()
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrAlterConfigsRequest()
		rr := kmsg.NewAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = ofTopic, "t"
		rc := kmsg.NewAlterConfigsRequestResourceConfig()
		rc.Name, rc.Value = "retention.ms", kmsg.StringPtr("9")
		rr.Configs = append(rr.Configs, rc)
		req.Resources = append(req.Resources, rr)
		isCode(t, "alter", ask[*kmsg.AlterConfigsResponse](cl, v, req).Resources[0].ErrorCode, nil)
	}
	got := c.Image().Configs(metadata.KindTopic, "t")
	is(t, "named", got["retention.ms"], "9")
	is(t, "not named", got["segment.bytes"], "")
}

// A resource that is refused does not keep others from being changed.
func TestAlterConfigsOfManyResources(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	req := alterRequest(ofTopic, "nope", set("retention.ms", "1"))
	req.Resources = append(req.Resources, alterRequest(ofTopic, "t", set("retention.ms", "1")).Resources...)
	var codes []int16
	for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](c.dial(), 1, req).Resources {
		codes = append(codes, r.ErrorCode)
	}
	if !slices.Equal(codes, []int16{kerr.UnknownTopicOrPartition.Code, 0}) {
		t.Errorf("codes %v", codes)
	}
}

// Where a topic's log lies is fixed when it is made; AlterConfigs, which
// replaces everything, must not change it unasked.
func TestAlterConfigsKeepsWhatIsFixed(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1, "storage.mode", "local")
	cl := c.dial()
	isCode(t, "set", cl.alter(ofTopic, "t", set("storage.mode", "shared")).ErrorCode, kerr.InvalidConfig)
	isCode(t, "delete", cl.alter(ofTopic, "t", op{"storage.mode", 1, nil}).ErrorCode, kerr.InvalidConfig)
	isCode(t, "repeat", cl.alter(ofTopic, "t", set("storage.mode", "local"), set("retention.ms", "9")).ErrorCode, nil)
	req := kmsg.NewPtrAlterConfigsRequest()
	rr := kmsg.NewAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = ofTopic, "t"
	req.Resources = append(req.Resources, rr)
	isCode(t, "replace all by nothing", ask[*kmsg.AlterConfigsResponse](cl, 2, req).Resources[0].ErrorCode, nil)
	got := c.Image().Configs(metadata.KindTopic, "t")
	is(t, "retention.ms", got["retention.ms"], "")
	is(t, "storage.mode", got["storage.mode"], "local")
}

// A group has configs before it exists; what is not set is the brokers' (KIP-848,
// KIP-1142).
func TestGroupConfigs(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	cl := c.dial()
	const session, beat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
	got := cl.describe(4, describeRequest(ofGroup, "g"), nil)
	is(t, "by default", text(got[session].Value), "45000")
	is(t, "source", got[session].Source, kmsg.ConfigSourceDefaultConfig)
	isCode(t, "alter", cl.alter(ofGroup, "g", set(session, "50000")).ErrorCode, nil)
	isCode(t, "alter all", cl.alter(ofBroker, "", set("group.consumer.heartbeat.interval.ms", "4000")).ErrorCode, nil)
	req := describeRequest(ofGroup, "g")
	req.IncludeSynonyms = true
	got = cl.describe(4, req, nil)
	is(t, "set", text(got[session].Value), "50000")
	is(t, "source", got[session].Source, kmsg.ConfigSourceGroupConfig)
	is(t, "may change", got[session].ReadOnly, false)
	is(t, "synonyms", len(got[session].ConfigSynonyms), 2)
	is(t, "the brokers'", text(got[beat].Value), "4000")
	is(t, "source", got[beat].Source, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	is(t, "another group", text(cl.describe(4, describeRequest(ofGroup, "h"), nil)[session].Value), "45000")

	for name, o := range map[string]op{
		"unknown":                       set("consumer.session.timeout", "50000"),
		"above the bound of the broker": set(session, "60001"),
		"below it":                      set(beat, "999"),
		"no number":                     set(beat, "often"),
	} {
		isCode(t, name, cl.alter(ofGroup, "g", o).ErrorCode, kerr.InvalidConfig)
	}
	isCode(t, "no name", cl.alter(ofGroup, "", set(session, "50000")).ErrorCode, kerr.InvalidRequest)
	cl.describe(4, describeRequest(ofGroup, ""), kerr.InvalidRequest)
	isCode(t, "another bound", cl.alter(ofBroker, "", set("group.consumer.max.session.timeout.ms", "70000")).ErrorCode, nil)
	isCode(t, "within it", cl.alter(ofGroup, "h", set(session, "70000")).ErrorCode, nil)

	list := func(version int16, kinds ...int8) string {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = kinds
		resp := ask[*kmsg.ListConfigResourcesResponse](cl, version, req)
		isCode(t, "list", resp.ErrorCode, nil)
		var names []string
		for _, r := range resp.ConfigResources {
			names = append(names, r.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	is(t, "groups with configs", list(1, 32), "g h")
	is(t, "all with configs", list(1), "1 1 2 2 3 3 g h t")
	is(t, "client metrics", list(0), "")
	isCode(t, "delete", cl.alter(ofGroup, "g", op{session, 1, nil}).ErrorCode, nil)
	is(t, "groups with configs", list(1, 32), "h")
	unknown := kmsg.NewPtrListConfigResourcesRequest()
	unknown.ResourceTypes = []int8{99}
	isCode(t, "unknown type", ask[*kmsg.ListConfigResourcesResponse](cl, 1, unknown).ErrorCode, kerr.UnsupportedVersion)
}
