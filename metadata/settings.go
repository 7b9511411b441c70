package metadata

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// CompressionProducer is the compression.type that keeps the producer's codec.
const CompressionProducer = "producer"

// TopicSettings are the configs of one topic that the data path acts on,
// resolved (topic, broker default, default) and parsed. Sizes are bytes, times
// milliseconds, -1 is unlimited where said.
type TopicSettings struct {
	CompressionType      string // a codec's name, "uncompressed" or CompressionProducer
	GzipLevel            int    // -1 is the codec's own default
	LZ4Level             int
	ZstdLevel            int
	MaxMessageBytes      int  // the largest batch, as sent
	LogAppendTime        bool // message.timestamp.type
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64

	Delete  bool // cleanup.policy has delete
	Compact bool // cleanup.policy has compact
	// RetentionMs and RetentionBytes are -1 for unlimited; they act only with
	// Delete.
	RetentionMs    int64
	RetentionBytes int64

	SegmentBytes       int64
	SegmentMs          int64
	SegmentJitterMs    int64
	SegmentIndexBytes  int64
	IndexIntervalBytes int64
	FileDeleteDelayMs  int64
	FlushMessages      int64
	FlushMs            int64
	Preallocate        bool

	DeleteRetentionMs     int64
	MinCleanableRatio     float64
	MinCompactionLagMs    int64
	MaxCompactionLagMs    int64
	MinInsyncReplicas     int
	UncleanLeaderElection bool

	// Local says that the log lies on the owner's disk (storage.mode=local).
	Local bool
}

// SegmentAge is SegmentMs as a duration, cut to what one can hold.
func (s TopicSettings) SegmentAge() time.Duration { return millis(s.SegmentMs) }

// RetentionAge is RetentionMs as a duration; negative is unlimited.
func (s TopicSettings) RetentionAge() time.Duration { return millis(s.RetentionMs) }

func millis(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// settingsCache keeps the resolved settings of one configs table. It is a pure
// cache: the same answers come out with or without it.
type settingsCache struct {
	byTopic sync.Map // topic name -> TopicSettings
}

// TopicSettings resolves the configs of a topic; a topic that does not exist
// has the cluster's defaults. The answer is cached as long as no config
// changes.
func (img *Image) TopicSettings(name string) TopicSettings {
	if s, ok := img.settings.byTopic.Load(name); ok {
		return s.(TopicSettings)
	}
	s := img.resolveSettings(name)
	if _, ok := img.topicByName(name); ok { // never cache what a client made up
		img.settings.byTopic.Store(name, s)
	}
	return s
}

// resolveSettings reads every config that the data path acts on. A value that
// this release cannot read (an older or newer one let it in) counts as not set.
func (img *Image) resolveSettings(name string) TopicSettings {
	text := func(config string) string {
		d, _ := LookupTopicConfig(config)
		v, _, ok := img.TopicConfig(name, d)
		if ok && d.Validate(v) == nil {
			return strings.TrimSpace(v)
		}
		return d.Default
	}
	number := func(config string) int64 {
		n, _ := parseInt(text(config))
		return n
	}
	truth := func(config string) bool { return strings.EqualFold(text(config), "true") }
	ratio, _ := strconv.ParseFloat(text("min.cleanable.dirty.ratio"), 64)
	policy := splitList(text("cleanup.policy"))
	s := TopicSettings{
		CompressionType: text("compression.type"),
		GzipLevel:       int(number("compression.gzip.level")),
		LZ4Level:        int(number("compression.lz4.level")),
		ZstdLevel:       int(number("compression.zstd.level")),
		MaxMessageBytes: int(number("max.message.bytes")),

		LogAppendTime:        text("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMs: number("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:  number("message.timestamp.after.max.ms"),

		Delete:         slices.Contains(policy, "delete"),
		Compact:        slices.Contains(policy, "compact"),
		RetentionMs:    max(-1, number("retention.ms")),
		RetentionBytes: max(-1, number("retention.bytes")),

		SegmentBytes:       number("segment.bytes"),
		SegmentMs:          number("segment.ms"),
		SegmentJitterMs:    number("segment.jitter.ms"),
		SegmentIndexBytes:  number("segment.index.bytes"),
		IndexIntervalBytes: number("index.interval.bytes"),
		FileDeleteDelayMs:  number("file.delete.delay.ms"),
		FlushMessages:      number("flush.messages"),
		FlushMs:            number("flush.ms"),
		Preallocate:        truth("preallocate"),

		DeleteRetentionMs:     number("delete.retention.ms"),
		MinCleanableRatio:     ratio,
		MinCompactionLagMs:    number("min.compaction.lag.ms"),
		MaxCompactionLagMs:    number("max.compaction.lag.ms"),
		MinInsyncReplicas:     int(number("min.insync.replicas")),
		UncleanLeaderElection: truth("unclean.leader.election.enable"),

		Local: text("storage.mode") == "local",
	}
	if n := number("internal.segment.bytes"); n > 0 {
		s.SegmentBytes = n
	}
	return s
}
