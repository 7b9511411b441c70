package metadata_test

import (
	"slices"
	"strings"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func TestConfigTablesAreSortedDocumentedAndValid(t *testing.T) {
	for what, table := range map[string][]metadata.ConfigDef{"topic": metadata.TopicConfigs(), "broker": metadata.BrokerConfigs(), "group": metadata.GroupConfigs()} {
		if !slices.IsSortedFunc(table, func(a, b metadata.ConfigDef) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s configs are not sorted, so some are not found", what)
		}
		for i, d := range table {
			if i > 0 && table[i-1].Name == d.Name {
				t.Errorf("%s is there twice", d.Name)
			}
			if d.Doc == "" || strings.Contains(d.Doc, "\n") || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s: documentation has to be one line with a full stop", d.Name)
			}
			if !d.NoDefault {
				if err := d.Validate(d.Default); err != nil {
					t.Errorf("its own default is refused: %v", err)
				}
			}
			for _, synonym := range d.Synonyms {
				if _, ok := metadata.LookupBrokerConfig(synonym); !ok {
					t.Errorf("%s has the synonym %s that is no broker config", d.Name, synonym)
				}
			}
		}
	}
}

// The names that Apache Kafka 4.4 knows (LogConfig), and storage.mode.
func TestTopicConfigNames(t *testing.T) {
	want := `cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delete.retention.ms errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms
follower.replication.throttled.replicas index.interval.bytes internal.segment.bytes leader.replication.throttled.replicas
local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas
preallocate remote.copy.lag.bytes remote.copy.lag.ms remote.log.copy.disable remote.log.delete.on.disable
remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
storage.mode unclean.leader.election.enable`
	var got []string
	for _, d := range metadata.TopicConfigs() {
		got = append(got, d.Name)
	}
	if !slices.Equal(got, strings.Fields(want)) {
		t.Fatalf("got %v", got)
	}
}

func TestValidateTopicConfig(t *testing.T) {
	for _, c := range []struct{ name, value, complaint string }{
		{"retention.ms", "-1", ""},
		{"retention.ms", " 5 ", ""},
		{"retention.ms", "-2", "between -1 and 9223372036854775807"},
		{"retention.ms", "9223372036854775807", ""},
		{"retention.ms", "9223372036854775808", "whole number"},
		{"retention.ms", "1.5", "whole number"},
		{"retention.ms", "", "whole number"},
		{"retention.bytes", "-7", ""}, // Kafka has no bound
		{"segment.bytes", "1048575", "between 1048576 and 2147483647"},
		{"segment.bytes", "2147483648", "between 1048576 and 2147483647"},
		{"min.insync.replicas", "0", "between 1"},
		{"max.message.bytes", "0", ""},
		{"cleanup.policy", "", ""}, // since 4.2: keep for ever
		{"cleanup.policy", "compact, delete", ""},
		{"cleanup.policy", "compact,compact", "twice"},
		{"cleanup.policy", "compact,", "empty element"},
		{"cleanup.policy", "shred", "compact, delete"},
		{"compression.type", "zstd", ""},
		{"compression.type", "none", "one of uncompressed"},
		{"compression.gzip.level", "-1", ""},
		{"compression.gzip.level", "0", "1 to 9"},
		{"compression.gzip.level", "10", "1 to 9"},
		{"compression.gzip.level", "-5", "1 to 9"},
		{"compression.gzip.level", "9", ""},
		{"compression.lz4.level", "18", "between 1 and 17"},
		{"compression.zstd.level", "-131072", ""},
		{"message.timestamp.type", "LogAppendTime", ""},
		{"message.timestamp.type", "logappendtime", "one of"},
		{"min.cleanable.dirty.ratio", "1.01", "between 0 and 1"},
		{"min.cleanable.dirty.ratio", "NaN", "a number"},
		{"preallocate", "TRUE", ""},
		{"preallocate", "yes", "true or false"},
		{"leader.replication.throttled.replicas", "*", ""},
		{"leader.replication.throttled.replicas", "0:1,12:3", ""},
		{"leader.replication.throttled.replicas", "", ""},
		{"leader.replication.throttled.replicas", "0:1,*", "partition:broker"},
		{"leader.replication.throttled.replicas", "0-1", "partition:broker"},
		{"remote.storage.enable", "false", ""},
		{"remote.storage.enable", "true", "not offered"},
		{"storage.mode", "local", ""},
		{"storage.mode", "tape", "one of shared, local"},
		{"internal.segment.bytes", "1024", ""},
		{"retention.m", "1", "did you mean retention.ms?"},
		{"log.retention.hours", "1", "did you mean retention.ms?"},
		{"Cleanup.Policy", "delete", "did you mean cleanup.policy?"},
		{"zzz", "1", "unknown topic config name: zzz"},
		{strings.Repeat("x", 1000), "1", "unknown topic config"},
	} {
		err := metadata.ValidateTopicConfig(c.name, c.value)
		if c.complaint == "" && err != nil || c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
			t.Errorf("%.40s=%q: got %v, want %q", c.name, c.value, err, c.complaint)
		}
	}
}

func TestValidateTopicConfigsTogether(t *testing.T) {
	if err := metadata.ValidateTopicConfigs(map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}); err == nil {
		t.Error("a lag that cannot be kept is accepted")
	}
	if err := metadata.ValidateTopicConfigs(map[string]string{"min.compaction.lag.ms": "10", "retention.ms": "9"}); err != nil {
		t.Error(err)
	}
	if err := metadata.ValidateTopicConfigs(map[string]string{"retention.ms": "x"}); err == nil {
		t.Error("a bad value is accepted")
	}
}

func TestValidateBrokerConfig(t *testing.T) {
	for name, ok := range map[string]bool{"log.retention.ms": true, "node.id": false, "log.retentio.ms": false} {
		if err := metadata.ValidateBrokerConfig(name, "7"); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func alter(kind metadata.ConfigKind, name string, pairs ...string) *pb {
	c := &metadatapb.AlterConfigs{Kind: int32(kind), Name: name}
	for i := 0; i < len(pairs); i += 2 {
		op := &metadatapb.ConfigOp{Name: pairs[i], Value: pairs[i+1]}
		if pairs[i+1] == "-" {
			op.Value, op.Remove = "", true
		}
		c.Ops = append(c.Ops, op)
	}
	return &pb{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: c}}
}

func TestTopicSettingsResolveFromTopicBrokerAndDefault(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.topic("t", 1, a)
	if s := w.img.TopicSettings("t"); s.RetentionMs != 604800000 || !s.Delete || s.Compact || s.Local ||
		s.CompressionType != metadata.CompressionProducer || s.MaxMessageBytes != 1048588 || s.SegmentBytes != 1<<30 ||
		s.TimestampBeforeMaxMs != 1<<63-1 || s.MinCleanableRatio != 0.5 {
		t.Fatalf("defaults: %+v", s)
	}
	old := w.img
	w.ok(alter(metadata.KindBroker, "", "log.retention.hours", "2"))
	if s := w.img.TopicSettings("t"); s.RetentionMs != 2*3600*1000 {
		t.Fatalf("hours of the broker default: %+v", s)
	}
	if s := old.TopicSettings("t"); s.RetentionMs != 604800000 {
		t.Fatal("an older image changed its answer")
	}
	w.ok(alter(metadata.KindBroker, "", "log.retention.ms", "-1"))
	if s := w.img.TopicSettings("t"); s.RetentionMs != -1 || s.RetentionAge() >= 0 {
		t.Fatalf("ms goes before hours: %+v", s)
	}
	w.ok(alter(metadata.KindBroker, "1", "log.retention.ms", "77")) // one broker's own does not count for a topic
	w.ok(alter(metadata.KindTopic, "t", "retention.ms", "5", "cleanup.policy", "", "storage.mode", "local", "internal.segment.bytes", "100"))
	s := w.img.TopicSettings("t")
	if s.RetentionMs != 5 || s.Delete || s.Compact || !s.Local || s.SegmentBytes != 100 {
		t.Fatalf("%+v", s)
	}
	if again := w.img.TopicSettings("t"); again != s {
		t.Fatal("the cache gives another answer")
	}
	// Values that no release of ours would let in count as not set.
	w.ok(alter(metadata.KindTopic, "t", "retention.ms", "soon"))
	if s := w.img.TopicSettings("t"); s.RetentionMs != 604800000 {
		t.Fatalf("%+v", s)
	}
	if s := w.img.TopicSettings("unknown"); s.RetentionMs != -1 {
		t.Fatalf("a topic that is not there has the cluster's defaults: %+v", s)
	}
	d, _ := metadata.LookupTopicConfig("retention.ms")
	v, list, ok := w.img.TopicConfig("t", d)
	want := []metadata.ConfigValue{
		{Name: "retention.ms", Value: "soon", Source: metadata.SourceTopic},
		{Name: "log.retention.ms", Value: "-1", Source: metadata.SourceDynamicDefaultBroker},
		{Name: "log.retention.hours", Value: "2", Source: metadata.SourceDynamicDefaultBroker},
		{Name: "log.retention.hours", Value: "168", Source: metadata.SourceDefault},
	}
	if !ok || v != "soon" || !slices.Equal(list, want) {
		t.Fatalf("%q %v", v, list)
	}
	b, _ := metadata.LookupBrokerConfig("log.retention.ms")
	if list := w.img.BrokerConfig(1, b); len(list) != 2 || list[0].Value != "77" || list[1].Value != "-1" {
		t.Fatalf("%v", list)
	}
}

func TestAlterConfigs(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.topic("t", 1, a)
	w.ok(alter(metadata.KindTopic, "t", "a", "1", "b", "2", "a", "3"))
	w.ok(alter(metadata.KindTopic, "t", "b", "-", "nothing", "-"))
	if m := w.img.Configs(metadata.KindTopic, "t"); len(m) != 1 || m["a"] != "3" {
		t.Fatalf("%v", m)
	}
	all := alter(metadata.KindTopic, "t", "c", "4")
	all.GetAlterConfigs().ReplaceAll = true
	w.ok(all)
	if m := w.img.Configs(metadata.KindTopic, "t"); len(m) != 1 || m["c"] != "4" {
		t.Fatalf("%v", m)
	}
	w.no(metadata.ErrUnknownTopic, alter(metadata.KindTopic, "u", "a", "1"))
	w.no(metadata.ErrInvalid, alter(metadata.KindBroker, "one", "a", "1"))
	w.no(metadata.ErrInvalid, alter(metadata.KindBroker, "01", "a", "1"))
	w.no(metadata.ErrInvalid, alter(8, "1", "a", "1"))
	w.no(metadata.ErrInvalid, alter(metadata.KindTopic, "t", "", "1"))
	w.no(metadata.ErrInvalid, alter(metadata.KindTopic, "t", "a", strings.Repeat("x", 40000)))
	w.ok(alter(metadata.KindGroup, "g", "share.isolation.level", "read_committed"))
	w.ok(deleteTopic(1))
	w.no(metadata.ErrTopicDeleting, alter(metadata.KindTopic, "t", "a", "1"))
	w.ok(w.as(a, topicsGone(1)))
	if m := w.img.Configs(metadata.KindTopic, "t"); len(m) != 0 {
		t.Fatalf("configs of a deleted topic: %v", m)
	}
}

// Who keeps a mark learns of every change of what it stands for, and of little else.
func TestMarks(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.register(2, 2)
	zone := register(2, 3)
	zone.GetRegisterBroker().Zone = "elsewhere"
	for _, step := range []struct {
		name                    string
		cmd                     *pb
		topics, places, configs bool
	}{
		{"a topic", createTopic("t", 1, a), true, true, false},
		{"a partition", createPartitions(1, 1, a), true, true, false},
		{"a config", alter(metadata.KindGroup, "g", "consumer.session.timeout.ms", "50000"), false, false, true},
		{"nothing", noop(), false, false, false},
		{"a broker that restarts", register(1, 4), false, false, false},
		{"a broker that drains", brokerState(2, true, false), false, false, false},
		{"a broker that moves", zone, false, true, false},
		{"a topic that goes", deleteTopic(1), true, false, false},
	} {
		before := w.img
		w.ok(step.cmd)
		for _, m := range []struct {
			name    string
			changed bool
			want    bool
		}{
			{"topics", w.img.TopicsMark() != before.TopicsMark(), step.topics},
			{"places", w.img.PlacesMark() != before.PlacesMark(), step.places},
			{"configs", w.img.ConfigsMark() != before.ConfigsMark(), step.configs},
		} {
			if m.changed != m.want {
				t.Errorf("%s: the mark of %s has changed: %v", step.name, m.name, m.changed)
			}
		}
	}
	img, err := metadata.FromSnapshot(metadata.Snapshot(w.img))
	if err != nil {
		t.Fatal(err)
	}
	if img.TopicsMark() == w.img.TopicsMark() || img.PlacesMark() == w.img.PlacesMark() || img.ConfigsMark() == w.img.ConfigsMark() {
		t.Error("an image from elsewhere has a mark of this one")
	}
}
