package logtest_test

import (
	"context"
	"errors"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/logtest"
	"ponor/commitlog/memlog"
)

// askOther reads with other arguments.
func askOther(change func(l *brokenLog, from *commitlog.Offset, opts *commitlog.ReadOptions)) func(*memlog.Store) logtest.World {
	return inLog(brokenLog{read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
		change(l, &from, &opts)
		return l.Log.Read(ctx, from, opts)
	}})
}

// answerOther changes what was read.
func answerOther(change func(l *brokenLog, from commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error)) func(*memlog.Store) logtest.World {
	return inLog(brokenLog{read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
		rec, err := l.Log.Read(ctx, from, opts)
		return change(l, from, rec, err)
	}})
}

func skipFirst(rec commitlog.Records) commitlog.Records {
	return commitlog.NewRecords(rec.Bufs[1:], nil)
}

func readMutants() []mutant {
	return []mutant{
		{"stable runs ahead", []string{"C7 readers see nothing above stable"}, inLog(brokenLog{bounds: func(l *brokenLog) commitlog.Bounds {
			b := l.Log.Bounds()
			b.Stable = b.End
			return b
		}})},
		{"unstable batches are read", []string{"C7 readers see nothing above stable"}, inLog(dirtyReads())},
		{"stable moves back", []string{"C7 bounds never move back"}, inLog(brokenLog{bounds: func(l *brokenLog) commitlog.Bounds {
			b := l.Log.Bounds()
			if l.seen.count()%3 == 0 && b.Stable > b.Start {
				b.Stable--
			}
			return b
		}})},
		{"the batch around the offset is skipped", []string{"C8 read starts with the batch that holds the offset"},
			answerOther(func(_ *brokenLog, from commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if len(rec.Bufs) > 0 && commitlog.Batch(rec.Bufs[0]).BaseOffset() < from {
					return skipFirst(rec), err
				}
				return rec, err
			})},
		{"batches are cut", []string{"C8 read starts with the batch that holds the offset", "C8 read returns whole batches within its limits"},
			answerOther(func(_ *brokenLog, _ commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if n := len(rec.Bufs); n > 0 {
					rec.Bufs[n-1] = rec.Bufs[n-1][:len(rec.Bufs[n-1])-3]
					return commitlog.NewRecords(rec.Bufs, nil), err
				}
				return rec, err
			})},
		{"MaxBytes is ignored", []string{"C8 read returns whole batches within its limits"},
			askOther(func(_ *brokenLog, _ *commitlog.Offset, opts *commitlog.ReadOptions) { opts.MaxBytes += 1000 })},
		{"MinOne is ignored", []string{"C8 read returns whole batches within its limits"},
			askOther(func(_ *brokenLog, _ *commitlog.Offset, opts *commitlog.ReadOptions) { opts.MinOne = false })},
		{"Limit is ignored", []string{"C8 read returns whole batches within its limits"},
			askOther(func(_ *brokenLog, _ *commitlog.Offset, opts *commitlog.ReadOptions) { opts.Limit = 0 })},
	}
}

func readEndMutants() []mutant {
	return []mutant{
		{"a read at stable waits", []string{"C8 read at stable is empty and does not wait"}, inLog(brokenLog{
			read: func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
				if from == l.Log.Bounds().Stable {
					<-ctx.Done()
					return commitlog.Records{}, ctx.Err()
				}
				return l.Log.Read(ctx, from, opts)
			}})},
		{"a read at stable is refused", []string{"C8 read at stable is empty and does not wait"},
			answerOther(func(_ *brokenLog, _ commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if err == nil && rec.Bytes == 0 {
					return rec, commitlog.ErrOffsetOutOfRange
				}
				return rec, err
			})},
		{"offsets outside are moved inside", []string{"C8 read outside is out of range"},
			askOther(func(l *brokenLog, from *commitlog.Offset, _ *commitlog.ReadOptions) {
				b := l.Log.Bounds()
				*from = min(max(*from, b.Start), b.End)
			})},
		{"one read of seven skips a batch", []string{"C8 many readers beside an appender"},
			answerOther(func(l *brokenLog, _ commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if l.seen.count()%7 == 0 && len(rec.Bufs) > 1 {
					return skipFirst(rec), err
				}
				return rec, err
			})},
		{"corrupt data reads as the end", []string{"C14 corrupt bytes are never returned"},
			answerOther(func(_ *brokenLog, _ commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if errors.Is(err, commitlog.ErrCorrupt) {
					return commitlog.Records{}, nil
				}
				return rec, err
			})},
		{"corruption is not named", []string{"C14 corrupt bytes are never returned"},
			answerOther(func(_ *brokenLog, _ commitlog.Offset, rec commitlog.Records, err error) (commitlog.Records, error) {
				if errors.Is(err, commitlog.ErrCorrupt) {
					return rec, commitlog.ErrCorrupt
				}
				return rec, err
			})},
		{"the batch after the time is found", []string{"BatchAt finds the first batch at or after a time"}, inLog(brokenLog{
			batchAt: func(l *brokenLog, ctx context.Context, ts int64) (commitlog.Offset, bool, error) {
				return l.Log.BatchAt(ctx, ts+1)
			}})},
		{"the last batch has the largest time", []string{"MaxTimestampBatch finds the first of the largest"}, inLog(brokenLog{
			maxTime: func(l *brokenLog, ctx context.Context) (commitlog.Offset, bool, error) {
				b := l.Log.Bounds()
				return b.Stable - 2, b.Stable > b.Start, nil
			}})},
	}
}

// dirtyReads returns what is appended and not durable.
func dirtyReads() brokenLog {
	l := aliasing()
	l.read = func(l *brokenLog, ctx context.Context, from commitlog.Offset, opts commitlog.ReadOptions) (commitlog.Records, error) {
		rec, err := l.Log.Read(ctx, from, opts)
		if err != nil || from != l.Log.Bounds().Stable {
			return rec, err
		}
		if b := commitlog.Batch(l.seen.batches[from]); b != nil {
			b.SetBase(from, 0)
			return commitlog.NewRecords([][]byte{b}, nil), nil
		}
		return rec, err
	}
	return l
}

func keepMutants() []mutant {
	return []mutant{
		{"trim does nothing", []string{"C10 trim moves start forward only", "C10 what was trimmed stays trimmed", "Bytes follow appends and trims", "Segments tile the log and roll"},
			inLog(brokenLog{trim: func(*brokenLog, context.Context, commitlog.Offset) error { return nil }})},
		{"trim past the end stops there", []string{"C10 trim moves start forward only"},
			inLog(brokenLog{trim: func(l *brokenLog, ctx context.Context, to commitlog.Offset) error {
				return l.Log.Trim(ctx, min(to, l.Log.Bounds().Stable))
			}})},
		{"trim is forgotten by the next owner", []string{"C10 what was trimmed stays trimmed"}, inLog(brokenLog{
			trim: func(l *brokenLog, _ context.Context, to commitlog.Offset) error {
				l.seen.start = max(l.seen.start, to)
				return nil
			},
			bounds: func(l *brokenLog) commitlog.Bounds {
				b := l.Log.Bounds()
				b.Start = max(b.Start, l.seen.start)
				return b
			}})},
		{"trim to the end is refused", []string{"C10 a log trimmed to its end goes on"},
			inLog(brokenLog{trim: func(l *brokenLog, ctx context.Context, to commitlog.Offset) error {
				if to >= l.Log.Bounds().Stable {
					return commitlog.ErrOffsetOutOfRange
				}
				return l.Log.Trim(ctx, to)
			}})},
		{"recovery misses a batch", []string{"C11 recovered batches tell all that state depends on"},
			inLog(recovers(func(r *commitlog.Recovery) { r.Batches = r.Batches[:max(len(r.Batches)-1, 0)] }))},
		{"recovery misses the checkpoint", []string{"C11 recovered checkpoint and batches tell all that state depends on"},
			inLog(recovers(func(r *commitlog.Recovery) { r.Checkpoint = nil }))},
		{"recovery counts batches twice", []string{"C11 recovered batches tell all that state depends on"},
			inLog(recovers(func(r *commitlog.Recovery) { r.Batches = append(r.Batches, r.Batches...) }))},
		{"segments have gaps", []string{"Segments tile the log and roll"}, inLog(brokenLog{segments: func(l *brokenLog) []commitlog.Segment {
			if all := l.Log.Segments(); len(all) > 2 {
				return append(all[:1], all[2:]...)
			}
			return l.Log.Segments()
		}})},
		{"there is one segment", []string{"Segments tile the log and roll"}, inLog(brokenLog{segments: func(l *brokenLog) []commitlog.Segment {
			b := l.Log.Bounds()
			return []commitlog.Segment{{Base: b.Start, End: b.Stable, Bytes: l.Log.Bytes(), Active: true}}
		}})},
		{"there are no bytes", []string{"Bytes follow appends and trims"}, inLog(brokenLog{bytes: func(*brokenLog) int64 { return 0 }})},
		{"nobody is told", []string{"OnStable is called when stable moved", "OnStable is called when the log is lost"}, func(s *memlog.Store) logtest.World {
			w := &broken{Store: s}
			w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
				opts.OnStable = nil
				return s.Open(ctx, id, epoch, opts)
			}
			return w
		}},
		{"they are told late", []string{"OnStable is called before the Commit resolves"}, func(s *memlog.Store) logtest.World {
			w := &broken{Store: s}
			w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
				if told := opts.OnStable; told != nil {
					opts.OnStable = func() { time.AfterFunc(time.Millisecond, told) }
				}
				return s.Open(ctx, id, epoch, opts)
			}
			return w
		}},
		{"removed logs stay", []string{"Remove forgets the log"}, confusing(func(id *commitlog.ID) { id.TopicID, id.Stream = [16]byte{}, 0 })},
		{"partitions share a log", []string{"logs do not mix"}, confusing(func(id *commitlog.ID) { id.Partition, id.Stream = 0, 0 })},
	}
}

func recovers(change func(*commitlog.Recovery)) brokenLog {
	return brokenLog{recovered: func(l *brokenLog, ctx context.Context) (commitlog.Recovery, error) {
		r, err := l.Log.Recovered(ctx)
		change(&r)
		return r, err
	}}
}

// confusing makes a world that takes one log for another and removes none.
func confusing(change func(*commitlog.ID)) func(*memlog.Store) logtest.World {
	return func(s *memlog.Store) logtest.World {
		w := &broken{Store: s}
		w.open = func(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
			change(&id)
			return s.Open(ctx, id, epoch, opts)
		}
		w.remove = func(context.Context, commitlog.ID) error { return nil }
		return w
	}
}
