package metadata

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

const (
	hour = 60 * 60 * 1000 // milliseconds

	maxInt32 = math.MaxInt32
	maxInt64 = math.MaxInt64
	longMax  = "9223372036854775807"
)

// topicConfigs is the table of topic configs: those of Apache Kafka 4.4 with
// its defaults and bounds, and storage.mode. It is sorted by name.
var topicConfigs = []ConfigDef{
	{Name: "cleanup.policy", Type: TypeList, Default: "delete", Enum: []string{"compact", "delete"}, Dynamic: true,
		Doc:      "What happens to old records: delete by age and size, compact by key, both, or (empty) nothing.",
		Synonyms: []string{"log.cleanup.policy"}},
	{Name: "compression.gzip.level", Type: TypeInt, Default: "-1", Check: gzipLevel, Dynamic: true,
		Doc: "Level when the broker compresses with gzip: 1 (fast) to 9 (small), -1 for the codec's own.", Synonyms: []string{"compression.gzip.level"}},
	{Name: "compression.lz4.level", Type: TypeInt, Default: "9", Bounded: true, Min: 1, Max: 17, Dynamic: true,
		Doc: "Level when the broker compresses with lz4.", Synonyms: []string{"compression.lz4.level"}},
	{Name: "compression.type", Type: TypeString, Default: "producer", Enum: compressionTypes, Dynamic: true,
		Doc: "Codec that records are stored in; producer keeps what the producer sent.", Synonyms: []string{"compression.type"}},
	{Name: "compression.zstd.level", Type: TypeInt, Default: "3", Bounded: true, Min: -131072, Max: 22, Dynamic: true,
		Doc: "Level when the broker compresses with zstd.", Synonyms: []string{"compression.zstd.level"}},
	{Name: "delete.retention.ms", Type: TypeLong, Default: "86400000", Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc: "How long a compacted topic keeps tombstones, so that slow readers still see a deletion.", Synonyms: []string{"log.cleaner.delete.retention.ms"}},
	{Name: "errors.deadletterqueue.group.enable", Type: TypeBoolean, Default: "false", Dynamic: true, Ignored: true,
		Doc: "Lets share groups write rejected records to this topic (KIP-1191)."},
	{Name: "file.delete.delay.ms", Type: TypeLong, Default: "60000", Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc: "How long the files of a deleted segment of a local topic stay on disk.", Synonyms: []string{"log.segment.delete.delay.ms"}},
	{Name: "flush.messages", Type: TypeLong, Default: longMax, Bounded: true, Min: 1, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc: "Records between forced fsyncs; every acknowledged record is durable here in any case.", Synonyms: []string{"log.flush.interval.messages"}},
	{Name: "flush.ms", Type: TypeLong, Default: longMax, Bounded: true, Min: 0, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc:      "Time between forced fsyncs; every acknowledged record is durable here in any case.",
		Synonyms: []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}},
	{Name: "follower.replication.throttled.replicas", Type: TypeList, Default: "", Check: throttledReplicas, Dynamic: true, Ignored: true,
		Doc: "Replicas (partition:broker, or *) whose copying is throttled at the follower; shared topics copy nothing."},
	{Name: "index.interval.bytes", Type: TypeInt, Default: "4096", Bounded: true, Min: 0, Max: maxInt32, Dynamic: true,
		Doc: "Bytes of log between two entries of the offset index.", Synonyms: []string{"log.index.interval.bytes"}},
	{Name: "internal.segment.bytes", Type: TypeInt, NoDefault: true, Bounded: true, Min: 1, Max: maxInt32, Dynamic: true, Internal: true,
		Doc: "Segment size below segment.bytes' minimum, for tests."},
	{Name: "leader.replication.throttled.replicas", Type: TypeList, Default: "", Check: throttledReplicas, Dynamic: true, Ignored: true,
		Doc: "Replicas (partition:broker, or *) whose copying is throttled at the leader; shared topics copy nothing."},
	{Name: "local.retention.bytes", Type: TypeLong, Default: "-2", Bounded: true, Min: -2, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc: "Bytes kept on local disk when a topic is tiered; -2 is the same as retention.bytes.", Synonyms: []string{"log.local.retention.bytes"}},
	{Name: "local.retention.ms", Type: TypeLong, Default: "-2", Bounded: true, Min: -2, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc: "Time that segments stay on local disk when a topic is tiered; -2 is the same as retention.ms.", Synonyms: []string{"log.local.retention.ms"}},
	{Name: "max.compaction.lag.ms", Type: TypeLong, Default: longMax, Bounded: true, Min: 1, Max: maxInt64, Dynamic: true,
		Doc: "A record is compacted at the latest this long after it was written.", Synonyms: []string{"log.cleaner.max.compaction.lag.ms"}},
	{Name: "max.message.bytes", Type: TypeInt, Default: "1048588", Bounded: true, Min: 0, Max: maxInt32, Dynamic: true,
		Doc: "The largest record batch taken, in bytes as sent.", Synonyms: []string{"message.max.bytes"}},
	{Name: "message.timestamp.after.max.ms", Type: TypeLong, Default: "3600000", Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc: "How far a record's timestamp may be ahead of the broker's clock.", Synonyms: []string{"log.message.timestamp.after.max.ms"}},
	{Name: "message.timestamp.before.max.ms", Type: TypeLong, Default: longMax, Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc: "How far a record's timestamp may be behind the broker's clock.", Synonyms: []string{"log.message.timestamp.before.max.ms"}},
	{Name: "message.timestamp.type", Type: TypeString, Default: "CreateTime", Enum: []string{"CreateTime", "LogAppendTime"}, Dynamic: true,
		Doc: "Whose time a record carries: the producer's or the broker's.", Synonyms: []string{"log.message.timestamp.type"}},
	{Name: "min.cleanable.dirty.ratio", Type: TypeDouble, Default: "0.5", Bounded: true, Min: 0, Max: 1, Dynamic: true,
		Doc: "Share of a log that is not compacted yet at which compaction starts.", Synonyms: []string{"log.cleaner.min.cleanable.ratio"}},
	{Name: "min.compaction.lag.ms", Type: TypeLong, Default: "0", Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc: "A record is not compacted before this long after it was written.", Synonyms: []string{"log.cleaner.min.compaction.lag.ms"}},
	{Name: "min.insync.replicas", Type: TypeInt, Default: "1", Bounded: true, Min: 1, Max: maxInt32, Dynamic: true, Ignored: true,
		Doc: "Shown to tools; an acknowledged record of a shared topic is durable in the store whatever it says.", Synonyms: []string{"min.insync.replicas"}},
	{Name: "preallocate", Type: TypeBoolean, Default: "false", Dynamic: true,
		Doc: "Whether a local topic's segment file gets its full size when it is made.", Synonyms: []string{"log.preallocate"}},
	{Name: "remote.copy.lag.bytes", Type: TypeLong, Default: "0", Bounded: true, Min: -1, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc: "Bytes that tiering may lag behind."},
	{Name: "remote.copy.lag.ms", Type: TypeLong, Default: "0", Bounded: true, Min: -1, Max: maxInt64, Dynamic: true, Ignored: true,
		Doc: "Time that tiering may lag behind."},
	{Name: "remote.log.copy.disable", Type: TypeBoolean, Default: "false", Dynamic: true, Ignored: true,
		Doc: "Whether a tiered topic stops copying to the remote tier."},
	{Name: "remote.log.delete.on.disable", Type: TypeBoolean, Default: "false", Dynamic: true, Ignored: true,
		Doc: "Whether turning tiering off deletes the remote data."},
	{Name: "remote.storage.enable", Type: TypeBoolean, Default: "false", Check: noTiering, Dynamic: true, Ignored: true,
		Doc: "Tiered storage; not offered, because a shared topic's whole log lies in the object store."},
	{Name: "retention.bytes", Type: TypeLong, Default: "-1", Dynamic: true,
		Doc: "Size of a partition at which its oldest segments are deleted; -1 is unlimited.", Synonyms: []string{"log.retention.bytes"}},
	{Name: "retention.ms", Type: TypeLong, Default: "604800000", Bounded: true, Min: -1, Max: maxInt64, Dynamic: true,
		Doc:      "Age at which segments are deleted; -1 is unlimited.",
		Synonyms: []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}},
	{Name: "segment.bytes", Type: TypeInt, Default: "1073741824", Bounded: true, Min: 1 << 20, Max: maxInt32, Dynamic: true,
		Doc: "Size at which a segment is rolled; retention and compaction work on whole segments.", Synonyms: []string{"log.segment.bytes"}},
	{Name: "segment.index.bytes", Type: TypeInt, Default: "10485760", Bounded: true, Min: 4, Max: maxInt32, Dynamic: true,
		Doc: "The largest offset index of a local topic's segment; the segment is rolled when it is full.", Synonyms: []string{"log.index.size.max.bytes"}},
	{Name: "segment.jitter.ms", Type: TypeLong, Default: "0", Bounded: true, Min: 0, Max: maxInt64, Dynamic: true,
		Doc:      "Random time taken off segment.ms, so that not all segments roll at once.",
		Synonyms: []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}},
	{Name: "segment.ms", Type: TypeLong, Default: "604800000", Bounded: true, Min: 1, Max: maxInt64, Dynamic: true,
		Doc:      "Age at which a segment is rolled even if it is not full.",
		Synonyms: []string{"log.roll.ms", "log.roll.hours"}},
	{Name: "storage.mode", Type: TypeString, Default: "shared", Enum: []string{"shared", "local"},
		Doc:      "Where the log lies: shared, in the object store, or local, on the owner's disk. Set when the topic is created and not changed later.",
		Synonyms: []string{"storage.mode"}},
	{Name: "unclean.leader.election.enable", Type: TypeBoolean, Default: "false", Dynamic: true, Ignored: true,
		Doc: "Whether a replica that lags may become leader; on a shared log none ever lags.", Synonyms: []string{"unclean.leader.election.enable"}},
}

var compressionTypes = []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", CompressionProducer}

func gzipLevel(v string) error {
	if v == "0" || len(strings.TrimPrefix(v, "-")) != 1 || strings.HasPrefix(v, "-") && v != "-1" {
		return fmt.Errorf("has to be 1 to 9, or -1")
	}
	return nil
}

var throttledReplica = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

// throttledReplicas checks partition:broker pairs; a lone * stands for all.
func throttledReplicas(v string) error {
	list := splitList(v)
	if len(list) == 1 && list[0] == "*" {
		return nil
	}
	for _, r := range list {
		if !throttledReplica.MatchString(r) {
			return fmt.Errorf("has to be a list of partition:broker, or *")
		}
	}
	return nil
}

func noTiering(v string) error {
	if strings.EqualFold(v, "true") {
		return fmt.Errorf("tiered storage is not offered; the log of a shared topic lies in the object store as it is")
	}
	return nil
}
