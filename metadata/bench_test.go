package metadata_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// cluster is an image with brokers and topics of many partitions.
func cluster(tb testing.TB, topics, partitions int) (*metadata.Image, []inc) {
	img := metadata.Empty()
	do := func(c *pb) metadata.Result {
		next, r := metadata.Apply(img, img.Index()+1, metadata.NewEntry(c))
		if r[0].Err != nil {
			tb.Fatal(r[0].Err)
		}
		img = next
		return r[0]
	}
	do(&pb{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: clusterID, Generation: 1}}})
	var brokers []inc
	for i := range int32(3) {
		brokers = append(brokers, do(register(i, int(i)+1)).Incarnation)
	}
	for n := range topics {
		do(topicOf(n, partitions, brokers))
	}
	return img, brokers
}

func topicOf(n, partitions int, brokers []inc) *pb {
	id := metadata.TopicID{byte(n), byte(n >> 8), byte(n >> 16), 15: 1}
	c := &metadatapb.CreateTopic{Name: fmt.Sprintf("topic-%d", n), TopicId: id[:]}
	for p := range partitions {
		c.Partitions = append(c.Partitions, &metadatapb.PartitionSpec{Replicas: []int32{0, 1, 2}, Owner: brokers[(n+p)%3].Proto()})
	}
	return &pb{Body: &metadatapb.Command_CreateTopic{CreateTopic: c}}
}

func commitOf(img *metadata.Image, owner inc, seq uint64, streams int) *pb {
	c := commit(seq)
	for p := range img.Owned(owner) {
		if len(c.GetCommitExtents().Streams) == streams {
			break
		}
		c.GetCommitExtents().Streams = append(c.GetCommitExtents().Streams,
			run(p.Stream, 0, slot(owner, seq, int64(p.End), int64(p.End)+10, 0)))
	}
	c.From, c.CmdSeq = owner.Proto(), seq
	return c
}

func BenchmarkCreate10000Partitions(b *testing.B) {
	img, brokers := cluster(b, 0, 0)
	e := metadata.NewEntry(topicOf(1, 10000, brokers))
	b.ReportAllocs()
	for b.Loop() {
		metadata.Apply(img, img.Index()+1, e)
	}
}

func BenchmarkCommitExtentsOf1000Streams(b *testing.B) {
	img, brokers := cluster(b, 1000, 100)
	e := metadata.NewEntry(commitOf(img, brokers[0], 1, 1000))
	b.ReportAllocs()
	for b.Loop() {
		metadata.Apply(img, img.Index()+1, e)
	}
}

func BenchmarkOneCommandOf100000Partitions(b *testing.B) {
	img, brokers := cluster(b, 1000, 100)
	e := metadata.NewEntry(commitOf(img, brokers[0], 1, 1))
	b.ReportAllocs()
	for b.Loop() {
		metadata.Apply(img, img.Index()+1, e)
	}
}

func BenchmarkFenceOf1000Partitions(b *testing.B) {
	img, brokers := cluster(b, 30, 100)
	c := fence(brokers[0], brokers[1])
	for p := range img.Owned(brokers[0]) {
		c.GetFence().Assignments = append(c.GetFence().Assignments, &metadatapb.Assignment{
			TopicId: p.Topic[:], Partition: p.Number, Owner: brokers[1].Proto(),
		})
	}
	e := metadata.NewEntry(c)
	b.ReportAllocs()
	for b.Loop() {
		metadata.Apply(img, img.Index()+1, e)
	}
}

func BenchmarkWriteSnapshotOf100000Partitions(b *testing.B) {
	img, _ := cluster(b, 1000, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := img.WriteSnapshot(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartition(b *testing.B) {
	img, _ := cluster(b, 1000, 100)
	p, _ := img.PartitionByStream(commitlog.StreamID(77_777))
	b.ReportAllocs()
	for b.Loop() {
		img.Partition(p.Topic, p.Number)
	}
}

// A command on a large image costs about what it costs on a small one.
func TestApplyDoesNotCostTheWholeImage(t *testing.T) {
	cost := func(topics int) time.Duration {
		img, brokers := cluster(t, topics, 100)
		e := metadata.NewEntry(commitOf(img, brokers[0], 1, 1))
		best := time.Hour
		for range 50 {
			start := time.Now()
			metadata.Apply(img, img.Index()+1, e)
			best = min(best, time.Since(start))
		}
		return best
	}
	small, large := cost(1), cost(300)
	if large > 20*small+time.Millisecond {
		t.Fatalf("one commit takes %v of 100 partitions and %v of 30,000", small, large)
	}
}
