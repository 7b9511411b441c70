package rpc_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
	"ponor/rpc/kmsgtest"
)

// diffProduce says where a decoded request differs from kmsg's.
func diffProduce(got *rpc.ProduceRequest, want *kmsg.ProduceRequest) string {
	switch {
	case (got.TransactionalID == nil) != (want.TransactionID == nil) || got.TransactionalID != nil && *got.TransactionalID != *want.TransactionID:
		return "transactional id"
	case got.Acks != want.Acks || got.TimeoutMs != want.TimeoutMillis:
		return "acks or timeout"
	case len(got.Topics) != len(want.Topics):
		return "number of topics"
	}
	for i, g := range got.Topics {
		w := want.Topics[i]
		if want.Version >= 13 && g.ID != w.TopicID || want.Version < 13 && g.Name != w.Topic {
			return "topic name or id"
		}
		if len(g.Partitions) != len(w.Partitions) {
			return "number of partitions"
		}
		for j, p := range g.Partitions {
			if p.Index != w.Partitions[j].Partition || !bytes.Equal(p.Records, w.Partitions[j].Records) || (p.Records == nil) != (w.Partitions[j].Records == nil) {
				return "partition"
			}
		}
	}
	return ""
}

func TestDecodeProduceEqualsKmsg(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var got rpc.ProduceRequest // reused, so that leftovers show
	for version := rpc.ProduceMinVersion; version <= rpc.ProduceMaxVersion; version++ {
		for range 500 {
			want := kmsg.NewPtrProduceRequest()
			kmsgtest.Fill(rnd, want)
			want.Version = version
			raw := want.AppendTo(nil)
			back := kmsg.NewPtrProduceRequest()
			back.Version = version
			if err := back.ReadFrom(raw); err != nil {
				t.Fatal(err)
			}
			if err := got.Decode(version, raw); err != nil {
				t.Fatalf("v%d: %v", version, err)
			}
			if diff := diffProduce(&got, back); diff != "" {
				t.Fatalf("v%d: %s differs\n got %+v\nwant %+v", version, diff, got, back)
			}
			for n := range raw {
				if err := got.Decode(version, raw[:n]); err == nil {
					t.Fatalf("v%d: decoded %d of %d bytes", version, n, len(raw))
				}
			}
		}
	}
}

func TestDecodeProduceSkipsUnknownTags(t *testing.T) {
	r := kmsg.NewPtrProduceRequest()
	r.Version = 11
	r.UnknownTags.Set(7, []byte("seven"))
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	topic.UnknownTags.Set(300, nil)
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = []byte("records")
	p.UnknownTags.Set(1, []byte{0})
	topic.Partitions = append(topic.Partitions, p, p)
	r.Topics = append(r.Topics, topic, topic)
	got, err := rpc.DecodeProduce(11, r.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffProduce(got, r); diff != "" {
		t.Error(diff, "differs")
	}
}

func TestDecodeProduceReferencesRecords(t *testing.T) {
	raw := produceBody(9, 3, 4, 100)
	got, err := rpc.DecodeProduce(9, raw)
	if err != nil {
		t.Fatal(err)
	}
	rec := got.Topics[2].Partitions[3].Records
	rec[0] = 0xee
	if bytes.Count(raw, []byte{0xee}) != 1 {
		t.Error("records are a copy")
	}
	if cap(rec) != len(rec) {
		t.Error("appending to records would overwrite the frame")
	}
}

func TestDecodeProduceRefusesEmptyPartitions(t *testing.T) {
	for _, version := range []int16{3, 9, 13} {
		if _, err := rpc.DecodeProduce(version, produceBody(version, 1, 100_000, 0)); err == nil {
			t.Errorf("v%d: 100,000 empty partitions were accepted", version)
		}
		if _, err := rpc.DecodeProduce(version, produceBody(version, 1, 10_000, 61)); err != nil {
			t.Errorf("v%d: 10,000 partitions with the smallest batch: %v", version, err)
		}
	}
}

func TestDecodeProduceVersions(t *testing.T) {
	for _, version := range []int16{-1, 0, 2, 14} {
		if _, err := rpc.DecodeProduce(version, produceBody(9, 1, 1, 1)); err == nil {
			t.Errorf("version %d was decoded", version)
		}
	}
}

// TestDecodeProduceAllocatesNothing: once warm, requests of one shape are free.
func TestDecodeProduceAllocatesNothing(t *testing.T) {
	for version := rpc.ProduceMinVersion; version <= rpc.ProduceMaxVersion; version++ {
		raw := produceBody(version, 5, 5, 1000)
		var r rpc.ProduceRequest
		n := testing.AllocsPerRun(100, func() {
			if err := r.Decode(version, raw); err != nil {
				t.Fatal(err)
			}
			r.Reset()
		})
		if n != 0 {
			t.Errorf("v%d: %v allocations", version, n)
		}
	}
}

func produceBody(version int16, topics, partitions, size int) []byte {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TransactionID = version, -1, kmsg.StringPtr("txn")
	for i := range topics {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = "topic-"+string(rune('a'+i)), [16]byte{byte(i + 1)}
		for j := range partitions {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = int32(j), make([]byte, size)
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r.AppendTo(nil)
}

func TestProduceResponseEqualsKmsg(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for version := rpc.ProduceMinVersion; version <= rpc.ProduceMaxVersion; version++ {
		for range 500 {
			want := kmsg.NewPtrProduceResponse()
			kmsgtest.Fill(rnd, want)
			want.Version = version
			ours := produceResponse(rnd, want)
			if got := rpc.AppendProduceResponse([]byte("x"), version, ours); !bytes.Equal(got[1:], want.AppendTo(nil)) {
				t.Fatalf("v%d:\n got %x\nwant %x\n%+v", version, got[1:], want.AppendTo(nil), want)
			}
		}
	}
}

// produceResponse is want in our types. It changes want where ours cannot say
// the same: optional tags appear from the version on that has them.
func produceResponse(rnd *rand.Rand, want *kmsg.ProduceResponse) *rpc.ProduceResponse {
	r := &rpc.ProduceResponse{ThrottleMs: want.ThrottleMillis}
	if want.Version < 10 {
		want.Brokers = nil
	}
	for _, b := range want.Brokers {
		r.Nodes = append(r.Nodes, rpc.NodeEndpoint{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack})
	}
	for i := range want.Topics {
		w := &want.Topics[i]
		topic := rpc.ProduceResponseTopic{Name: w.Topic, ID: w.TopicID}
		for j := range w.Partitions {
			p := &w.Partitions[j]
			g := rpc.ProduceResponsePartition{
				Index: p.Partition, ErrorCode: p.ErrorCode, BaseOffset: p.BaseOffset,
				LogAppendTime: p.LogAppendTime, LogStartOffset: p.LogStartOffset, ErrorMessage: p.ErrorMessage,
			}
			for _, e := range p.ErrorRecords {
				g.RecordErrors = append(g.RecordErrors, rpc.RecordError{BatchIndex: e.RelativeOffset, Message: e.ErrorMessage})
			}
			if l := p.CurrentLeader; want.Version >= 10 && rnd.IntN(2) == 0 && (l.LeaderID != -1 || l.LeaderEpoch != -1) {
				g.CurrentLeader = &rpc.LeaderEpoch{LeaderID: p.CurrentLeader.LeaderID, Epoch: p.CurrentLeader.LeaderEpoch}
			} else {
				p.CurrentLeader.Default()
			}
			topic.Partitions = append(topic.Partitions, g)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r
}

func FuzzDecodeProduce(f *testing.F) {
	for v := rpc.ProduceMinVersion; v <= rpc.ProduceMaxVersion; v++ {
		f.Add(v, produceBody(v, 2, 2, 5))
	}
	f.Fuzz(func(t *testing.T, version int16, raw []byte) {
		got, err := rpc.DecodeProduce(version, raw)
		if err != nil {
			return
		}
		want := kmsg.NewPtrProduceRequest()
		want.Version = version
		if err := want.ReadFrom(raw); err != nil {
			return // kmsg refuses a null name, for example
		}
		if diff := diffProduce(got, want); diff != "" {
			t.Errorf("%s differs from kmsg", diff)
		}
	})
}

func BenchmarkDecodeProduce(b *testing.B) {
	raw := produceBody(9, 1, 10, 16<<10)
	var r rpc.ProduceRequest
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Decode(9, raw); err != nil {
			b.Fatal(err)
		}
	}
}
