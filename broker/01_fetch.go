package broker

// Fetch v4-18: records, with long polling and incremental sessions.
//
// Version notes:
//   v5 log start offset
//   v7 sessions (KIP-227)
//   v9 leader epoch of the client, FENCED/UNKNOWN_LEADER_EPOCH (KIP-320)
//   v11 rack and preferred replica (KIP-392); always "none" here
//   v12 flexible; last fetched epoch and diverging epoch (KIP-595)
//   v13 topic ids (KIP-516)
//   v16 endpoints with the leader hints (KIP-951)
//   v17-18 only concern replicas
//
// When a poll ends (as in Kafka 4.4): at once if it may not wait, has nothing
// to wait for, or any partition has an error or a diverging epoch; else when
// min_bytes are there, a partition moves or goes away, or max_wait is over. An
// unknown topic or partition alone does not end a poll that has others.
//
// Records are referenced, not copied, and pinned only while the response is
// being written (B4); a poll that goes on waiting holds none.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

// fetchCall is one Fetch request. It is reused, with all its memory.
type fetchCall struct {
	*Broker
	call
	req     *kmsg.FetchRequest
	img     *metadata.Image
	set     *fetchSet
	scratch fetchSet // of a fetch without session
	full    bool     // every partition is answered, not only what changed
	answers []fetchAnswer
	bytes   int          // of records in answers
	opening *openingPart // one that the last look met
	resp    rpc.FetchResponse
	parts   []rpc.FetchPartition // backing of resp
	enc     rpc.FetchEncoder
	release func() // f.recycle, bound once
}

// openingPart is a partition that this node will serve soon.
type openingPart struct {
	topic  metadata.TopicID
	number int32
}

// fetchAnswer is what one look at one partition found.
type fetchAnswer struct {
	part    *fetchPart
	out     rpc.FetchPartition
	records commitlog.Records
	// ends: an error or a diverging epoch, which ends the poll.
	ends bool
	// serving is the partition, if this node serves it; opening: it will soon.
	serving *partition.Partition
	opening bool
	topic   metadata.TopicID
	// vanished: the topic or partition was known at the last look.
	vanished bool
	// more: there are records at or behind the offset, returned or not.
	more bool
}

func (b *Broker) newFetchCall() *fetchCall {
	f := &fetchCall{Broker: b}
	f.release = f.recycle
	return f
}

func (f *fetchCall) recycle() {
	f.drop()
	clear(f.parts[:cap(f.parts)])
	clear(f.resp.Topics)
	f.resp.Topics, f.resp.Nodes, f.parts = f.resp.Topics[:0], nil, f.parts[:0]
	f.enc.Reset()
	f.call, f.req, f.img, f.set, f.opening = call{}, nil, nil, nil, nil
	f.fetches.Put(f)
}

// drop gives up what a look found, and unpins its records.
func (f *fetchCall) drop() {
	for i := range f.answers {
		f.answers[i].records.Release()
	}
	clear(f.answers)
	f.answers = f.answers[:0]
}

// fetch serves one request: find its session, look until there is enough, answer.
func (b *Broker) fetch(ctx context.Context, c call) rpc.Response {
	f := b.fetches.Get().(*fetchCall)
	f.call, f.req = c, c.Body.(*kmsg.FetchRequest)
	s, problem := f.session()
	f.resp.ErrorCode, f.resp.SessionID = 0, 0
	if problem != nil {
		f.resp.ErrorCode = problem.Code
		return f.reply()
	}
	err := f.poll(ctx)
	if err == nil {
		f.compose()
	}
	if s != nil {
		f.resp.SessionID = s.id
		b.sessions.checkin(s)
	} else {
		f.set.close()
	}
	if err != nil {
		f.recycle()
		return rpc.Response{CloseErr: err}
	}
	return f.reply()
}

// reply encodes the response; its memory comes back with Release.
func (f *fetchCall) reply() rpc.Response {
	return rpc.Response{Buffers: f.enc.Encode(f.Version, &f.resp), Release: f.release}
}

// session finds out what is fetched: everything in the request, or what a
// session knows and the request changes.
func (f *fetchCall) session() (*session, *kerr.Error) {
	req, byID := f.req, f.Version >= 13
	if f.Version >= 7 && req.SessionEpoch != initialEpoch && req.SessionEpoch != finalEpoch {
		s, problem := f.sessions.checkout(req.SessionID, req.SessionEpoch, byID)
		if problem != nil {
			return nil, problem
		}
		s.update(req)
		f.set, f.full = s.set, false
		f.set.wake()
		f.set.sweep()
		return s, nil
	}
	f.full = true
	wanted := f.Version >= 7 && req.SessionEpoch == initialEpoch && f.Conn != nil
	if wanted {
		f.set = new(fetchSet)
	} else {
		f.set = &f.scratch
		f.set.reset()
	}
	f.set.add(req)
	if f.Version >= 7 && req.SessionID != 0 {
		f.sessions.end(req.SessionID)
	}
	if !wanted || f.set.len() == 0 {
		return nil, nil
	}
	s := f.sessions.create(f.Conn.Context(), f.set, byID)
	if s != nil {
		f.set.listen()
		f.set.swept = time.Now()
	}
	return s, nil
}

// poll looks at the ready partitions until what it finds is an answer. An error
// means that the client is gone.
func (f *fetchCall) poll(ctx context.Context) error {
	wait := time.Duration(f.req.MaxWaitMillis) * time.Millisecond
	if f.look(ctx, false) || wait <= 0 {
		return nil
	}
	if f.opening != nil {
		// Nothing else is there to answer with: better wait for it than have the
		// client ask again and again. If it takes too long the next look has the
		// error.
		_, _ = f.find(ctx, f.opening.topic, f.opening.number, &patience{total: min(wait, f.cfg.Park)})
		f.drop()
		if f.look(ctx, true) {
			return nil
		}
	}
	if f.set.waiter == nil {
		// News may have come before anyone watched, so look again once we do.
		f.set.listen()
		f.drop()
		if f.look(ctx, false) {
			return nil
		}
	}
	timer := time.NewTimer(wait - time.Since(f.Received))
	defer timer.Stop()
	for {
		pinned := f.bytes > 0
		if pinned {
			f.drop()
		}
		select {
		case <-f.set.waiter.C():
			f.set.wake()
			f.drop()
			if f.look(ctx, true) {
				return nil
			}
		case <-timer.C:
			if pinned {
				f.look(ctx, true)
			}
			return nil
		case <-f.cfg.Draining:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// compose makes the response of the last look, and decides what is worth
// looking at next time. Partitions that were looked at go behind those that were
// not, so that all get their turn.
func (f *fetchCall) compose() {
	seen := len(f.answers)
	ready := f.set.ready
	for _, p := range ready[:seen] {
		p.queued = false
	}
	f.set.ready = append(f.set.ready[:0], ready[seen:]...)
	if cap(f.parts) < seen {
		f.parts = make([]rpc.FetchPartition, 0, seen)
	}
	for i := range f.answers {
		a := &f.answers[i]
		if f.full || f.changed(a) {
			f.include(a)
		}
		if a.more || a.out.ErrorCode != 0 || a.ends {
			f.set.queue(a.part)
		}
	}
}

// changed says whether an incremental response must mention the partition.
func (f *fetchCall) changed(a *fetchAnswer) bool {
	return a.out.RecordBytes > 0 || a.ends || a.out.ErrorCode != 0 ||
		a.out.HighWatermark != a.part.sentHigh || a.out.LogStartOffset != a.part.sentStart
}

// include adds one partition to the response, next to others of its topic that
// come right before it.
func (f *fetchCall) include(a *fetchAnswer) {
	p := a.part
	p.sentHigh, p.sentStart = a.out.HighWatermark, a.out.LogStartOffset
	f.resp.Nodes = addNode(f.resp.Nodes, f.image(), a.out.CurrentLeader, f.listener)
	f.parts = append(f.parts, a.out)
	n := len(f.resp.Topics)
	if n > 0 && f.resp.Topics[n-1].Name == p.key.name && f.resp.Topics[n-1].ID == p.key.id {
		last := &f.resp.Topics[n-1].Partitions
		*last = f.parts[len(f.parts)-len(*last)-1:]
		return
	}
	f.resp.Topics = append(f.resp.Topics, rpc.FetchTopic{Name: p.key.name, ID: p.key.id, Partitions: f.parts[len(f.parts)-1:]})
}
