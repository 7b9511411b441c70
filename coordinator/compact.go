package coordinator

import (
	"time"

	"ponor/commitlog"
)

// compaction is when a shard's log is written anew: Kafka's cleaner keeps the
// newest record of each key; the machine knows those, so it writes them again at
// the end of the log and the log is cut off before them.
type compaction struct {
	bytes, least int64 // of the log since its start; below least it is left alone
	live         int64 // size of the live records when last looked at, 0 unknown
	running      bool
}

// compactFactor is how many times as long as its live records a log may be: each
// byte that is kept is written 1/(factor-1) times more, and read at a load.
const compactFactor = 4

// cutRetry is the pause after a cut that failed.
const cutRetry = time.Second

func (c *compaction) grow(n int) { c.bytes += int64(n) }

func (c *compaction) due() bool {
	return !c.running && c.least > 0 && c.bytes > max(c.least, compactFactor*c.live)
}

// compactIfDue writes the live records to the end of the log, all in one go: a
// change between two of them would make an old record newer than the change. mu
// is held, for about 0.3 s per million records. An error says that the shard is lost. When they are durable, what is
// before them goes.
func (sh *shard[M]) compactIfDue(now time.Time) error {
	c := &sh.compact
	if !c.due() {
		return nil
	}
	var live []Record
	var kept arena
	bytes := 0
	sh.machine.Live(func(r Record) bool {
		live = append(live, Record{Key: kept.clone(r.Key), Value: kept.clone(r.Value)})
		bytes += recordBytes(r, len(live))
		return true
	})
	if c.live = int64(bytes); !c.due() {
		return nil // most of it is live; now we know
	}
	from := sh.part.End()
	before := c.bytes
	if err := sh.append(live, now); err != nil {
		return err
	}
	c.running, c.bytes = true, c.bytes-before
	newest := sh.log.newest
	sh.owner.wg.Go(func() { sh.cut(from, newest, before) })
	return nil
}

// arena is memory for many small things that go together.
type arena []byte

// arenaBytes is how much of it is made at a time.
const arenaBytes = 1 << 20

func (a *arena) clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	if *a == nil || cap(*a)-len(*a) < len(b) {
		*a = make([]byte, 0, max(arenaBytes, len(b)))
	}
	n := len(*a)
	*a = append(*a, b...)
	return (*a)[n:len(*a):len(*a)]
}

// cut moves the log's start to where its live records begin, once these are
// durable. It is tried until it succeeds: a log that only grows would not load.
func (sh *shard[M]) cut(from commitlog.Offset, newest *entry, before int64) {
	if newest != nil && sh.durable(sh.ctx, newest) != nil {
		return
	}
	for {
		err := sh.part.Trim(sh.ctx, from)
		if err == nil {
			break
		}
		if sh.ctx.Err() != nil {
			return
		}
		sh.owner.cfg.Logger.Warn("coordinator's log is not cut, it will be tried again", "partition", sh.part.ID().String(), "offset", int64(from), "err", err)
		pause(sh.ctx, cutRetry)
	}
	sh.mu.Lock()
	sh.compact.running = false
	sh.mu.Unlock()
	sh.owner.cfg.Metrics.compacted(before)
}
