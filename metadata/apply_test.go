package metadata_test

import (
	"errors"
	"fmt"
	"testing"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

type (
	pb  = metadatapb.Command
	inc = metadata.Incarnation
)

// world is an image under test. Every command goes through apply, which checks
// the invariants of the image and of the step.
type world struct {
	t   *testing.T
	img *metadata.Image
	seq map[inc]uint64
	log []*metadatapb.Entry
}

const clusterID = "AAAAAAAAAAAAAAAAAAAAAQ"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, img: metadata.Empty(), seq: make(map[inc]uint64)}
	w.ok(&pb{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: clusterID, Generation: 1, StoreUrl: "mem:"}}})
	return w
}

func (w *world) apply(c *pb) metadata.Result {
	w.t.Helper()
	e := metadata.NewEntry(c)
	next, results := metadata.Apply(w.img, w.img.Index()+1, e)
	if err := metadata.Check(next); err != nil {
		w.t.Fatalf("after %v: %v", c, err)
	}
	if err := metadata.CheckStep(w.img, next); err != nil {
		w.t.Fatalf("after %v: %v", c, err)
	}
	w.img = next
	w.log = append(w.log, e)
	return results[0]
}

// ok applies a command that has to be accepted.
func (w *world) ok(c *pb) metadata.Result {
	w.t.Helper()
	r := w.apply(c)
	if r.Err != nil {
		w.t.Fatalf("rejected: %v\n%v", r.Err, c)
	}
	return r
}

// no applies a command that has to be rejected with a code and must not change
// anything but a cmd_seq.
func (w *world) no(code metadata.Code, c *pb) *metadata.Error {
	w.t.Helper()
	before := w.img
	r := w.apply(c)
	if !errors.Is(r.Rejected(), code) {
		w.t.Fatalf("got %v, want rejection %q\n%v", r.Rejected(), code.Error(), c)
	}
	if a, b := frozen(before), frozen(w.img); a != b {
		w.t.Fatalf("a rejected command changed the image:\n%s\n%s", a, b)
	}
	return r.Err
}

// frozen is the image in text without index and cmd_seq.
func frozen(img *metadata.Image) string {
	s := metadata.Snapshot(img)
	s.Index = 0
	for _, w := range s.Wals {
		w.CmdSeq = 0
	}
	return s.String()
}

// as makes a command of an incarnation with its next cmd_seq.
func (w *world) as(i inc, c *pb) *pb {
	w.seq[i]++
	c.From, c.CmdSeq = i.Proto(), w.seq[i]
	return c
}

func nonce(n int) []byte {
	b := make([]byte, metadata.NonceBytes)
	b[0], b[1] = byte(n), byte(n>>8)
	return b
}

func register(broker int32, n int) *pb {
	return &pb{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: broker, Nonce: nonce(n), Zone: "z",
		Endpoints: []*metadatapb.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092, Security: "PLAINTEXT"}},
	}}}
}

func (w *world) register(broker int32, n int) inc {
	w.t.Helper()
	return w.ok(register(broker, n)).Incarnation
}

func topicID(n byte) metadata.TopicID { return metadata.TopicID{0: n, 15: 7} }

func createTopic(name string, id byte, owners ...inc) *pb {
	tid := topicID(id)
	c := &metadatapb.CreateTopic{Name: name, TopicId: tid[:]}
	for _, o := range owners {
		c.Partitions = append(c.Partitions, &metadatapb.PartitionSpec{Replicas: []int32{int32(o.Broker)}, Owner: o.Proto()})
	}
	return &pb{Body: &metadatapb.Command_CreateTopic{CreateTopic: c}}
}

// topic creates a topic with a partition per owner and returns their streams.
func (w *world) topic(name string, id byte, owners ...inc) []commitlog.StreamID {
	w.t.Helper()
	w.ok(createTopic(name, id, owners...))
	var out []commitlog.StreamID
	for p := range w.img.Partitions(topicID(id)) {
		out = append(out, p.Stream)
	}
	return out
}

func deleteTopic(id byte) *pb {
	tid := topicID(id)
	return &pb{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: tid[:]}}}
}

func topicsGone(ids ...byte) *pb {
	c := &metadatapb.TopicsGone{}
	for _, id := range ids {
		tid := topicID(id)
		c.TopicIds = append(c.TopicIds, tid[:])
	}
	return &pb{Body: &metadatapb.Command_TopicsGone{TopicsGone: c}}
}

func assign(id byte, number int32, owner inc) *metadatapb.Assignment {
	tid := topicID(id)
	return &metadatapb.Assignment{TopicId: tid[:], Partition: number, Owner: owner.Proto()}
}

func fence(i, sealer inc, as ...*metadatapb.Assignment) *pb {
	return &pb{Body: &metadatapb.Command_Fence{Fence: &metadatapb.Fence{Incarnation: i.Proto(), Sealer: sealer.Proto(), Assignments: as}}}
}

func sealed(i inc, end uint64, streams ...*metadatapb.SealedStream) *pb {
	return &pb{Body: &metadatapb.Command_Sealed{Sealed: &metadatapb.Sealed{Incarnation: i.Proto(), End: end, Streams: streams}}}
}

func sealedStream(s commitlog.StreamID, base, end int64, x *metadatapb.Extent) *metadatapb.SealedStream {
	return &metadatapb.SealedStream{Stream: uint64(s), Base: base, End: end, Extent: x}
}

func name(kind metadata.ObjectKind, creator inc, n uint64) string {
	return metadata.ObjectName{Kind: kind, Creator: creator, Number: n}.String()
}

// ext is a direct extent.
func ext(object string, base, end int64, epoch int32) *metadatapb.Extent {
	return &metadatapb.Extent{Object: object, Length: 100, Base: base, End: end, Epoch: epoch, Bytes: 90}
}

func slot(i inc, n uint64, base, end int64, epoch int32) *metadatapb.Extent {
	return ext(name(metadata.WALSlot, i, n), base, end, epoch)
}

func seg(i inc, n uint64, base, end int64, epoch int32) *metadatapb.Extent {
	return ext(name(metadata.SegmentObject, i, n), base, end, epoch)
}

// idx is an indirect extent.
func idx(i inc, n uint64, base, end int64) *metadatapb.Extent {
	x := ext(name(metadata.IndexObject, i, n), base, end, 0)
	x.Indirect = true
	return x
}

func run(s commitlog.StreamID, epoch int32, xs ...*metadatapb.Extent) *metadatapb.StreamExtents {
	return &metadatapb.StreamExtents{Stream: uint64(s), Epoch: epoch, Extents: xs}
}

func commit(trim uint64, runs ...*metadatapb.StreamExtents) *pb {
	return &pb{Body: &metadatapb.Command_CommitExtents{CommitExtents: &metadatapb.CommitExtents{Trim: trim, Streams: runs}}}
}

func replace(s commitlog.StreamID, epoch int32, base, end int64, xs ...*metadatapb.Extent) *pb {
	return &pb{Body: &metadatapb.Command_ReplaceExtents{ReplaceExtents: &metadatapb.ReplaceExtents{
		Stream: uint64(s), Epoch: epoch, Base: base, End: end, Extents: xs,
	}}}
}

func trim(s commitlog.StreamID, epoch int32, start int64) *pb {
	return &pb{Body: &metadatapb.Command_TrimStreams{TrimStreams: &metadatapb.TrimStreams{
		Streams: []*metadatapb.StreamStart{{Stream: uint64(s), Epoch: epoch, Start: start}},
	}}}
}

func flip(s commitlog.StreamID, epoch int32, end int64, target inc, tail ...*metadatapb.Extent) *pb {
	return &pb{Body: &metadatapb.Command_Flip{Flip: &metadatapb.Flip{Streams: []*metadatapb.FlipStream{
		{Stream: uint64(s), Epoch: epoch, End: end, Target: target.Proto(), Tail: tail},
	}}}}
}

func noop() *pb { return &pb{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}} }

func (w *world) partition(s commitlog.StreamID) metadata.Partition {
	w.t.Helper()
	p, ok := w.img.PartitionByStream(s)
	if !ok {
		w.t.Fatalf("stream %d is not there", s)
	}
	return p
}

// want compares what matters of a partition, in one line.
func (w *world) want(s commitlog.StreamID, line string) {
	w.t.Helper()
	p := w.partition(s)
	got := fmt.Sprintf("%s@%d [%d,%d) unsealed%v", p.Owner, p.Epoch, p.Start, p.End, p.Unsealed)
	if got != line {
		w.t.Fatalf("stream %d: %s\nwant      %s", s, got, line)
	}
}

func TestSmoke(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, b)
	w.ok(w.as(a, commit(3, run(s[0], 0, slot(a, 0, 0, 10, 0), slot(a, 2, 10, 12, 0)))))
	w.want(s[0], "1-1@0 [0,12) unsealed[]")
	w.ok(w.as(a, flip(s[0], 0, 15, b, slot(a, 3, 12, 15, 0))))
	w.want(s[0], "2-2@1 [0,15) unsealed[]")
	w.ok(fence(b, a, assign(1, 0, a), assign(1, 1, a)))
	w.want(s[0], "1-1@2 [0,15) unsealed[2-2]")
	w.ok(w.as(a, sealed(b, 4, sealedStream(s[0], 15, 20, idx(a, 1, 15, 20)))))
	w.want(s[0], "1-1@2 [0,20) unsealed[]")
	w.want(s[1], "1-1@1 [0,0) unsealed[]")
}
