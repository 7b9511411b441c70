package coordinator

import (
	"context"
	"time"
)

// promise is a reply that was or will be given to one call.
type promise struct {
	done   chan struct{} // closed when the rest is set
	given  bool          // under the shard's lock
	ticket ticket
}

// Ask is Do for a call that is answered by the machine: f, or any later call or
// Tick of the same machine, calls reply, once. Further calls of it do nothing, nor
// does one that nobody waits for any more. The answer is delivered when the records
// of the call that gave it, and all before, are durable. If f itself does not reply, the proof is
// of the time of the reply instead of arrived.
func Ask[T any, M Machine](ctx context.Context, s *Shards[M], key string, arrived time.Time,
	f func(m M, now time.Time, reply func(T)) []Record,
) (T, error) {
	sh, err := s.find(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	return ask(ctx, sh, arrived, f)
}

// Until says when a call that waits is answered early: when Early is closed, or ctx
// ends, and nobody has replied, Over is called, which replies if anybody can still hear
// it. A nil Over is for calls that are not.
type Until[M Machine] struct {
	Early <-chan struct{}
	Over  func(m M, now time.Time) []Record
}

// AskUntil is Ask for a call that may be answered early.
func AskUntil[T any, M Machine](ctx context.Context, s *Shards[M], key string, arrived time.Time,
	f func(m M, now time.Time, reply func(T)) []Record, until Until[M],
) (T, error) {
	sh, err := s.find(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	return askUntil(ctx, sh, arrived, f, until)
}

func ask[T any, M Machine](ctx context.Context, sh *shard[M], arrived time.Time,
	f func(m M, now time.Time, reply func(T)) []Record,
) (T, error) {
	return askUntil(ctx, sh, arrived, f, Until[M]{})
}

func askUntil[T any, M Machine](ctx context.Context, sh *shard[M], arrived time.Time,
	f func(m M, now time.Time, reply func(T)) []Record, until Until[M],
) (T, error) {
	var none T
	answer := new(T) // of its own: a reply may come when nobody waits any more
	p := &promise{done: make(chan struct{})}
	reply := func(v T) {
		if !p.given {
			p.given, *answer = true, v
			sh.replies = append(sh.replies, p)
		}
	}
	atOnce := false
	err := sh.call(func(m M, now time.Time) []Record {
		records := f(m, now, reply)
		atOnce = p.given
		return records
	})
	if err == nil && until.Over != nil && !atOnce {
		err = sh.awaitReply(ctx, p, until)
	}
	if err == nil {
		err = sh.released(ctx, p, atOnce, arrived)
	}
	if err != nil {
		return none, err
	}
	return *answer, nil
}

// awaitReply waits for a promise to be kept, and has Over keep it if it takes too long.
func (sh *shard[M]) awaitReply(ctx context.Context, p *promise, until Until[M]) error {
	select {
	case <-p.done:
		return nil
	case <-sh.ctx.Done():
		return nil // released tells of it
	case <-until.Early:
	case <-ctx.Done():
	}
	return sh.call(func(m M, now time.Time) []Record {
		if p.given {
			return nil
		}
		return until.Over(m, now)
	})
}
