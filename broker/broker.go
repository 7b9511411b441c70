package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
	"ponor/partition"
)

// Meta is what the API surface knows of the cluster. *controller.Node is one.
type Meta interface {
	// Image is the newest image this node has.
	Image() *metadata.Image
	// Changed is closed at the next change of the image.
	Changed() <-chan struct{}
	// Barrier returns an image at least as new as every change that was
	// accepted anywhere before the call.
	Barrier(ctx context.Context) (*metadata.Image, error)
	// Incarnation is this broker's registration, zero before it has one.
	Incarnation() metadata.Incarnation
}

// Partitions are the partitions this node hosts. *partition.Set is one.
type Partitions interface {
	// Get returns a partition that can serve. Its errors say why there is none:
	// another owner, an unknown number, still opening.
	Get(topic metadata.TopicID, number int32) (*partition.Partition, error)
	// Await is Get that waits a while, and as long as ctx, for one that is
	// opening.
	Await(ctx context.Context, topic metadata.TopicID, number int32) (*partition.Partition, error)
}

var (
	_ Meta       = (*controller.Node)(nil)
	_ Partitions = (*partition.Set)(nil)
)

// Config is what a Broker needs. NodeID and the three interfaces are required;
// every other field's zero value is its default.
type Config struct {
	// NodeID is this broker's id. Its incarnation comes and goes, the id stays.
	NodeID metadata.BrokerID
	// Meta, Partitions and Admin are the rest of the node.
	Meta       Meta
	Partitions Partitions
	Admin      Admin
	// Groups are the consumer groups that this node coordinates; nil coordinates
	// none.
	Groups *coordinator.Shards[*group.Machine]

	// AutoCreateTopics is the default of auto.create.topics.enable: whether
	// Metadata may create the topics it is asked for. A dynamic broker config
	// goes before it.
	AutoCreateTopics bool
	// BrokerConfigs are the broker configs this node was started with, shown as
	// static by DescribeConfigs: name to value. nil shows defaults.
	BrokerConfigs map[string]string

	// StoreName names the shared store in DescribeLogDirs ("s3://bucket/x");
	// default "shared". LocalDir is the log dir of local topics; "" shows none.
	StoreName string
	LocalDir  string

	// FetchSessions is the size of the cache of incremental fetch sessions
	// (KIP-227), default 1000 as Kafka. Too small and consumers of many
	// partitions repeat all of them in every fetch; each session holds about
	// 200 bytes for each of its partitions. Negative allows none.
	FetchSessions int
	// FetchMaxBytes caps the size in bytes of one Fetch response whatever the
	// client asks for, default 55 MiB as Kafka's fetch.max.bytes.
	FetchMaxBytes int
	// Park is how long a request waits in all for what will soon be: room in
	// the append budget, partitions that are opening. Then the client is told to
	// retry. Default 500 ms. Longer smooths bursts and moves; meanwhile the
	// connection serves nothing else. Produce waits at most 100 ms of it for
	// partitions that open, which is what a producer pauses before a retry.
	Park time.Duration
	// ProduceLimit is the frame limit in bytes of Produce requests, default
	// 100 MiB as Kafka's socket.request.max.bytes.
	ProduceLimit int

	// Draining, once closed, has waiting fetches answered early, so that the node
	// can stop; nil never does.
	Draining <-chan struct{}
	// LogLevel, if set, is shown and changed as the broker logger "root".
	LogLevel *slog.LevelVar
	// Now is the wall clock that stamps records, default time.Now.
	Now func() time.Time
	// Logger gets what nobody is told otherwise; nil discards.
	Logger *slog.Logger
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	if c.StoreName == "" {
		c.StoreName = "shared"
	}
	if c.FetchSessions == 0 {
		c.FetchSessions = 1000
	}
	if c.FetchMaxBytes == 0 {
		c.FetchMaxBytes = 55 << 20
	}
	if c.Park == 0 {
		c.Park = 500 * time.Millisecond
	}
	if c.ProduceLimit == 0 {
		c.ProduceLimit = 100 << 20
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Broker answers Kafka requests. It is safe for concurrent use; its only state
// is the cache of fetch sessions, which has its own lock, counters, and pools of
// memory.
type Broker struct {
	cfg        Config
	log        *slog.Logger
	sessions   *sessionCache
	advertised []kmsg.ApiVersionsResponseApiKey // never changed
	produces   sync.Pool                        // of *produceCall
	fetches    sync.Pool                        // of *fetchCall
	errors     errorCounts
}

// New returns a Broker over the node's parts. It starts nothing and needs no
// Close.
func New(cfg Config) *Broker {
	cfg = cfg.withDefaults()
	b := &Broker{cfg: cfg, log: cfg.Logger, sessions: newSessionCache(cfg.FetchSessions), advertised: advertise(table(cfg))}
	b.produces.New = func() any { return b.newProduceCall() }
	b.fetches.New = func() any { return b.newFetchCall() }
	return b
}
