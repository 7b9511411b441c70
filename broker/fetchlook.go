package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

const (
	// coldAfter is how long a look goes on reading one partition after another.
	// Recent data takes microseconds; who takes longer reads from the store, and
	// that is better done for several partitions at once.
	coldAfter = 5 * time.Millisecond
	// coldReads is how many partitions one request then reads at a time. More
	// would have one consumer that catches up crowd out others.
	coldReads = 8
)

// look takes one look at every ready partition and says whether what it found
// ends the poll.
func (f *fetchCall) look(ctx context.Context, woken bool) (enough bool) {
	f.img, f.opening, f.bytes = f.image(), nil, 0
	left := max(1, min(int(f.req.MaxBytes), f.cfg.FetchMaxBytes))
	missing, begun := 0, time.Now()
	for done := 0; done < len(f.set.ready) && (left > 0 || f.full); {
		// Without any bytes yet, the next partition may exceed the limits by a
		// batch (KIP-74); that must be one partition, so it is read alone.
		n := 1
		if f.bytes > 0 && left > 0 && time.Since(begun) > coldAfter {
			n = min(coldReads, len(f.set.ready)-done)
		}
		for _, a := range f.lookAt(ctx, f.set.ready[done:done+n], left) {
			f.bytes += a.records.Bytes
			left -= a.records.Bytes
			if a.part.missing {
				missing++
			}
			if a.opening && !woken {
				f.opening = &openingPart{a.topic, a.part.key.number}
			}
			enough = enough || a.ends || woken && (a.opening || a.vanished)
		}
		done += n
	}
	// What was not looked at stays ready and comes first next time.
	return enough || f.bytes >= int(f.req.MinBytes) || missing == f.set.len()
}

// lookAt looks at some partitions, at most left bytes in all, and reads them at
// the same time. Read alone, the first of the response may be one batch whatever
// its size.
func (f *fetchCall) lookAt(ctx context.Context, parts []*fetchPart, left int) []fetchAnswer {
	from := len(f.answers)
	for _, p := range parts {
		f.answers = append(f.answers, fetchAnswer{part: p})
		f.locate(ctx, &f.answers[len(f.answers)-1])
	}
	wave := f.answers[from:]
	if len(wave) == 1 {
		f.read(ctx, &wave[0], left, f.bytes == 0)
		return wave
	}
	var all sync.WaitGroup
	for i := range wave {
		budget := max(0, min(left, int(wave[i].part.maxBytes)))
		left -= budget
		all.Go(func() { f.read(ctx, &wave[i], budget, false) })
	}
	all.Wait()
	return wave
}

// locate finds the partition of an answer, or answers why there is none.
func (f *fetchCall) locate(ctx context.Context, a *fetchAnswer) {
	p := a.part
	a.out = rpc.FetchPartition{Index: p.key.number, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
	if f.req.IsolationLevel == 1 {
		a.out.Aborted = []rpc.AbortedTransaction{}
	}
	t, err := f.topicOf(p)
	a.topic = t.ID
	a.vanished, p.missing = err != nil && !p.missing, err != nil
	if err != nil {
		a.out.ErrorCode = codeOf(err)
		f.errors.fetch.count(a.out.ErrorCode)
		f.set.unwatch(p)
		return
	}
	if a.serving, err = f.cfg.Partitions.Get(t.ID, p.key.number); err != nil {
		f.refuse(ctx, a, err)
		a.opening = a.opening || f.early(a)
		a.ends = !a.opening
		return
	}
	f.set.watch(p, a.serving)
}

// read fills an answer from the partition that locate found. Of one request
// several may run at once; it touches nothing but its answer.
func (f *fetchCall) read(ctx context.Context, a *fetchAnswer, left int, minOne bool) {
	if a.serving == nil {
		return
	}
	if err := f.readAt(ctx, a, a.serving, left, minOne); err != nil {
		f.refuse(ctx, a, err)
	}
}

// refuse answers with an error, which ends the poll unless the partition is
// about to open.
func (f *fetchCall) refuse(ctx context.Context, a *fetchAnswer, err error) {
	a.opening = errors.Is(err, partition.ErrOpening)
	a.ends = !a.opening
	a.out.ErrorCode = codeOf(err)
	if a.ends {
		f.errors.fetch.count(a.out.ErrorCode)
	}
	a.out.HighWatermark, a.out.LastStableOffset, a.out.LogStartOffset = -1, -1, -1
	if plant.On(plant.EmptyOnError) {
		a.out.ErrorCode = 0
	}
	switch a.out.ErrorCode {
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
		// Older versions have the field and no room for the leader's address. kafka-python
		// believes it there, and fails if it does not know that broker.
		if f.Version >= 16 {
			a.out.CurrentLeader = leaderHint(f.image(), a.topic, a.out.Index)
		}
	case kerr.KafkaStorageError.Code, kerr.CorruptMessage.Code, kerr.UnknownServerError.Code:
		f.log.DebugContext(ctx, "fetch met an error", "partition", a.out.Index, "offset", a.part.offset, "err", err)
	}
}

// early says that the client has heard of a leader epoch that we have not: most
// likely of our own, of a partition that is just moving here.
func (f *fetchCall) early(a *fetchAnswer) bool {
	p, ok := f.img.Partition(a.topic, a.part.key.number)
	return ok && int32(p.Epoch) < a.part.leaderEpoch
}

// topicOf finds the topic of a partition, with errors for what does not exist.
func (f *fetchCall) topicOf(p *fetchPart) (metadata.Topic, error) {
	var t metadata.Topic
	var err error
	if f.Version >= 13 {
		t, err = topicWithID(f.img, p.key.id)
	} else {
		t, err = topicNamed(f.img, p.key.name)
	}
	if err == nil && (p.key.number < 0 || p.key.number >= t.Partitions) {
		err = kerr.UnknownTopicOrPartition
	}
	return t, err
}

// readAt checks the client's view of the partition and reads. Epochs are checked
// before offsets: a client with an old epoch must not draw conclusions from the
// range of a newer leader (KIP-320).
func (f *fetchCall) readAt(ctx context.Context, a *fetchAnswer, part *partition.Partition, left int, minOne bool) error {
	p := a.part
	if err := part.CheckEpoch(commitlog.Epoch(p.leaderEpoch)); err != nil {
		return err
	}
	at := commitlog.Offset(p.offset)
	if p.fetchedEpoch >= 0 {
		end, diverges, err := part.Diverges(at, commitlog.Epoch(p.fetchedEpoch))
		switch {
		case err != nil:
			return err
		case at < part.Start():
			// Out of range, before any talk of epochs that are gone: Read says so.
		case diverges:
			a.ends = true
			a.out.DivergingEpoch = &rpc.EpochEnd{Epoch: int32(end.Epoch), EndOffset: int64(end.End)}
			a.out.HighWatermark, a.out.LastStableOffset, a.out.LogStartOffset = int64(part.HighWatermark()), int64(part.LastStable()), int64(part.Start())
			return nil
		}
	}
	opts := partition.ReadOptions{MaxBytes: max(0, min(left, int(p.maxBytes))), MinOne: minOne && left > 0}
	if f.req.IsolationLevel == 1 {
		opts.Isolation = partition.ReadCommitted
	}
	read, err := part.Read(ctx, at, opts)
	if err != nil {
		return err
	}
	a.records = read.Records
	a.out.Records, a.out.RecordBytes = read.Records.Bufs, read.Records.Bytes
	a.out.HighWatermark, a.out.LastStableOffset, a.out.LogStartOffset = int64(read.HighWatermark), int64(read.LastStable), int64(read.LogStart)
	for _, t := range read.Aborted {
		if f.req.IsolationLevel == 1 {
			a.out.Aborted = append(a.out.Aborted, rpc.AbortedTransaction{ProducerID: t.ProducerID, FirstOffset: int64(t.First)})
		}
	}
	end := read.HighWatermark
	if f.req.IsolationLevel == 1 {
		end = read.LastStable
	}
	a.more = at < end
	return nil
}
