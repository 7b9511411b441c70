package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/cmd/node/process"
	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/objstore/objtest"
)

// forgetful takes WAL slots and forgets them, so that what is measured is the
// node and not a store in memory.
type forgetful struct{ objstore.Bucket }

func (f forgetful) PutNew(ctx context.Context, key string, body objstore.Body) error {
	if strings.Contains(key, "/wal/") {
		return nil
	}
	return f.Bucket.PutNew(ctx, key, body)
}

// path is the whole way of a request: a connection over loopback, the server,
// the broker, the partition, the shared log. The client makes no garbage.
type path struct {
	t     testing.TB
	nc    net.Conn
	br    *bufio.Reader
	topic [16]byte
	size  [4]byte
	next  func() // changes the frame before it is sent; may be nil
}

func newPath(t testing.TB) *path { return newPathTo(t, forgetful{mem.New()}) }

// newPathTo is a path to a store.
func newPathTo(t testing.TB, bucket objstore.Bucket) *path {
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	quorum, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := process.New(process.Config{
		NodeID: 1, Bucket: bucket, Clients: clients, Quorum: quorum, AutoCreateTopics: true, DefaultPartitions: 1,
		TuneLogs: func(c *sharedlog.Config) { // nothing is packed meanwhile
			c.PackBytes, c.MaxUnpacked, c.MaxSlots, c.PackAge = 1<<50, 1<<50, 1<<40, time.Hour
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	<-n.Ready()
	cl, err := kgo.NewClient(kgo.SeedBrokers(clients.Addr().String()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("first")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := &path{t: t}
	topic, _ := n.Controller().Image().Topic("t")
	p.topic = topic.ID
	if p.nc, err = net.Dial("tcp", clients.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.nc.Close() })
	p.br = bufio.NewReaderSize(p.nc, 256<<10)
	return p
}

// produceFrame asks for one batch of n records that are about size bytes in all.
func (p *path) produceFrame(n, size int) []byte {
	p.next = nil
	return p.frameOf(kbatch.Sized(time.Now().UnixMilli(), n, size, 1).Bytes())
}

// idempotentFrame is produceFrame for a producer, whose sequences go on with
// every time that it is sent.
func (p *path) idempotentFrame(producer int64, codec kbatch.Codec, n, size int) []byte {
	const crc, sequence = 17, 53 // positions
	batch := kbatch.Sized(time.Now().UnixMilli(), n, size, 1).Idempotent(producer, 0, 0).Compressed(codec).Bytes()
	frame := p.frameOf(batch)
	b := frame[bytes.Index(frame, batch):][:len(batch)]
	seq := uint32(0)
	p.next = func() {
		binary.BigEndian.PutUint32(b[sequence:], seq)
		binary.BigEndian.PutUint32(b[crc:], crc32.Checksum(b[crc+4:], commitlog.Castagnoli))
		seq += uint32(n)
	}
	return frame
}

// frameOf asks for a batch.
func (p *path) frameOf(batch []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 13, -1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.TopicID = p.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

// fetchFrame asks for up to size bytes from an offset on.
func (p *path) fetchFrame(from int64, size int32) []byte {
	p.next = nil
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 13, 0, 1, size, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = p.topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = from, size
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

// send writes frames and reads as many answers, window of them under way.
func (p *path) send(frame []byte, n, window int) (bytes int) {
	for sent, answered := 0, 0; answered < n; answered++ {
		for ; sent < min(n, answered+window); sent++ {
			if p.next != nil {
				p.next()
			}
			if _, err := p.nc.Write(frame); err != nil {
				p.t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(p.br, p.size[:]); err != nil {
			p.t.Fatal(err)
		}
		k, err := p.br.Discard(int(binary.BigEndian.Uint32(p.size[:])))
		if err != nil {
			p.t.Fatal(err)
		}
		bytes += k
	}
	return bytes
}

// accepted sends a Produce request and wants no error.
func (p *path) accepted(frame []byte) {
	if p.next != nil {
		p.next()
	}
	if _, err := p.nc.Write(frame); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(p.br, p.size[:]); err != nil {
		p.t.Fatal(err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(p.size[:]))
	if _, err := io.ReadFull(p.br, answer); err != nil {
		p.t.Fatal(err)
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 13
	if err := resp.ReadFrom(answer[5:]); err != nil { // after the correlation id and no tags
		p.t.Fatal(err)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		p.t.Fatalf("a Produce request was answered with error %d", code)
	}
}

// allocations is how many objects the process allocates per request.
func (p *path) allocations(frame []byte, n int) float64 {
	p.send(frame, 200, 4) // fills pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.send(frame, n, 4)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

// The whole way in and out allocates per request, and nothing per record.
func TestRequestsAllocateNothingPerRecord(t *testing.T) {
	const many, size = 1000, 24 << 10
	p := newPath(t)
	one, all := p.allocations(p.produceFrame(1, size), 1000), p.allocations(p.produceFrame(many, size), 1000)
	if all-one > many/10 {
		t.Errorf("a Produce request of one record makes %.1f allocations, one of %d makes %.1f", one, many, all)
	}
	if one > 60 {
		t.Errorf("a Produce request makes %.1f allocations", one)
	}
	// 200 and 1000 requests with one record, then with many, lie in the log.
	one, all = p.allocations(p.fetchFrame(1, 1), 1000), p.allocations(p.fetchFrame(1201, 1), 1000)
	if all-one > many/10 {
		t.Errorf("a Fetch of one record makes %.1f allocations, one of %d makes %.1f", one, many, all)
	}
	if one > 60 {
		t.Errorf("a Fetch request makes %.1f allocations", one)
	}
}

// Nor does it for idempotent producers, whatever compresses their records.
func TestIdempotentAndCompressedRequestsAllocateNothingPerRecord(t *testing.T) {
	const many, size = 1000, 24 << 10
	p := newPath(t)
	for i, codec := range kbatch.Codecs() {
		allocations := func(producer, n int) float64 {
			frame := p.idempotentFrame(int64(producer), codec, n, size)
			got := p.allocations(frame, 500)
			p.accepted(frame) // so were all before
			return got
		}
		one, all := allocations(2*i, 1), allocations(2*i+1, many)
		if all-one > many/10 {
			t.Errorf("%s: a Produce request of one record makes %.1f allocations, one of %d makes %.1f", codec, one, many, all)
		}
		if one > 60 {
			t.Errorf("%s: a Produce request makes %.1f allocations", codec, one)
		}
	}
}

// BenchmarkProduce is the whole way in; what the client and the kernel take of
// the CPU counts, allocations are the node's alone. The slabs are not on the
// heap, so B/op has no payload: it is copied from the socket into a reused frame
// and from there into the slab.
func BenchmarkProduce(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			p := newPath(b)
			frame := p.produceFrame(n, n*100)
			p.send(frame, 100, 8)
			b.SetBytes(int64(n * 100))
			b.ReportAllocs()
			b.ResetTimer()
			p.send(frame, b.N, 8)
		})
	}
}

// BenchmarkFetch is the whole way out of 256 KiB from memory.
func BenchmarkFetch(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			p := newPath(b)
			p.send(p.produceFrame(n, 64<<10), 8, 8)
			frame := p.fetchFrame(1, 256<<10)
			per := p.send(frame, 100, 4) / 100
			b.SetBytes(int64(per))
			b.ReportAllocs()
			b.ResetTimer()
			p.send(frame, b.N, 4)
		})
	}
}

// timed notes how long the newest slot took the store.
type timed struct {
	objstore.Bucket
	took atomic.Int64
}

func (b *timed) PutNew(ctx context.Context, key string, body objstore.Body) error {
	begun := time.Now()
	err := b.Bucket.PutNew(ctx, key, body)
	if strings.Contains(key, "/wal/") {
		b.took.Store(int64(time.Since(begun)))
	}
	return err
}

// BenchmarkAcknowledge is one record in flight to a directory, one after the
// other and at 200 a second, where every thread sleeps in between: the time from
// the request's last byte written until the answer is read, that of the slot's
// put in it, and the difference, each at the median.
func BenchmarkAcknowledge(b *testing.B) {
	for name, pause := range map[string]time.Duration{"busy": 0, "200/s": 5 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			store := &timed{Bucket: objtest.Dir(b, dir.Options{})}
			p := newPathTo(b, store)
			frame := p.produceFrame(1, 100)
			p.send(frame, 20, 1)
			var all, puts, rest []time.Duration
			for b.Loop() {
				time.Sleep(pause)
				begun := time.Now()
				p.send(frame, 1, 1)
				took, put := time.Since(begun), time.Duration(store.took.Load())
				all, puts, rest = append(all, took), append(puts, put), append(rest, took-put)
			}
			for name, list := range map[string][]time.Duration{"p50-ack-us": all, "p50-put-us": puts, "p50-rest-us": rest} {
				slices.Sort(list)
				b.ReportMetric(float64(list[len(list)/2].Microseconds()), name)
			}
		})
	}
}
