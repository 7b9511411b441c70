package rpc_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
	"ponor/rpc/kmsgtest"
)

func TestEncodeFetchEqualsKmsg(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	var e rpc.FetchEncoder // reused, so that leftovers show
	for version := rpc.FetchMinVersion; version <= rpc.FetchMaxVersion; version++ {
		for range 500 {
			want := kmsg.NewPtrFetchResponse()
			kmsgtest.Fill(rnd, want)
			want.Version = version
			ours := fetchResponse(rnd, want)
			got := bytes.Join(e.Encode(version, ours), nil)
			if !bytes.Equal(got, want.AppendTo(nil)) {
				t.Fatalf("v%d:\n got %x\nwant %x\n%+v", version, got, want.AppendTo(nil), want)
			}
		}
	}
}

// fetchResponse is want in our types. It changes want where ours cannot say the
// same: records are never null, optional tags appear from the version on that
// has them.
func fetchResponse(rnd *rand.Rand, want *kmsg.FetchResponse) *rpc.FetchResponse {
	r := &rpc.FetchResponse{ThrottleMs: want.ThrottleMillis, ErrorCode: want.ErrorCode, SessionID: want.SessionID}
	if want.Version < 16 {
		want.Brokers = nil
	}
	for _, b := range want.Brokers {
		r.Nodes = append(r.Nodes, rpc.NodeEndpoint{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack})
	}
	for i := range want.Topics {
		w := &want.Topics[i]
		topic := rpc.FetchTopic{Name: w.Topic, ID: w.TopicID}
		for j := range w.Partitions {
			topic.Partitions = append(topic.Partitions, fetchPartition(rnd, want.Version, &w.Partitions[j]))
		}
		r.Topics = append(r.Topics, topic)
	}
	return r
}

func fetchPartition(rnd *rand.Rand, version int16, w *kmsg.FetchResponseTopicPartition) rpc.FetchPartition {
	g := rpc.FetchPartition{
		Index: w.Partition, ErrorCode: w.ErrorCode, HighWatermark: w.HighWatermark, LastStableOffset: w.LastStableOffset,
		LogStartOffset: w.LogStartOffset, PreferredReadReplica: w.PreferredReadReplica,
	}
	if w.AbortedTransactions != nil {
		g.Aborted = []rpc.AbortedTransaction{}
	}
	for _, a := range w.AbortedTransactions {
		g.Aborted = append(g.Aborted, rpc.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	// kmsg leaves a tag out when it equals its default.
	tagged := func() bool { return version >= 12 && rnd.IntN(2) == 0 }
	if w.RecordBatches == nil {
		w.RecordBatches = []byte{}
	}
	g.RecordBytes = len(w.RecordBatches)
	for rest := w.RecordBatches; len(rest) > 0; {
		n := rnd.IntN(len(rest)) + 1
		g.Records, rest = append(g.Records, rest[:n]), rest[n:]
	}
	if d := w.DivergingEpoch; tagged() && (d.Epoch != -1 || d.EndOffset != -1) {
		g.DivergingEpoch = &rpc.EpochEnd{Epoch: w.DivergingEpoch.Epoch, EndOffset: w.DivergingEpoch.EndOffset}
	} else {
		w.DivergingEpoch.Default()
	}
	if l := w.CurrentLeader; tagged() && (l.LeaderID != -1 || l.LeaderEpoch != -1) {
		g.CurrentLeader = &rpc.LeaderEpoch{LeaderID: w.CurrentLeader.LeaderID, Epoch: w.CurrentLeader.LeaderEpoch}
	} else {
		w.CurrentLeader.Default()
	}
	if s := w.SnapshotID; tagged() && (s.Epoch != -1 || s.EndOffset != -1) {
		g.SnapshotID = &rpc.EpochEnd{Epoch: w.SnapshotID.Epoch, EndOffset: w.SnapshotID.EndOffset}
	} else {
		w.SnapshotID.Default()
	}
	return g
}

func TestEncodeFetchReferencesRecords(t *testing.T) {
	records := bytes.Repeat([]byte("r"), 1000)
	r := bigFetch(3, [][]byte{records})
	n := 0
	for _, b := range rpc.EncodeFetch(12, r) {
		if len(b) == len(records) && &b[0] == &records[0] {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d of 3 partitions reference the records", n)
	}
}

func TestEncodeFetchWithoutRecordsIsOneBuffer(t *testing.T) {
	if got := rpc.EncodeFetch(12, bigFetch(100, nil)); len(got) != 1 {
		t.Errorf("%d buffers", len(got))
	}
}

func TestFetchEncoderAllocatesNothing(t *testing.T) {
	r := bigFetch(100, [][]byte{make([]byte, 100), make([]byte, 200)})
	var e rpc.FetchEncoder
	if n := testing.AllocsPerRun(100, func() { e.Encode(16, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func bigFetch(partitions int, records [][]byte) *rpc.FetchResponse {
	p := rpc.FetchPartition{PreferredReadReplica: -1, Records: records}
	for _, b := range records {
		p.RecordBytes += len(b)
	}
	return &rpc.FetchResponse{Topics: []rpc.FetchTopic{{Name: "topic", Partitions: slices.Repeat([]rpc.FetchPartition{p}, partitions)}}}
}

func BenchmarkEncodeFetch(b *testing.B) {
	r := bigFetch(100, [][]byte{make([]byte, 16<<10)})
	var e rpc.FetchEncoder
	b.SetBytes(100 * 16 << 10) // referenced, not touched
	b.ReportAllocs()
	for b.Loop() {
		e.Encode(16, r)
	}
}
