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
	// loadRetry is the pause after a read that failed, loadWarn the one between two
	// times that this is said.
	loadRetry = 100 * time.Millisecond
	loadWarn  = 10 * time.Second
)

var (
	errNotStable = errors.New("not durable yet")
	// errSense: the records are whole, and mean nothing.
	errSense = errors.New("log makes no sense")
)

// loading is a machine into which a log is replayed.
type loading[M Machine] struct {
	cfg     *Config[M]
	id      commitlog.ID
	part    *partition.Partition // nil while it is another node's, see ahead.go
	machine M
	// The machine has the records of [first, next); first was the log's start.
	first, next commitlog.Offset
	warned      time.Time // when it was last said that the log cannot be read
}

func newLoading[M Machine](cfg *Config[M], p *partition.Partition) *loading[M] {
	l := &loading[M]{cfg: cfg, id: p.ID(), part: p}
	l.restart(p.Start())
	return l
}

// restart begins anew at the log's start.
func (l *loading[M]) restart(start commitlog.Offset) {
	l.machine = l.cfg.New(l.id.Partition)
	l.first, l.next = start, start
}

// run replays the log up to its end of now, however often a read fails. An error says
// that ctx has ended or that the log makes no sense.
func (l *loading[M]) run(ctx context.Context) error {
	for end := l.part.End(); l.next < end; {
		err := l.replay(ctx, end)
		switch {
		case err == nil:
		case errors.Is(err, errSense), errors.Is(err, commitlog.ErrCorrupt):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("load: %w", ctx.Err())
		case errors.Is(err, errNotStable):
			pause(ctx, retryAppend)
		case errors.Is(err, commitlog.ErrOffsetOutOfRange):
			// The log was cut by who had this partition before. What was deleted in the
			// part that is gone we do not know.
			pause(ctx, retryAppend)
			l.restart(l.part.Start())
		default:
			// As long as the partition is not closed it is ours, as far as we know.
			if now := time.Now(); now.Sub(l.warned) >= loadWarn {
				l.warned = now
				l.cfg.Logger.Warn("coordinator does not load, it will be tried again", "partition", l.id.String(), "offset", int64(l.next), "err", err)
			}
			pause(ctx, loadRetry)
		}
	}
	return nil
}

// measure finds out how many bytes of the log are live; 0 is unknown: the log may be as
// long as it is. A shard that has to find out itself answers nobody meanwhile.
func (l *loading[M]) measure(log int64) (live int64, err error) {
	if log <= l.cfg.CompactBytes {
		return 0, nil
	}
	err = l.safely(func() error {
		n := 0
		l.machine.Live(func(r Record) bool {
			n++
			live += int64(recordBytes(r, n))
			return true
		})
		return nil
	})
	return live, err
}

// load replays the log into a machine and opens the shard for calls.
func (sh *shard[M]) load() error {
	select {
	case sh.owner.loading <- struct{}{}:
		defer func() { <-sh.owner.loading }()
	case <-sh.ctx.Done():
		return errors.New("lost before it was loaded")
	}
	begun := time.Now()
	l, live := sh.ahead.take(sh.part)
	sh.ahead = nil // it may get a late piece, which nobody needs
	if l == nil {
		l, live = newLoading(&sh.owner.cfg, sh.part), 0
	}
	from := l.next
	err := l.run(sh.ctx) // nobody else appends
	if err == nil && live == 0 {
		live, err = l.measure(sh.part.Bytes())
	}
	if err != nil {
		if sh.ctx.Err() == nil {
			sh.owner.cfg.Logger.Error("coordinator does not load", "partition", sh.part.ID().String(), "offset", int64(l.next), "err", err)
		}
		return err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return sh.lost
	}
	return sh.safely(func() error {
		sh.machine = l.machine
		sh.machine.Loaded(time.Now())
		sh.compact = compaction{bytes: sh.part.Bytes(), least: sh.owner.cfg.CompactBytes, live: live}
		close(sh.loaded)
		sh.owner.cfg.Metrics.loaded.Inc()
		took := time.Since(begun)
		sh.owner.cfg.Metrics.loads.Observe(took)
		from = max(from, l.first) // it began anew, if the log was cut meanwhile
		sh.owner.cfg.Metrics.ahead.Add(int64(from - l.first))
		sh.owner.cfg.Metrics.after.Add(int64(l.next - from))
		sh.owner.cfg.Logger.Debug("coordinator loaded", "partition", sh.part.ID().String(), "records", int64(l.next-from), "ahead", int64(from-l.first), "took", took)
		return nil
	})
}

// pause waits, less long if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// replay reads on and replays what it finds.
func (l *loading[M]) replay(ctx context.Context, end commitlog.Offset) error {
	from := l.next
	bytes, err := l.replayRead(ctx)
	if err != nil || l.next >= end || bytes >= loadBytes/2 {
		return err
	}
	// The log ends in many small objects, which a Read gets one after another.
	return l.replayMany(ctx, end, max(1, (l.next-from)/8))
}

// replayRead replays what one Read finds.
func (l *loading[M]) replayRead(ctx context.Context) (bytes int, err error) {
	got, err := l.part.Read(ctx, l.next, partition.ReadOptions{MaxBytes: loadBytes, MinOne: true})
	if err != nil {
		return 0, err
	}
	defer got.Records.Release()
	from := l.next
	if err = l.replayRecords(got.Records); l.next == from && err == nil {
		// Not stable yet, as a shard that was thrown away may have left it.
		err = errNotStable
	}
	return got.Records.Bytes, err
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
func (c *piece) read(ctx context.Context, part *partition.Partition) {
	for at := c.from; at < c.to; {
		got, err := part.Read(ctx, at, partition.ReadOptions{MaxBytes: pieceBytes, MinOne: true})
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
func (l *loading[M]) replayMany(ctx context.Context, end, step commitlog.Offset) error {
	from := l.next
	var pieces []*piece
	for at := from; at < end && len(pieces) < loadPieces; at += step {
		pieces = append(pieces, &piece{from: at, to: min(at+step, end)})
	}
	var turn atomic.Int64
	var wg sync.WaitGroup
	for range min(loadReads, len(pieces)) {
		wg.Go(func() {
			for i := int(turn.Add(1)) - 1; i < len(pieces); i = int(turn.Add(1)) - 1 {
				pieces[i].read(ctx, l.part)
			}
		})
	}
	wg.Wait()
	var err error
	for _, c := range pieces {
		for i := range c.got {
			if err == nil {
				err = l.replayRecords(c.got[i])
			}
			c.got[i].Release()
		}
		if err == nil {
			err = c.err
		}
	}
	if l.next > from && (errors.Is(err, errNotStable) || errors.Is(err, commitlog.ErrUnavailable)) {
		err = nil // go on from there
	}
	return err
}

// safely runs what calls the machine.
func (l *loading[M]) safely(f func() error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("replay %s at %d: %w: panic: %v\n%s", l.id, l.next, errSense, why, debug.Stack())
		}
	}()
	return f()
}

// replayRecords replays what is at next or later.
func (l *loading[M]) replayRecords(records commitlog.Records) error {
	return l.safely(func() error { return l.replayBatches(records) })
}

func (l *loading[M]) replayBatches(records commitlog.Records) error {
	for _, buf := range records.Bufs {
		for len(buf) > 0 {
			batch, rest, err := commitlog.SplitBatch(buf)
			if err == nil {
				err = l.replayBatch(batch)
			}
			if err != nil {
				return fmt.Errorf("replay %s at %d: %w: %w", l.id, l.next, errSense, err)
			}
			l.next, buf = max(l.next, batch.LastOffset()+1), rest
		}
	}
	return nil
}

// replayBatch replays the records of one batch that are at next or later.
func (l *loading[M]) replayBatch(b commitlog.Batch) error {
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
		if at < l.next {
			continue
		}
		one := Record{Key: bytesOf(rec.Key, rec.KeyBytes), Value: bytesOf(rec.Value, rec.ValueBytes)}
		if err := l.machine.Replay(one, int64(at), b.BaseTimestamp()+rec.TimestampDelta); err != nil {
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
