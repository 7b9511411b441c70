package coordinator

import (
	"errors"
	"fmt"
	"io"
	"time"

	"ponor/commitlog"
	"ponor/partition"
	"ponor/partition/record"
)

const (
	// loadBytes is how much a load reads at a time.
	loadBytes = 4 << 20
	// loadRetry is the pause after a read that failed.
	loadRetry = 100 * time.Millisecond
)

var errNotStable = errors.New("not durable yet")

// load replays the log into the machine and opens the shard for calls.
func (sh *shard[M]) load() error {
	select {
	case sh.owner.loading <- struct{}{}:
		defer func() { <-sh.owner.loading }()
	case <-sh.ctx.Done():
		return errors.New("lost before it was loaded")
	}
	begun := time.Now()
	from := sh.part.Start()
	first, end := from, sh.part.End() // nobody else appends
	for from < end {
		next, err := sh.replay(from)
		switch {
		case err == nil:
			from = next
		case sh.ctx.Err() != nil:
			return fmt.Errorf("load: %w", sh.ctx.Err())
		case errors.Is(err, errNotStable):
			sh.pause(retryAppend)
		case errors.Is(err, commitlog.ErrUnavailable):
			sh.owner.cfg.Logger.Warn("coordinator does not load, it will be tried again", "partition", sh.part.ID().String(), "offset", from, "err", err)
			sh.pause(loadRetry)
		default:
			sh.owner.cfg.Logger.Error("coordinator does not load", "partition", sh.part.ID().String(), "offset", from, "err", err)
			return err
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return sh.lost
	}
	sh.machine.Loaded(time.Now())
	sh.compact.loaded(sh.part.Bytes(), sh.owner.cfg.CompactBytes)
	close(sh.loaded)
	sh.owner.cfg.Metrics.loaded.Inc()
	took := time.Since(begun)
	sh.owner.cfg.Metrics.loads.Observe(took)
	sh.owner.cfg.Logger.Debug("coordinator loaded", "partition", sh.part.ID().String(), "records", int64(end-first), "took", took)
	return nil
}

// pause waits, less long if the shard is lost.
func (sh *shard[M]) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sh.ctx.Done():
	}
}

// replay reads on from an offset and returns the next.
func (sh *shard[M]) replay(from commitlog.Offset) (commitlog.Offset, error) {
	got, err := sh.part.Read(sh.ctx, from, partition.ReadOptions{MaxBytes: loadBytes, MinOne: true})
	if err != nil {
		return from, err
	}
	defer got.Records.Release()
	next := from
	for _, buf := range got.Records.Bufs {
		for len(buf) > 0 {
			batch, rest, err := commitlog.SplitBatch(buf)
			if err != nil {
				return next, fmt.Errorf("replay %s at %d: %w", sh.part.ID(), next, err)
			}
			if err := sh.replayBatch(batch, from); err != nil {
				return next, fmt.Errorf("replay %s at %d: %w", sh.part.ID(), batch.BaseOffset(), err)
			}
			next, buf = batch.LastOffset()+1, rest
		}
	}
	if next == from { // not stable yet, as a shard that was thrown away may have left it
		return from, errNotStable
	}
	return next, nil
}

// replayBatch replays the records of one batch that are at from or later.
func (sh *shard[M]) replayBatch(b commitlog.Batch, from commitlog.Offset) error {
	if b.Control() {
		return nil
	}
	var r record.Reader
	defer r.Close()
	if err := r.Reset(b, record.ReadAll, nil); err != nil {
		return err
	}
	var rec record.Record
	for {
		err := r.Next(&rec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := b.BaseOffset() + commitlog.Offset(rec.OffsetDelta)
		if at < from {
			continue
		}
		one := Record{Key: keep(rec.Key, rec.KeyBytes), Value: keep(rec.Value, rec.ValueBytes)}
		if err := sh.replayRecord(one, int64(at), b.BaseTimestamp()+rec.TimestampDelta); err != nil {
			return err
		}
	}
}

func (sh *shard[M]) replayRecord(r Record, offset, timestamp int64) error {
	sh.mu.Lock() // against lose, which drops the machine
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return sh.lost
	}
	return sh.machine.Replay(r, offset, timestamp)
}

// keep copies what belongs to the log; n is -1 for null.
func keep(b []byte, n int32) []byte {
	if n < 0 {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
