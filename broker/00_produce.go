package broker

// Produce v3-13: appends batches and acknowledges them once they are durable.
//
// Version notes:
//   v0-2 are advertised and refused, see apis.go
//   v5 log start offset
//   v8 record errors and messages (KIP-467)
//   v9 flexible
//   v10 leader hints with NOT_LEADER_OR_FOLLOWER (KIP-951)
//   v11-12 transactions of KIP-890, not served yet
//   v13 topic ids (KIP-516)
//
// A request's batches are appended while the connection goes on reading, so
// that many requests of one connection are in flight at the medium at once; the
// replies follow in order, each when its own batches are durable (B2, B3).
//
// acks 1 and -1 mean the same, durable. With acks 0 nothing is replied, and an
// error closes the connection, as in Kafka. A partition that is named twice has
// both batches appended and acknowledged in order (Kafka loses the first).

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

// produceCall is one Produce request, from Begin to the written reply. It is
// reused, with all its memory.
type produceCall struct {
	*Broker
	call
	req     rpc.ProduceRequest
	resp    rpc.ProduceResponse
	parts   []rpc.ProduceResponsePartition // backing of resp
	pending []pendingAppend
	failed  error // what closes the connection
	buf     []byte
	bufs    [1][]byte
	timer   *time.Timer

	finish  func(context.Context) rpc.Response // p.await, bound once
	release func()                             // p.recycle, bound once
}

// pendingAppend is an appended batch whose outcome is not known.
type pendingAppend struct {
	commit commitlog.Commit
	topic  metadata.TopicID
	part   int // index in parts
}

func (b *Broker) newProduceCall() *produceCall {
	p := &produceCall{Broker: b}
	p.finish, p.release = p.await, p.recycle
	return p
}

func (p *produceCall) recycle() {
	p.req.Reset()
	clear(p.parts)
	clear(p.pending)
	p.resp.Topics, p.resp.Nodes = p.resp.Topics[:0], p.resp.Nodes[:0]
	p.parts, p.pending = p.parts[:0], p.pending[:0]
	p.call, p.failed, p.timer = call{}, nil, nil
	p.produces.Put(p)
}

// openingPark is how long a Produce waits for partitions that are opening. A
// producer pauses 100 ms before a retry, so nothing is gained by more, and the
// request's other partitions wait meanwhile.
const openingPark = 100 * time.Millisecond

// produceWait is what one request has left to wait.
type produceWait struct {
	opening, room patience
}

// beginProduce appends everything a request holds.
func (b *Broker) beginProduce(ctx context.Context, c call) func(context.Context) rpc.Response {
	p := b.produces.Get().(*produceCall)
	p.call = c
	if err := p.req.Decode(c.Version, c.Raw); err != nil {
		p.failed = err
		return p.finish
	}
	p.shape()
	img, now := b.image(), b.cfg.Now()
	wait := produceWait{opening: patience{total: min(b.cfg.Park, openingPark)}, room: patience{total: b.cfg.Park}}
	k := 0
	for i := range p.req.Topics {
		rt := &p.req.Topics[i]
		t, err := p.topic(img, rt)
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			failure := err
			if failure == nil {
				failure = p.append(ctx, t, rp, k, now, &wait)
			}
			if failure != nil {
				// The newest image: it may have got its leader while we waited.
				p.refuse(p.image(), t.ID, k, failure)
			}
			k++
		}
	}
	return p.finish
}

// shape lays out the response like the request, each partition with the answer
// that nothing was appended.
func (p *produceCall) shape() {
	n := 0
	for i := range p.req.Topics {
		n += len(p.req.Topics[i].Partitions)
	}
	if cap(p.parts) < n {
		p.parts = make([]rpc.ProduceResponsePartition, 0, n)
	}
	p.parts = p.parts[:n]
	k := 0
	for i := range p.req.Topics {
		rt := &p.req.Topics[i]
		for j := range rt.Partitions {
			p.parts[k+j] = rpc.ProduceResponsePartition{Index: rt.Partitions[j].Index, BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1}
		}
		next := k + len(rt.Partitions)
		p.resp.Topics = append(p.resp.Topics, rpc.ProduceResponseTopic{Name: rt.Name, ID: rt.ID, Partitions: p.parts[k:next:next]})
		k = next
	}
}

// topic finds the topic of one entry, which all its partitions share the error
// of.
func (p *produceCall) topic(img *metadata.Image, rt *rpc.ProduceTopic) (metadata.Topic, error) {
	if a := p.req.Acks; a != 0 && a != 1 && a != -1 {
		return metadata.Topic{}, fail(kerr.InvalidRequiredAcks, "acks is %d; 0, 1 and -1 (all) are possible", a)
	}
	var t metadata.Topic
	var err error
	if p.Version >= 13 {
		t, err = topicWithID(img, rt.ID)
	} else {
		t, err = topicNamed(img, rt.Name)
	}
	if err == nil && t.Internal {
		err = fail(kerr.InvalidTopicException, "topic %q is internal, clients cannot write to it", t.Name)
	}
	return t, err
}

// append hands one batch to its partition, as answer k.
func (p *produceCall) append(ctx context.Context, t metadata.Topic, rp *rpc.ProducePartition, k int, now time.Time, wait *produceWait) error {
	if rp.Index < 0 || rp.Index >= t.Partitions {
		return fail(kerr.UnknownTopicOrPartition, "topic %q has %d partitions, there is no number %d", t.Name, t.Partitions, rp.Index)
	}
	if err := checkRecords(rp.Records, p.req.TransactionalID); err != nil {
		return err
	}
	part, err := p.find(ctx, t.ID, rp.Index, &wait.opening)
	if err != nil {
		return err
	}
	opts := partition.AppendOptions{Now: now, DenyZstd: p.Version < 7}
	done, err := part.Append(rp.Records, opts)
	for err != nil {
		switch {
		case errors.Is(err, partition.ErrMoving) && part.AwaitMove(ctx) && wait.room.left() > 0:
			// It moved, or did not: here it is known which, so that the client hears
			// of the new leader at once (KIP-951).
			if part, err = p.find(ctx, t.ID, rp.Index, &wait.opening); err != nil {
				return err
			}
		case errors.Is(err, commitlog.ErrBackpressure) && park(ctx, &wait.room):
		default:
			return err
		}
		done, err = part.Append(rp.Records, opts)
	}
	out := &p.parts[k]
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = int64(done.Base), done.LogAppendTime, int64(done.LogStart)
	p.pending = append(p.pending, pendingAppend{done.Commit, t.ID, k})
	return nil
}

// checkRecords refuses what no partition could take: a missing batch (which
// Kafka does not even answer) and batches of transactions. A transactional
// batch needs a transactional id; that such a request is not authorized is
// Kafka's answer even without an authorizer.
func checkRecords(records []byte, transactionalID *string) error {
	if len(records) == 0 {
		return fail(kerr.InvalidRecord, "the partition has no record batch; send exactly one")
	}
	if len(records) < commitlog.HeaderBytes || !commitlog.Batch(records).Transactional() {
		return nil
	}
	if transactionalID == nil {
		return fail(kerr.TransactionalIDAuthorizationFailed, "a transactional batch needs a transactional id in the request")
	}
	return noCoordinator(1, *transactionalID)
}

// park waits a moment for room in the append budget, which frees without a
// signal, and says whether to try again.
func park(ctx context.Context, wait *patience) bool {
	left := wait.left()
	if left <= 0 {
		return false
	}
	t := time.NewTimer(min(5*time.Millisecond, left))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse is the answer for a partition whose batch was not appended, or whose
// outcome is not known.
func (p *produceCall) refuse(img *metadata.Image, topic metadata.TopicID, k int, err error) {
	out := &p.parts[k]
	out.BaseOffset, out.LogAppendTime = -1, -1
	out.ErrorCode, out.ErrorMessage = codeAndMessage(err)
	p.errors.produce.count(out.ErrorCode)
	var bad *partition.RecordError
	if errors.As(err, &bad) {
		for _, r := range bad.Records {
			out.RecordErrors = append(out.RecordErrors, rpc.RecordError{BatchIndex: r.Index, Message: &r.Message})
		}
	}
	// move-3: while a partition moves nobody knows its leader, least of all us.
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && p.Version >= 10 && !errors.Is(err, partition.ErrMoving) {
		out.CurrentLeader = leaderHint(img, topic, out.Index)
		p.resp.Nodes = addNode(p.resp.Nodes, img, out.CurrentLeader, p.listener)
	}
	if p.req.Acks == 0 && p.failed == nil {
		p.failed = err
	}
}

// await waits for what was appended (ans-1) and encodes the reply.
func (p *produceCall) await(ctx context.Context) rpc.Response {
	if p.failed != nil || p.req.Acks == 0 {
		r := rpc.Response{CloseErr: p.failed, Nothing: p.failed == nil}
		p.recycle()
		return r
	}
	for i := range p.pending {
		w := &p.pending[i]
		if err := p.outcome(ctx, w.commit); err != nil && plant.On(plant.OffsetZero) {
			p.parts[w.part].BaseOffset = 0
		} else if err != nil {
			p.refuse(p.image(), w.topic, w.part, err)
		}
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.buf = rpc.AppendProduceResponse(p.buf[:0], p.Version, &p.resp)
	p.bufs[0] = p.buf
	return rpc.Response{Buffers: net.Buffers(p.bufs[:]), Release: p.release}
}

// outcome waits for one Commit, at most until the request's timeout. The Commit
// lives on after that: the batch may well become durable, so a producer that is
// not idempotent may see it twice.
func (p *produceCall) outcome(ctx context.Context, c commitlog.Commit) error {
	if c.Resolved() {
		return c.Err()
	}
	timeout := time.Duration(p.req.TimeoutMs) * time.Millisecond
	if p.req.Acks == 1 {
		// Kafka's timeout is about replicas, which acks=1 does not wait for, so
		// clients may send anything.
		timeout = max(timeout, 30*time.Second)
	}
	if p.timer == nil {
		p.timer = time.NewTimer(time.Until(p.Received.Add(timeout)))
	}
	select {
	case <-c.Done():
		return c.Err()
	case <-p.timer.C:
		p.timer.Reset(0) // the next Commit meets it too
		return fail(kerr.RequestTimedOut, "the batch was not durable within %v; it may yet become so, a retry of an idempotent producer is safe", timeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}
