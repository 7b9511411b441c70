package engine

import (
	"context"
	"io"
	"log/slog"
	"time"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
)

// Meta is the replicated metadata as the engine needs it.
type Meta interface {
	// Image is the newest known one.
	Image() *metadata.Image
	// SubmitOwn submits a command of our incarnation in order (cmd-1) and waits
	// until it has applied here. An error means that the outcome is unknown. It
	// must refuse commands whose From is not the incarnation it submits for.
	SubmitOwn(ctx context.Context, cmd *metadatapb.Command) (metadata.Result, error)
	// Barrier returns an image that has everything committed before the call.
	Barrier(ctx context.Context) (*metadata.Image, error)
	// Wait returns once the image has applied index.
	Wait(ctx context.Context, index metadata.Index) error
}

// Config configures an Engine. Zero values mean defaults.
type Config struct {
	// Bucket, Meta and Incarnation are required; the image must know the
	// incarnation and the cluster's id.
	Bucket      objstore.Bucket
	Meta        Meta
	Incarnation metadata.Incarnation

	// Budget bounds bytes appended and not yet durable, default 128 MiB.
	Budget int64
	// CacheBytes is the memory for recent data (WAL slabs), default 256 MiB.
	CacheBytes int64
	// ReadCacheBytes is the memory for what was read back from the store,
	// default 128 MiB. Less makes consumers of one old range read it twice.
	ReadCacheBytes int64
	// ColdReads is how many reads from the store may run at once for consumers,
	// default 32; each holds at most ReadAhead bytes. More lets a backfill take
	// bandwidth from the WAL.
	ColdReads int
	// ReadAhead is the most bytes one read from the store fetches for a
	// sequential reader, default 4 MiB, but at most a sixteenth of ReadCacheBytes:
	// what a few readers had fetched ahead must not push each other's out.
	ReadAhead int

	// PackBytes starts packing when so much WAL is unpacked, default 64 MiB, but at
	// most a quarter of CacheBytes: what is packed from memory is not read again.
	// More makes larger runs, and takeovers and restarts look at more slots.
	PackBytes int64
	// PackAge starts packing when the oldest unpacked slot is so old, default 60
	// s. Less makes small runs.
	PackAge time.Duration
	// MaxSlots bounds unpacked slots; at the bound appends are pushed back, at
	// half of it packing starts. Default 256 where writes cost (S3), 4096 else.
	MaxSlots int
	// MaxUnpacked bounds unpacked bytes likewise, default 1 GiB.
	MaxUnpacked int64
	// ObjectBytes is the size at which a segment object with runs of many
	// streams is full, default 64 MiB.
	ObjectBytes int64
	// AdoptBytes is the size from which a stream's chunk of a WAL slot stays there
	// instead of being written again, if little else is in the slot, default 512 KiB:
	// a full batch of most clients, 1,000,000 bytes, is one.
	// Negative writes all again.
	AdoptBytes int64
	// MaxAdopted bounds how many slots of this incarnation stay for that, default
	// 16,384: a takeover lists the directory they are in.
	MaxAdopted int
	// MaxExtents is how many extents of a stream stay in the metadata before
	// older ones move into an index object, default metadata.TargetExtents.
	MaxExtents int
	// MaintainEvery is the period of merging, folding and repacking, default
	// 10 s; it does nothing while there is nothing to do.
	MaintainEvery time.Duration
	// SweepEvery is the period of looking for garbage, default 10 min; for what
	// this broker wrote of a topic that was deleted here half a minute. Negative
	// never sweeps.
	SweepEvery time.Duration
	// RetryMin and RetryMax bound the waits between attempts of background work,
	// default 50 ms and 5 s.
	RetryMin, RetryMax time.Duration

	// MaxObject, MaxInflight, Gather, Linger go to the WAL; see wal.Config.
	MaxObject, MaxInflight int
	Gather, Linger         time.Duration
	// Metrics counts for this engine and for those that come after it; nil: not
	// for anyone to see.
	Metrics *Metrics
	// Rand gives write ids, default crypto/rand.
	Rand io.Reader
	// Logger, nil discards.
	Logger *slog.Logger
}

func (c *Config) defaults() {
	set(&c.CacheBytes, 256<<20)
	set(&c.ReadCacheBytes, 128<<20)
	set(&c.ColdReads, 32)
	set(&c.ReadAhead, int(min(4<<20, max(c.ReadCacheBytes/16, pageBytes))))
	set(&c.PackBytes, min(64<<20, max(c.CacheBytes/4, 1<<20)))
	set(&c.PackAge, time.Minute)
	if c.Bucket.Kind().PutsPerSecond > 0 {
		set(&c.MaxSlots, 256)
	}
	set(&c.MaxSlots, 4096)
	set(&c.MaxUnpacked, 1<<30)
	set(&c.ObjectBytes, 64<<20)
	set(&c.AdoptBytes, 512<<10)
	set(&c.MaxAdopted, 16<<10)
	set(&c.MaxExtents, metadata.TargetExtents)
	set(&c.MaintainEvery, 10*time.Second)
	set(&c.SweepEvery, 10*time.Minute)
	set(&c.RetryMin, 50*time.Millisecond)
	set(&c.RetryMax, 5*time.Second)
	if c.Metrics == nil {
		c.Metrics = new(Metrics)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
