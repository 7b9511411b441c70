package coordinator

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"ponor/internal/plant"
	"ponor/partition"
)

// shard is one partition with its machine. What is below mu is guarded by it; it
// is held over the machine's methods and the log's Append, neither of which waits.
type shard[M Machine] struct {
	owner  *Shards[M]
	part   *partition.Partition
	loaded chan struct{}   // closed when calls may run
	kick   chan struct{}   // wakes run
	ctx    context.Context // ends when the shard is lost
	cancel context.CancelFunc
	ahead  *ahead[M] // what was replayed before the partition came here, nil for nothing

	mu      sync.Mutex
	machine M     // once it has loaded
	lost    error // why it is gone
	log     tail
	replies []*promise // given in the call under way
	alarm   time.Time  // when run will wake for a Tick; zero is never
	stalled time.Time  // since when the log takes nothing; zero while it does
	watched bool       // run will look whether the log takes what it was given
	compact compaction
}

func newShard[M Machine](s *Shards[M], p *partition.Partition) *shard[M] {
	sh := &shard[M]{owner: s, part: p, loaded: make(chan struct{}), kick: make(chan struct{}, 1)}
	sh.ctx, sh.cancel = context.WithCancel(s.ctx)
	return sh
}

// lose ends the shard: whoever waits is told, the state is dropped. Only the
// first reason counts.
func (sh *shard[M]) lose(why error) {
	sh.mu.Lock()
	sh.loseLocked(why)
	sh.mu.Unlock()
}

func (sh *shard[M]) loseLocked(why error) {
	if sh.lost != nil {
		return
	}
	sh.lost = why
	sh.cancel()
	if sh.ready() {
		sh.owner.cfg.Metrics.loaded.Add(-1)
	}
	var none M
	sh.machine = none
	sh.log = tail{}
	sh.owner.forget(sh)
}

// why is the reason of the loss.
func (sh *shard[M]) why() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.lost
}

// ready says whether the shard has loaded.
func (sh *shard[M]) ready() bool {
	select {
	case <-sh.loaded:
		return true
	default:
		return false
	}
}

// await waits until the shard has loaded.
func (sh *shard[M]) await(ctx context.Context, patience time.Duration) error {
	if sh.ready() {
		return nil
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-sh.loaded:
		return nil
	case <-sh.ctx.Done():
		return sh.why()
	case <-t.C:
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: partition %s", ErrLoading, sh.part.ID())
}

// call runs f and appends what it returns. Replies given in it are released by
// what was appended. An error says that f did not run, or that all of the shard
// is thrown away with what it did.
func (sh *shard[M]) call(f func(m M, now time.Time) []Record) (err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.lost != nil {
		return sh.lost
	}
	now := time.Now()
	return sh.safely(func() error {
		if sh.stalls(now) {
			sh.wake()
		}
		if err := sh.log.refuses(now); err != nil {
			return fmt.Errorf("%w: partition %s takes no writes: %w", ErrUnavailable, sh.part.ID(), err)
		}
		return sh.step(f, now)
	})
}

// panicPause is the pause before a shard whose machine panicked loads again: what did
// it may be in the log, or come back.
const panicPause = time.Second

// safely runs what calls the machine; mu is held. A panic leaves the machine with half
// of what the log has nothing of: it costs the shard, which loads anew, and nothing
// else.
func (sh *shard[M]) safely(f func() error) (err error) {
	whole := false
	defer func() {
		if whole {
			return
		}
		why := recover() // nil if the goroutine exits
		err = fmt.Errorf("coordinator of partition %s panicked: %v", sh.part.ID(), why)
		sh.loseLocked(fmt.Errorf("%w: partition %s begins anew after a panic", ErrNotCoordinator, sh.part.ID()))
		sh.owner.cfg.Logger.Error("coordinator panicked, it begins anew", "partition", sh.part.ID().String(), "panic", why, "stack", string(debug.Stack()))
		sh.owner.again(sh, panicPause)
	}()
	err = f()
	whole = true
	return err
}

const (
	// stallAfter is how long the log may be silent before time stands still.
	stallAfter = time.Second
	// stallLook is the pause between two looks whether it goes on.
	stallLook = 100 * time.Millisecond
)

// stalls says whether the log takes nothing now. Who is asked to be heard from now and
// then could not be answered meanwhile, so for the machine that time does not pass. mu
// is held.
func (sh *shard[M]) stalls(now time.Time) bool {
	since := sh.log.lags()
	switch {
	case !since.IsZero() && now.Sub(since) >= stallAfter:
		if sh.stalled.IsZero() {
			sh.stalled = since
		}
		return true
	case !sh.stalled.IsZero():
		sh.machine.Delay(now.Sub(sh.stalled))
		sh.stalled = time.Time{}
	}
	return false
}

// step is one change of the machine. mu is held.
func (sh *shard[M]) step(f func(m M, now time.Time) []Record, now time.Time) error {
	if err := sh.append(f(sh.machine, now), now); err != nil {
		return err // whoever got a reply in it waits for the shard, which is lost
	}
	for _, p := range sh.replies {
		p.ticket = ticket{newest: sh.log.newest, at: now}
		close(p.done)
	}
	clear(sh.replies)
	sh.replies = sh.replies[:0]
	if next := sh.machine.Next(); !next.IsZero() && (sh.alarm.IsZero() || next.Before(sh.alarm)) {
		sh.wake()
	}
	if !sh.watched && sh.log.newest != nil && !sh.log.newest.durable() {
		sh.watched = true
		sh.wake()
	}
	return nil
}

func (sh *shard[M]) wake() {
	select {
	case sh.kick <- struct{}{}:
	default:
	}
}

// ticket is what a reply waits for.
type ticket struct {
	newest *entry // of the log when the reply was given; nil: it was empty
	at     time.Time
}

// released waits until a promise was kept and may be told.
func (sh *shard[M]) released(ctx context.Context, p *promise, atOnce bool, arrived time.Time) error {
	select {
	case <-p.done:
	case <-sh.ctx.Done():
		return sh.why()
	case <-ctx.Done():
		return fmt.Errorf("wait for the coordinator: %w", ctx.Err())
	}
	if plant.On(plant.AnswerEarly) {
		return nil
	}
	since := p.ticket.at
	if atOnce {
		since = arrived
	}
	appended := time.Time{}
	if e := p.ticket.newest; e != nil {
		if err := sh.durable(ctx, e); err != nil {
			return err
		}
		appended = e.at
	}
	// An append that became durable proves that the log was ours when it was made.
	if !appended.Before(since) {
		return nil
	}
	if err := sh.part.Prove(ctx, since); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a proof of ownership: %w", ctx.Err())
		}
		return fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	}
	return nil
}

// durable waits for an entry of the log (ans-1). If it failed, so has the shard.
func (sh *shard[M]) durable(ctx context.Context, e *entry) error {
	select {
	case <-e.sent:
	case <-sh.ctx.Done():
		return sh.why()
	case <-ctx.Done():
		return fmt.Errorf("wait for the log: %w", ctx.Err())
	}
	if err := e.commit.Wait(ctx); err == nil || !e.commit.Resolved() {
		return err
	}
	err := e.commit.Err() // Wait may have told of ctx alone
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w: partition %s: %w", ErrNotCoordinator, sh.part.ID(), err)
	sh.lose(err)
	return err
}

// run is the shard's goroutine: it loads, and then does what no call does, the
// ticks of time, appends that had to wait, compaction.
func (sh *shard[M]) run(before time.Duration) {
	pause(sh.ctx, before)
	if err := sh.load(); err != nil {
		sh.lose(fmt.Errorf("%w: %w", ErrNotCoordinator, err))
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := sh.attend(time.Now())
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-sh.kick:
		case <-sh.ctx.Done():
			return
		}
	}
}

// attend does what is due and says how long until there is more.
func (sh *shard[M]) attend(now time.Time) time.Duration {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	wait := time.Hour
	if sh.lost == nil {
		_ = sh.safely(func() (err error) { // if it fails, the shard is lost
			wait, err = sh.attendTo(now)
			return err
		})
	}
	return wait
}

// attendTo is attend while the shard is not lost.
func (sh *shard[M]) attendTo(now time.Time) (time.Duration, error) {
	if err := sh.flush(); err != nil {
		return time.Hour, err
	}
	if sh.alarm = (time.Time{}); sh.stalls(now) {
		if len(sh.log.waiting) > 0 {
			return retryAppend, nil
		}
		return stallLook, nil
	}
	wait := time.Hour
	since := sh.log.lags()
	if sh.watched = !since.IsZero(); sh.watched {
		wait = since.Add(stallAfter).Sub(now)
	}
	if len(sh.log.waiting) > 0 {
		wait = retryAppend
	} else if err := sh.compactIfDue(now); err != nil {
		return time.Hour, err
	}
	if next := sh.machine.Next(); !next.IsZero() {
		if !now.Before(next) {
			if err := sh.step(M.Tick, now); err != nil {
				return time.Hour, err
			}
		}
		if next = sh.machine.Next(); !next.IsZero() {
			sh.alarm = next
			wait = min(wait, max(next.Sub(now), time.Millisecond))
		}
	}
	return wait, nil
}
