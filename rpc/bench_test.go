package rpc_test

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// endless is a connection whose peer sends one frame n times and reads all
// replies: what a server costs without a kernel or a client.
type endless struct {
	scripted
	frame []byte
	at, n int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.at == len(e.frame) {
		if e.n--; e.n == 0 {
			return 0, net.ErrClosed
		}
		e.at = 0
	}
	n := copy(p, e.frame[e.at:])
	e.at += n
	return n, nil
}

func (e *endless) Write(p []byte) (int, error) { return len(p), nil }

func serveEndless(b *testing.B, frame []byte, api rpc.API) {
	s := newServer(b, rpc.ServerConfig{APIs: []rpc.API{api}})
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	s.ServeConn(b.Context(), &endless{frame: frame, n: b.N})
}

func BenchmarkServeEcho(b *testing.B) {
	serveEndless(b, frame(keyEcho, 0, 0, make([]byte, 100)), echoAPI())
}

func BenchmarkServeMetadata(b *testing.B) {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	for range 10 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("some-topic-name")
		r.Topics = append(r.Topics, topic)
	}
	serveEndless(b, kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, r, 0), metadataAPI())
}

// BenchmarkServeProduce is the produce path up to the partition: frame, decode,
// Begin, ordered reply. Its allocations do not depend on the records.
func BenchmarkServeProduce(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			body := produceBody(9, 1, 1, size)
			serveEndless(b, frame(0, 9, 0, body), produceAPI())
		})
	}
}

// produceAPI answers Produce from reused requests, as a broker does.
func produceAPI() rpc.API {
	free := make(chan *rpc.ProduceRequest, 100)
	resp := &rpc.ProduceResponse{Topics: []rpc.ProduceResponseTopic{{Name: "topic-a", Partitions: make([]rpc.ProduceResponsePartition, 1)}}}
	return rpc.API{Key: 0, Min: 3, Max: 13, Raw: true, Limit: 100 << 20, Begin: func(_ context.Context, r *rpc.Request) func(context.Context) rpc.Response {
		var p *rpc.ProduceRequest
		select {
		case p = <-free:
		default:
			p = new(rpc.ProduceRequest)
		}
		err := p.Decode(r.Version, r.Raw)
		return func(context.Context) rpc.Response {
			if err != nil {
				return rpc.Response{CloseErr: err}
			}
			return rpc.Response{
				Buffers: net.Buffers{rpc.AppendProduceResponse(nil, r.Version, resp)},
				Release: func() {
					p.Reset()
					select {
					case free <- p:
					default:
					}
				},
			}
		}
	}}
}

func BenchmarkEchoTCP(b *testing.B) {
	c := dial(b, listen(b, newServer(b, rpc.ServerConfig{APIs: []rpc.API{echoAPI()}})))
	body := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), keyEcho, 0, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEchoTCPPipelined(b *testing.B) {
	c := dial(b, listen(b, newServer(b, rpc.ServerConfig{APIs: []rpc.API{echoAPI()}})))
	body := make([]byte, 100)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := c.Call(context.Background(), keyEcho, 0, body); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkFetchTCP moves 1 MiB of records per request from shared memory.
func BenchmarkFetchTCP(b *testing.B) {
	resp := bigFetch(16, [][]byte{make([]byte, 64<<10)})
	s := newServer(b, rpc.ServerConfig{APIs: []rpc.API{{Key: 1, Min: 4, Max: 18, Raw: true, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		return rpc.Response{Buffers: rpc.EncodeFetch(r.Version, resp)}
	}}}})
	nc, err := net.Dial("tcp", listen(b, s))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(time.Minute))
	req := frame(1, 16, 0, nil)
	buf := make([]byte, 2<<20)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		nc.Write(req)
		for n, want := 0, 4; n < want; {
			m, err := nc.Read(buf[n:])
			if err != nil {
				b.Fatal(err)
			}
			if n += m; n >= 4 {
				want = 4 + int(binary.BigEndian.Uint32(buf))
			}
		}
	}
}
