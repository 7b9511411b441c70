package logtest_test

import (
	"bytes"
	"context"
	"errors"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/logtest"
	"ponor/commitlog/memlog"
)

// mutant is a fault and the clauses that must notice it.
type mutant struct {
	fault   string
	caught  []string
	breakIt func(s *memlog.Store) logtest.World
}

// inLog makes a world whose logs have a fault.
func inLog(l brokenLog) func(*memlog.Store) logtest.World {
	return func(s *memlog.Store) logtest.World { return &broken{Store: s, log: l} }
}

func mutants() []mutant {
	var all []mutant
	all = append(all, appendMutants()...)
	all = append(all, ownerMutants()...)
	all = append(all, readMutants()...)
	all = append(all, readEndMutants()...)
	return append(all, keepMutants()...)
}

func appendMutants() []mutant {
	// own gives every Commit a slot of its own that ends as the fault says.
	own := func(resolve func(l *brokenLog, c commitlog.Commit, slot *commitlog.Slot)) brokenLog {
		return brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
			c, err := l.Log.Append(b)
			if err != nil {
				return c, err
			}
			slot := commitlog.NewSlot()
			go resolve(l, c, slot)
			return commitlog.NewCommit(c.Base, c.Last, slot), nil
		}}
	}
	return []mutant{
		{"offsets with a gap", []string{"C1 offsets are dense in call order"}, inLog(brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
			c, err := l.Log.Append(b)
			c.Base, c.Last = c.Base+1, c.Last+1
			return c, err
		}})},
		{"text is swallowed", []string{"C1 what is no batch is refused and moves nothing"}, inLog(brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
			if b.Check() != nil {
				return commitlog.Commit{}, nil
			}
			return l.Log.Append(b)
		}})},
		{"append waits", []string{"C2 append does not wait and its commit does"}, inLog(brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
			c, err := l.Log.Append(b)
			<-c.Done()
			return c, err
		}})},
		{"acknowledges before it is durable", []string{"C2 append does not wait and its commit does", "C6 what was durable survives a crash"},
			inLog(brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
				c, err := l.Log.Append(b)
				return commitlog.NewCommit(c.Base, c.Last, nil), err
			}})},
		{"commits never resolve", []string{"C2 a commit resolves", "C13 close resolves what is outstanding"},
			inLog(own(func(*brokenLog, commitlog.Commit, *commitlog.Slot) {}))},
		{"commits resolve youngest first", []string{"C3 commits resolve in order"}, inLog(own(func(l *brokenLog, c commitlog.Commit, slot *commitlog.Slot) {
			<-c.Done()
			time.Sleep(time.Second - time.Duration(c.Base)*time.Millisecond)
			slot.Resolve(c.Err())
		}))},
		{"failures are hidden", []string{"C3 after a failed commit nothing succeeds", "C5 an older owner's pending commit succeeds only if it was taken over"},
			inLog(own(func(l *brokenLog, c commitlog.Commit, slot *commitlog.Slot) {
				<-c.Done()
				slot.Resolve(nil)
			}))},
		{"a lost log takes appends", []string{"C3 after a failed commit nothing succeeds", "C5 an older owner cannot append"},
			inLog(brokenLog{append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
				c, err := l.Log.Append(b)
				if errors.Is(err, commitlog.ErrFenced) {
					return commitlog.Commit{}, nil
				}
				return c, err
			}})},
		{"leader epoch is not patched", []string{"C9 only base offset and epoch are patched"}, inLog(readBatches(func(b commitlog.Batch) { b.SetBase(b.BaseOffset(), 0) }))},
		{"times are patched too", []string{"C9 only base offset and epoch are patched", "C1 offsets are dense in call order"}, inLog(readBatches(func(b commitlog.Batch) {
			b[30]++
			b.SetCRC()
		}))},
		{"append keeps the caller's bytes", []string{"C12 append copies"}, inLog(aliasing())},
	}
}

// readBatches changes copies of the batches on their way out.
func readBatches(change func(commitlog.Batch)) brokenLog {
	return brokenLog{read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
		rec, err := l.Log.Read(ctx, from, opts)
		for i, b := range rec.Bufs {
			rec.Bufs[i] = bytes.Clone(b)
			change(rec.Bufs[i])
		}
		return rec, err
	}}
}

// aliasing reads from the very bytes that Append was given.
func aliasing() brokenLog {
	return brokenLog{
		append: func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
			c, err := l.Log.Append(b)
			if l.seen.batches == nil {
				l.seen.batches = map[commitlog.Offset][]byte{}
			}
			l.seen.batches[c.Base] = b
			return c, err
		},
		read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
			rec, err := l.Log.Read(ctx, from, opts)
			for i, b := range rec.Bufs {
				if alias := l.seen.batches[commitlog.Batch(b).BaseOffset()]; alias != nil {
					rec.Bufs[i] = bytes.Clone(alias)
				}
			}
			return rec, err
		},
	}
}

func ownerMutants() []mutant {
	return []mutant{
		{"a failed write lands late", []string{"C4 a failed commit is unknown and no hole"}, zombies},
		{"open does not fence", []string{"C5 an older owner cannot append", "C13 a log that was taken says so"}, func(s *memlog.Store) logtest.World {
			w := &broken{Store: s}
			open := map[commitlog.ID]commitlog.Log{}
			w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
				if l := open[id]; l != nil {
					return l, nil
				}
				l, err := s.Open(ctx, id, epoch, opts)
				open[id] = l
				return l, err
			}
			return w
		}},
		{"epochs go back", []string{"C5 open below the newest epoch is fenced"}, func(s *memlog.Store) logtest.World {
			w := &broken{Store: s}
			w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
				l, err := s.Open(ctx, id, epoch, opts)
				if errors.Is(err, commitlog.ErrFenced) {
					return s.Open(ctx, id, 1<<20, opts)
				}
				return l, err
			}
			return w
		}},
		{"open starts afresh", []string{"C6 what was durable survives close", "C6 what was durable survives a takeover"}, func(s *memlog.Store) logtest.World {
			w := &broken{Store: s}
			w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
				if err := s.Remove(ctx, id); err != nil {
					return nil, err
				}
				return s.Open(ctx, id, epoch, opts)
			}
			return w
		}},
		{"close does nothing", []string{"C13 a closed log says so"}, inLog(brokenLog{close: func(*brokenLog, context.Context) error { return nil }})},
		{"close does not wait", []string{"C13 close resolves what is outstanding"}, inLog(brokenLog{close: func(l *brokenLog, ctx context.Context) error {
			go l.Log.Close(ctx)
			return nil
		}})},
		{"close waits for ever", []string{"C13 close gives up when its context ends"}, inLog(brokenLog{close: func(l *brokenLog, ctx context.Context) error {
			return l.Log.Close(context.WithoutCancel(ctx))
		}})},
		{"a lost log reads as empty", []string{"C13 a log that was taken says so"}, inLog(brokenLog{
			read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
				rec, err := l.Log.Read(ctx, from, opts)
				if errors.Is(err, commitlog.ErrFenced) {
					return commitlog.Records{}, nil
				}
				return rec, err
			}})},
	}
}

// zombies makes a world where what failed is written once the next owner writes.
func zombies(s *memlog.Store) logtest.World {
	type failed struct {
		commit commitlog.Commit
		batch  []byte
	}
	var all []failed
	w := &broken{Store: s}
	w.log.append = func(l *brokenLog, b commitlog.Batch) (commitlog.Commit, error) {
		for _, f := range all {
			if f.commit.Err() != nil {
				if _, err := l.Log.Append(f.batch); err != nil {
					return commitlog.Commit{}, err
				}
			}
		}
		c, err := l.Log.Append(b)
		all = append(all, failed{c, bytes.Clone(b)})
		return c, err
	}
	return w
}
