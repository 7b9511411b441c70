package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
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

var (
	errNotStable = errors.New("not durable yet")
	// errSense: the records are whole, and mean nothing.
	errSense = errors.New("log makes no sense")
)

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
		next, err := sh.replay(from, end)
		from = next
		switch {
		case err == nil:
		case sh.ctx.Err() != nil:
			return fmt.Errorf("load: %w", sh.ctx.Err())
		case errors.Is(err, errNotStable):
			sh.pause(retryAppend)
		case errors.Is(err, errSense), errors.Is(err, commitlog.ErrCorrupt):
			sh.owner.cfg.Logger.Error("coordinator does not load", "partition", sh.part.ID().String(), "offset", int64(from), "err", err)
			return err
		case errors.Is(err, commitlog.ErrOffsetOutOfRange):
			// The log was cut by who had this partition before. What was deleted in the
			// part that is gone we do not know.
			sh.mu.Lock()
			if sh.lost == nil {
				sh.machine = sh.owner.cfg.New(sh.part.ID().Partition)
			}
			sh.mu.Unlock()
			sh.pause(retryAppend)
			from = sh.part.Start()
			first = from
		default:
			// As long as the partition is not closed it is ours, as far as we know.
			sh.owner.cfg.Logger.Warn("coordinator does not load, it will be tried again", "partition", sh.part.ID().String(), "offset", int64(from), "err", err)
			sh.pause(loadRetry)
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return sh.lost
	}
	return sh.safely(func() error {
		sh.machine.Loaded(time.Now())
		sh.compact.loaded(sh.part.Bytes(), sh.owner.cfg.CompactBytes)
		close(sh.loaded)
		sh.owner.cfg.Metrics.loaded.Inc()
		took := time.Since(begun)
		sh.owner.cfg.Metrics.loads.Observe(took)
		sh.owner.cfg.Logger.Debug("coordinator loaded", "partition", sh.part.ID().String(), "records", int64(end-first), "took", took)
		return nil
	})
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
func (sh *shard[M]) replay(from, end commitlog.Offset) (commitlog.Offset, error) {
	next, bytes, err := sh.replayRead(from, loadBytes)
	if err != nil || next >= end || bytes >= loadBytes/2 {
		return next, err
	}
	// The log ends in many small objects, which a Read gets one after another.
	return sh.replayMany(next, end, max(1, (next-from)/8))
}

// replayRead replays what one Read finds.
func (sh *shard[M]) replayRead(from commitlog.Offset, most int) (next commitlog.Offset, bytes int, err error) {
	got, err := sh.part.Read(sh.ctx, from, partition.ReadOptions{MaxBytes: most, MinOne: true})
	if err != nil {
		return from, 0, err
	}
	defer got.Records.Release()
	bytes = got.Records.Bytes
	if next, err = sh.replayRecords(got.Records, from); next == from && err == nil {
		// Not stable yet, as a shard that was thrown away may have left it.
		err = errNotStable
	}
	return next, bytes, err
}

const (
	// loadPieces is how many pieces are read before they are replayed, of at most
	// pieceBytes for each Read, and loadReads how many at a time.
	loadPieces = 256
	pieceBytes = 64 << 10
	loadReads  = 32
)

// piece is a range of offsets that is read beside others.
type piece struct {
	from, to commitlog.Offset
	got      []commitlog.Records
	err      error
}

// read reads the piece; what is behind it may come too.
func (c *piece) read(ctx context.Context, p *partition.Partition) {
	for at := c.from; at < c.to; {
		got, err := p.Read(ctx, at, partition.ReadOptions{MaxBytes: pieceBytes, MinOne: true})
		if err != nil || got.Records.Bytes == 0 {
			c.err = cmp.Or(err, errNotStable)
			return
		}
		c.got = append(c.got, got.Records)
		for _, buf := range got.Records.Bufs {
			for b, rest, err := commitlog.SplitBatch(buf); err == nil; b, rest, err = commitlog.SplitBatch(rest) {
				at = b.LastOffset() + 1
			}
		}
	}
}

// replayMany reads pieces of step offsets at the same time and replays them in
// order.
func (sh *shard[M]) replayMany(from, end, step commitlog.Offset) (commitlog.Offset, error) {
	var pieces []*piece
	for at := from; at < end && len(pieces) < loadPieces; at += step {
		pieces = append(pieces, &piece{from: at, to: min(at+step, end)})
	}
	var turn atomic.Int64
	var wg sync.WaitGroup
	for range min(loadReads, len(pieces)) {
		wg.Go(func() {
			for i := int(turn.Add(1)) - 1; i < len(pieces); i = int(turn.Add(1)) - 1 {
				pieces[i].read(sh.ctx, sh.part)
			}
		})
	}
	wg.Wait()
	next := from
	var err error
	for _, c := range pieces {
		for i := range c.got {
			if err == nil {
				next, err = sh.replayRecords(c.got[i], next)
			}
			c.got[i].Release()
		}
		if err == nil {
			err = c.err
		}
	}
	if next > from && (errors.Is(err, errNotStable) || errors.Is(err, commitlog.ErrUnavailable)) {
		err = nil // go on from there
	}
	return next, err
}

// replayRecords replays what is at from or later and returns the next offset.
func (sh *shard[M]) replayRecords(records commitlog.Records, from commitlog.Offset) (next commitlog.Offset, err error) {
	sh.mu.Lock() // against lose, which drops the machine
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return from, sh.lost
	}
	next = from
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("replay %s at %d: %w: panic: %v\n%s", sh.part.ID(), next, errSense, why, debug.Stack())
		}
	}()
	for _, buf := range records.Bufs {
		for len(buf) > 0 {
			batch, rest, err := commitlog.SplitBatch(buf)
			if err == nil {
				err = sh.replayBatch(batch, next)
			}
			if err != nil {
				return next, fmt.Errorf("replay %s at %d: %w: %w", sh.part.ID(), next, errSense, err)
			}
			next, buf = max(next, batch.LastOffset()+1), rest
		}
	}
	return next, nil
}

// replayBatch replays the records of one batch that are at from or later. mu is
// held.
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
		one := Record{Key: bytesOf(rec.Key, rec.KeyBytes), Value: bytesOf(rec.Value, rec.ValueBytes)}
		if err := sh.machine.Replay(one, int64(at), b.BaseTimestamp()+rec.TimestampDelta); err != nil {
			return err
		}
	}
}

// bytesOf is nil for null, for which n is -1, and for nothing else.
func bytesOf(b []byte, n int32) []byte {
	if n >= 0 && b == nil {
		return []byte{}
	}
	if n < 0 {
		return nil
	}
	return b
}
