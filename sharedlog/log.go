package sharedlog

import (
	"context"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/stream"
)

// Log is one partition's log over a stream. It implements commitlog.Log.
type Log struct {
	store    *Store
	stream   stream.Stream
	settings func() commitlog.Settings

	mu        sync.Mutex
	segments  []segment     // at least one; the last is active
	live      int           // segments from here on were appended by this Log
	firstTime int64         // timestamp that the active segment began with, -1 if empty
	begun     time.Duration // when its first batch was appended, since the store was made
	coarse    bool          // some of the older segments stand for many
	refining  bool
}

var _ commitlog.Log = (*Log)(nil)

// Append implements commitlog.Log.
func (l *Log) Append(batch commitlog.Batch) (commitlog.Commit, error) {
	c, err := l.stream.Append(batch)
	if err == nil {
		l.appended(c.Base, c.Last+1, int64(len(batch)), batch.MaxTimestamp())
	}
	return c, err
}

// Read implements commitlog.Log.
func (l *Log) Read(ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
	return l.stream.Fetch(ctx, from, opts)
}

// BatchAt implements commitlog.Log.
func (l *Log) BatchAt(ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
	return l.stream.FindTime(ctx, ts)
}

// MaxTimestampBatch implements commitlog.Log.
func (l *Log) MaxTimestampBatch(ctx context.Context) (commitlog.Offset, bool, error) {
	return l.stream.FindMaxTime(ctx)
}

// Bounds implements commitlog.Log.
func (l *Log) Bounds() commitlog.Bounds { return l.stream.Offsets() }

// Trim implements commitlog.Log. A target past what is committed is packed
// first.
func (l *Log) Trim(ctx context.Context, to commitlog.Offset) error { return l.stream.Trim(ctx, to) }

// Recovered implements commitlog.Log.
func (l *Log) Recovered(ctx context.Context) (commitlog.Recovery, error) {
	return l.stream.Recovered(ctx)
}

// Seal implements commitlog.Log.
func (l *Log) Seal() { l.stream.Flush() }

// Close implements commitlog.Log.
func (l *Log) Close(ctx context.Context) error { return l.stream.Close(ctx) }

// current are the settings now, zero ones being Kafka's defaults.
func (l *Log) current() commitlog.Settings {
	var s commitlog.Settings
	if l.settings != nil {
		s = l.settings()
	}
	if s.SegmentBytes <= 0 {
		s.SegmentBytes = 1 << 30
	}
	if s.SegmentAge <= 0 {
		s.SegmentAge = 7 * 24 * time.Hour
	}
	return s
}
