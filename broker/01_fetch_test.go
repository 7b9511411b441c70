package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/rpc"
)

// long is a wait that no test sits out.
const long = time.Minute

// fetchOne fetches one partition at a version.
func (cl *client) fetchOne(version int16, topic string, id metadata.TopicID, offset int64) kmsg.FetchResponseTopicPartition {
	cl.t.Helper()
	req := fetchRequest(0)
	addFetch(req, topic, id, 0, offset)
	resp := ask[*kmsg.FetchResponse](cl, version, req)
	isCode(cl.t, "fetch", resp.ErrorCode, nil)
	return resp.Topics[0].Partitions[0]
}

func TestFetchAtEveryVersion(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a", "b")
	cl.mustProduce("t", 0, "c")
	for v := int16(4); v <= 18; v++ {
		p := cl.fetchOne(v, "t", id, 0)
		isCode(t, "fetch", p.ErrorCode, nil)
		is(t, "high watermark", p.HighWatermark, 3)
		is(t, "last stable offset", p.LastStableOffset, 3)
		if got := values(t, p); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("v%d: got %v", v, got)
		}
		is(t, "preferred replica", p.PreferredReadReplica, -1)
		is(t, "aborted is null for read_uncommitted", p.AbortedTransactions == nil, true)
	}
	// Kafka 4.4: a whole batch that starts below the fetch offset.
	if got := values(t, cl.fetchOne(11, "t", id, 1)); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("from inside a batch: got %v", got)
	}
}

// Kafka 4.4: "no records" is 0 bytes and never null, beside an error too.
func TestFetchEmptyIsNeverNull(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	for _, offset := range []int64{0, 9} {
		if p := c.dial().fetchOne(12, "t", id, offset); p.RecordBatches == nil {
			t.Errorf("offset %d: records are null", offset)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	moved := c.topic("moved", 1)
	c.move(moved, 0, 2)
	c.must(deleteTopic(c.topic("deleted", 1)))
	for _, tc := range []struct {
		name    string
		version int16
		topic   string
		id      metadata.TopicID
		number  int32
		edit    func(*kmsg.FetchRequestTopicPartition)
		want    *kerr.Error
	}{
		{"unknown topic", 12, "nope", metadata.TopicID{}, 0, nil, kerr.UnknownTopicOrPartition},
		{"deleted topic", 12, "deleted", metadata.TopicID{}, 0, nil, kerr.UnknownTopicOrPartition},
		{"unknown partition", 12, "t", id, 7, nil, kerr.UnknownTopicOrPartition},
		{"unknown id", 13, "", metadata.TopicID{9}, 0, nil, kerr.UnknownTopicID},
		{"zero id", 13, "", metadata.TopicID{}, 0, nil, kerr.UnknownTopicID},
		{"led elsewhere", 12, "moved", moved, 0, nil, kerr.NotLeaderForPartition},
		{"above the end", 12, "t", id, 0, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 5 }, kerr.OffsetOutOfRange},
		{"negative offset", 12, "t", id, 0, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -3 }, kerr.OffsetOutOfRange},
		// KIP-320: epochs are checked before ranges.
		{"newer epoch", 12, "t", id, 0, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch, p.FetchOffset = 3, 99 }, kerr.UnknownLeaderEpoch},
		// Kafka 4.4: a last fetched epoch that never was is out of range.
		{"unknown last epoch", 12, "t", id, 0, func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 7 }, kerr.OffsetOutOfRange},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := fetchRequest(long) // all of these end the poll at once
			p := addFetch(req, tc.topic, tc.id, tc.number, 0)
			if tc.edit != nil {
				tc.edit(p)
			}
			resp := ask[*kmsg.FetchResponse](cl, tc.version, req)
			isCode(t, "partition", resp.Topics[0].Partitions[0].ErrorCode, tc.want)
			is(t, "high watermark", resp.Topics[0].Partitions[0].HighWatermark, -1)
		})
	}
}

// KIP-320 and KIP-595: an older epoch of the client is fenced; a position past
// the end of its last epoch is a diverging epoch and no error.
func TestFetchEpochs(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	c.bumpEpoch(id, 0)
	cl.mustProduce("t", 0, "b")

	req := fetchRequest(long)
	addFetch(req, "t", id, 0, 0).CurrentLeaderEpoch = 0
	resp := ask[*kmsg.FetchResponse](cl, 16, req)
	p := resp.Topics[0].Partitions[0]
	isCode(t, "old epoch", p.ErrorCode, kerr.FencedLeaderEpoch)
	is(t, "hint at the epoch", p.CurrentLeader.LeaderEpoch > 0, true)

	req = fetchRequest(long)
	addFetch(req, "t", id, 0, 2).LastFetchedEpoch = 0
	p = ask[*kmsg.FetchResponse](cl, 16, req).Topics[0].Partitions[0]
	isCode(t, "diverged", p.ErrorCode, nil)
	is(t, "diverging epoch", p.DivergingEpoch.Epoch, 0)
	is(t, "its end", p.DivergingEpoch.EndOffset, 1)
	is(t, "records", len(p.RecordBatches), 0)

	req = fetchRequest(long)
	addFetch(req, "t", id, 0, 1).LastFetchedEpoch = 0
	p = ask[*kmsg.FetchResponse](cl, 16, req).Topics[0].Partitions[0]
	if got := values(t, p); !slices.Equal(got, []string{"b"}) {
		t.Errorf("at the end of its epoch: got %v", got)
	}
}

// KIP-951: a broker that does not lead says who does, and where; versions that have no
// place for where are told neither, as by Kafka.
func TestFetchHintsAtTheLeader(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	c.move(id, 0, 2)
	req := fetchRequest(long)
	addFetch(req, "t", id, 0, 0)
	resp := ask[*kmsg.FetchResponse](c.dial(), 16, req)
	p := resp.Topics[0].Partitions[0]
	isCode(t, "fetch", p.ErrorCode, kerr.NotLeaderForPartition)
	is(t, "leader", p.CurrentLeader.LeaderID, 2)
	is(t, "endpoints", len(resp.Brokers), 1)
	is(t, "endpoint", resp.Brokers[0].NodeID, 2)
	for _, version := range []int16{12, 15} {
		p := ask[*kmsg.FetchResponse](c.dial(), version, req).Topics[0].Partitions[0]
		isCode(t, "fetch", p.ErrorCode, kerr.NotLeaderForPartition)
		is(t, "leader", p.CurrentLeader.LeaderID, -1)
	}
}

// A poll that waits ends as soon as any of its partitions has records.
func TestFetchWaitsForRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", 10)
		done := make(chan *kmsg.FetchResponse, 1)
		cl := c.dial()
		go func() {
			req := fetchRequest(long)
			for n := range int32(10) {
				addFetch(req, "t", id, n, 0)
			}
			done <- ask[*kmsg.FetchResponse](cl, 12, req)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("an empty poll did not wait")
		default:
		}
		c.dial().mustProduce("t", 7, "x")
		resp := <-done
		got := 0
		for _, p := range fetchParts(resp) {
			if len(p.RecordBatches) > 0 {
				got++
				is(t, "partition", p.Partition, 7)
			}
		}
		is(t, "partitions with records", got, 1)
		is(t, "partitions in a full response", len(fetchParts(resp)), 10)
	})
}

// max_wait ends a poll without records; min_bytes 0 never waits (Kafka 4.4).
func TestFetchTimesOut(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	begun := time.Now()
	req := fetchRequest(60 * time.Millisecond)
	addFetch(req, "t", id, 0, 0)
	p := ask[*kmsg.FetchResponse](cl, 12, req).Topics[0].Partitions[0]
	isCode(t, "fetch", p.ErrorCode, nil)
	if waited := time.Since(begun); waited < 60*time.Millisecond {
		t.Errorf("waited %v only", waited)
	}
	req.MaxWaitMillis, req.MinBytes = int32(long.Milliseconds()), 0
	begun = time.Now()
	ask[*kmsg.FetchResponse](cl, 12, req)
	if time.Since(begun) > long/2 {
		t.Error("min_bytes 0 waited")
	}
}

// min_bytes counts over all partitions.
func TestFetchMinBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", 2)
		w := c.dial()
		w.mustProduce("t", 0, "x")
		one := len(batch("x"))
		done := make(chan *kmsg.FetchResponse, 1)
		cl := c.dial()
		go func() {
			req := fetchRequest(long)
			req.MinBytes = int32(2 * one)
			addFetch(req, "t", id, 0, 0)
			addFetch(req, "t", id, 1, 0)
			done <- ask[*kmsg.FetchResponse](cl, 12, req)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("answered with less than min_bytes")
		default:
		}
		w.mustProduce("t", 1, "y")
		total := 0
		for _, p := range fetchParts(<-done) {
			total += len(p.RecordBatches)
		}
		is(t, "bytes", total, 2*one)
	})
}

// Kafka 4.4: an unknown partition does not end a poll that has good ones;
// OFFSET_OUT_OF_RANGE does.
func TestFetchWhichErrorsEndAPoll(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	req := fetchRequest(80 * time.Millisecond)
	addFetch(req, "t", id, 0, 0)
	addFetch(req, "nope", metadata.TopicID{}, 0, 0)
	begun := time.Now()
	resp := ask[*kmsg.FetchResponse](cl, 12, req)
	if time.Since(begun) < 80*time.Millisecond {
		t.Error("an unknown topic ended the poll")
	}
	isCode(t, "unknown", resp.Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
	req.MaxWaitMillis = int32(long.Milliseconds())
	req.Topics[0].Partitions[0].FetchOffset = 99
	begun = time.Now()
	ask[*kmsg.FetchResponse](cl, 12, req)
	if time.Since(begun) > long/2 {
		t.Error("an offset out of range did not end the poll")
	}
}

// Kafka 4.4: a poll ends when its topic is deleted or its partition moves.
func TestFetchEndsWhenThePartitionGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*cluster, metadata.TopicID)
		want *kerr.Error
	}{
		"deleted": {func(c *cluster, id metadata.TopicID) { c.must(deleteTopic(id)) }, kerr.UnknownTopicOrPartition},
		"moved":   {func(c *cluster, id metadata.TopicID) { c.move(id, 0, 2) }, kerr.NotLeaderForPartition},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			id := c.topic("t", 1)
			done := make(chan *kmsg.FetchResponse, 1)
			cl := c.dial()
			go func() {
				req := fetchRequest(long)
				addFetch(req, "t", id, 0, 0)
				done <- ask[*kmsg.FetchResponse](cl, 12, req)
			}()
			select {
			case <-done:
				t.Fatal("an empty poll did not wait")
			case <-time.After(50 * time.Millisecond):
			}
			tc.do(c, id)
			isCode(t, "partition", (<-done).Topics[0].Partitions[0].ErrorCode, tc.want)
		})
	}
}

// KIP-74: limits per partition and response, but always one batch.
func TestFetchLimits(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 3)
	cl := c.dial()
	for n := range int32(3) {
		for range 5 {
			cl.mustProduce("t", n, "0123456789")
		}
	}
	one := len(batch("0123456789"))
	bytesOf := func(partitionMax, max int) []int {
		req := fetchRequest(0)
		req.MaxBytes = int32(max)
		for n := range int32(3) {
			addFetch(req, "t", id, n, 0).PartitionMaxBytes = int32(partitionMax)
		}
		var out []int
		for _, p := range fetchParts(ask[*kmsg.FetchResponse](cl, 12, req)) {
			out = append(out, len(p.RecordBatches))
		}
		return out
	}
	for _, tc := range []struct {
		name              string
		partitionMax, max int
		want              []int
	}{
		{"no limit", 1 << 20, 1 << 20, []int{5 * one, 5 * one, 5 * one}},
		{"per partition", 2*one + 1, 1 << 20, []int{2 * one, 2 * one, 2 * one}},
		{"whole response", 1 << 20, 7*one + 1, []int{5 * one, 2 * one, 0}},
		{"one batch at least", 1, 1, []int{one, 0, 0}},
		{"zero", 0, 0, []int{one, 0, 0}},
	} {
		if got := bytesOf(tc.partitionMax, tc.max); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// KIP-98: read_committed stops at the last stable offset and lists what was
// aborted.
func TestFetchReadCommitted(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	part, err := c.Get(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	appended, err := part.Append(kbatch.Values(0, "tx").InTransaction(5, 0, 0).Bytes(), c.clientAppend())
	if err != nil {
		t.Fatal(err)
	}
	<-appended.Commit.Done()
	committed := func() kmsg.FetchResponseTopicPartition {
		req := fetchRequest(0)
		req.IsolationLevel = 1
		addFetch(req, "t", id, 0, 0)
		return ask[*kmsg.FetchResponse](cl, 12, req).Topics[0].Partitions[0]
	}
	p := committed()
	is(t, "last stable offset", p.LastStableOffset, 1)
	is(t, "high watermark", p.HighWatermark, 2)
	is(t, "aborted is null", p.AbortedTransactions == nil, false)
	if got := values(t, p); !slices.Equal(got, []string{"a"}) {
		t.Errorf("with an open transaction: got %v", got)
	}
	marker, err := part.AppendMarker(c.abort(5, 0))
	if err != nil {
		t.Fatal(err)
	}
	<-marker.Commit.Done()
	p = committed()
	is(t, "last stable offset", p.LastStableOffset, 3)
	is(t, "aborted", len(p.AbortedTransactions), 1)
	is(t, "producer", p.AbortedTransactions[0].ProducerID, 5)
	is(t, "first offset", p.AbortedTransactions[0].FirstOffset, 1)
}

// C14: damaged records are never sent.
func TestFetchOfCorruptRecords(t *testing.T) {
	c := newCluster(t)
	id := c.topic("t", 1)
	cl := c.dial()
	cl.mustProduce("t", 0, "a")
	p, _ := c.Image().Partition(id, 0)
	if _, err := c.store.Corrupt(p.ID(), commitlog.Offset(0)); err != nil {
		t.Fatal(err)
	}
	got := cl.fetchOne(12, "t", id, 0)
	isCode(t, "fetch", got.ErrorCode, kerr.CorruptMessage)
	is(t, "bytes", len(got.RecordBatches), 0)
}

// A partition that is about to open is waited for instead of refused.
func TestFetchWaitsForAnOpeningPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", 1)
		c.dial().mustProduce("t", 0, "a")
		c.setOpening(id, 0, true)
		done := make(chan kmsg.FetchResponseTopicPartition, 1)
		cl := c.dial()
		go func() {
			req := fetchRequest(long)
			addFetch(req, "t", id, 0, 0)
			done <- ask[*kmsg.FetchResponse](cl, 12, req).Topics[0].Partitions[0]
		}()
		synctest.Wait()
		select {
		case p := <-done:
			t.Fatalf("answered at once with error %d", p.ErrorCode)
		default:
		}
		c.setOpening(id, 0, false)
		if got := values(t, <-done); !slices.Equal(got, []string{"a"}) {
			t.Errorf("got %v", got)
		}
		c.setOpening(id, 0, true)
		req := fetchRequest(long)
		addFetch(req, "t", id, 0, 0)
		isCode(t, "never opens", ask[*kmsg.FetchResponse](cl, 12, req).Topics[0].Partitions[0].ErrorCode, kerr.NotLeaderForPartition)
	})
}

// slowStore has logs whose every read takes a while, as from a cold store.
type slowStore struct {
	commitlog.Store
	took time.Duration
}

type slowLog struct {
	commitlog.Log
	took time.Duration
}

func (s slowStore) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, o commitlog.Options) (commitlog.Log, error) {
	l, err := s.Store.Open(ctx, id, epoch, o)
	return slowLog{l, s.took}, err
}

func (l slowLog) Read(ctx context.Context, from commitlog.Offset, o commitlog.ReadOptions) (commitlog.Records, error) {
	time.Sleep(l.took)
	return l.Log.Read(ctx, from, o)
}

// Cold partitions are read several at a time, within the same limits.
func TestFetchReadsColdPartitionsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 100 * time.Millisecond
		c := newCluster(t, func(c *cluster, _ *broker.Config) { c.piped, c.media = true, slowStore{c.store, took} })
		id := c.topic("t", 17)
		cl := c.dial()
		req := fetchRequest(0)
		for n := range int32(17) {
			// The bubble's clock begins in 2000.
			isCode(t, "produce", cl.produce(9, "t", id, n, kbatch.Values(0, "x").Bytes()).ErrorCode, nil)
			addFetch(req, "t", id, n, 0)
		}
		total := func() (bytes int) {
			for i, p := range fetchParts(ask[*kmsg.FetchResponse](cl, 12, req)) {
				isCode(t, "fetch", p.ErrorCode, nil)
				is(t, "order", p.Partition, int32(i))
				bytes += len(p.RecordBatches)
			}
			return bytes
		}
		begun := time.Now()
		one := len(batch("x"))
		is(t, "bytes", total(), 17*one)
		if got := time.Since(begun); got > 4*took { // one alone, then eight and eight
			t.Errorf("17 cold partitions took %v, one takes %v", got, took)
		}
		req.MaxBytes = int32(5*one + 1)
		if got := total(); got > 5*one || got < one {
			t.Errorf("got %d bytes, the limit is %d", got, req.MaxBytes)
		}
	})
}

func BenchmarkFetch(b *testing.B) {
	c := newCluster(b)
	id := c.topic("t", 1)
	cl := c.dial()
	records := kbatch.Sized(1_700_000_000_000, 10, 1000, 1).Bytes()
	cl.produce(13, "t", id, 0, records)
	req := fetchRequest(0)
	addFetch(req, "t", id, 0, 0)
	b.SetBytes(int64(len(records)))
	b.ReportAllocs()
	for b.Loop() {
		resp := ask[*kmsg.FetchResponse](cl, 13, req)
		if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
			b.Fatal("nothing")
		}
	}
}

// An incremental fetch over many partitions costs what the ready ones cost.
func BenchmarkFetchIncremental(b *testing.B) {
	for _, n := range []int32{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCluster(b)
			id := c.topic("t", n)
			cl := c.dial()
			cl.produce(13, "t", id, 3, batch("x"))
			req := fetchRequest(0)
			req.SessionEpoch = 0
			rt := kmsg.NewFetchRequestTopic()
			rt.TopicID = id
			for i := range n {
				rp := kmsg.NewFetchRequestTopicPartition()
				rp.Partition, rp.PartitionMaxBytes = i, 1<<20
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
			session := ask[*kmsg.FetchResponse](cl, 13, req).SessionID
			next := fetchRequest(0)
			next.SessionID = session
			b.ReportAllocs()
			epoch := int32(0)
			for b.Loop() {
				epoch++
				next.SessionEpoch = epoch
				if resp := ask[*kmsg.FetchResponse](cl, 13, next); resp.ErrorCode != 0 || len(fetchParts(resp)) != 1 {
					b.Fatalf("error %d, %d partitions", resp.ErrorCode, len(fetchParts(resp)))
				}
			}
		})
	}
}

// BenchmarkFetchHandler is the broker's own share, without connections.
func BenchmarkFetchHandler(b *testing.B) {
	c := newCluster(b)
	id := c.topic("t", 1)
	c.dial().produce(13, "t", id, 0, kbatch.Sized(1_700_000_000_000, 10, 1000, 1).Bytes())
	req := fetchRequest(0)
	req.SetVersion(13)
	addFetch(req, "t", id, 0, 0)
	r := &rpc.Request{Key: 1, Version: 13, Body: req, Received: time.Now()}
	api := c.APIs("")[1]
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		resp := api.Handle(ctx, r)
		if len(resp.Buffers) < 2 {
			b.Fatal("no records")
		}
		resp.Release()
	}
}
