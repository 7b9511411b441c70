package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

const keyEcho = rpc.InternalKey

// echo answers with the body it got.
func echo(_ context.Context, r *rpc.Request) rpc.Response {
	return rpc.Response{Buffers: net.Buffers{r.Raw}}
}

func echoAPI() rpc.API { return rpc.API{Key: keyEcho, Max: 2, Raw: true, Limit: 8 << 20, Handle: echo} }

// metadataAPI answers with one topic per requested one.
func metadataAPI() rpc.API {
	return rpc.API{Key: int16(kmsg.Metadata), Max: 13, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		resp := kmsg.NewPtrMetadataResponse()
		for range r.Body.(*kmsg.MetadataRequest).Topics {
			resp.Topics = append(resp.Topics, kmsg.NewMetadataResponseTopic())
		}
		return rpc.Response{Body: resp}
	}}
}

func apiVersionsAPI() rpc.API {
	return rpc.API{Key: rpc.KeyApiVersions, Max: 3, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		resp := kmsg.NewPtrApiVersionsResponse()
		if r.Unsupported {
			resp.ErrorCode = 35
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = rpc.KeyApiVersions, 3
		resp.ApiKeys = append(resp.ApiKeys, k)
		return rpc.Response{Body: resp}
	}}
}

func newServer(t testing.TB, cfg rpc.ServerConfig) *rpc.Server {
	t.Helper()
	s, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// pipe serves one in-memory connection and returns the client's end.
func pipe(t testing.TB, s *rpc.Server) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() { s.ServeConn(context.Background(), server) })
	t.Cleanup(func() { client.Close(); served.Wait() })
	return client
}

// listen serves on a loopback port.
func listen(t testing.TB, s *rpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(context.Background(), l); !errors.Is(err, rpc.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { s.Close(); served.Wait() })
	return l.Addr().String()
}

func dial(t testing.TB, addr string) *rpc.Client {
	t.Helper()
	c, err := rpc.Dial(t.Context(), new(net.Dialer).DialContext, addr, rpc.ClientConfig{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// frame is a request frame of flexible header, size included.
func frame(key, version int16, correlation int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+2+1+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0xff, 0xff, 0)
	return append(b, body...)
}

// readReply reads one response frame and returns what follows its size.
func readReply(t testing.TB, r io.Reader) []byte {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		t.Fatalf("read reply: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatalf("read reply: %v", err)
	}
	return b
}

func correlation(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }

func TestNewServerRefusesContradictions(t *testing.T) {
	ok := func(context.Context, *rpc.Request) rpc.Response { return rpc.Response{} }
	for name, apis := range map[string][]rpc.API{
		"a key listed twice":          {echoAPI(), echoAPI()},
		"no handler":                  {{Key: 3, Max: 1}},
		"a key unknown to kmsg":       {{Key: 12000, Handle: ok}},
		"a version unknown to kmsg":   {{Key: 3, Max: 99, Handle: ok}},
		"a range that is none":        {{Key: 3, Min: 4, Max: 3, Handle: ok}},
		"both Handle and Begin given": {{Key: 3, Handle: ok, Begin: func(context.Context, *rpc.Request) func(context.Context) rpc.Response { return nil }}},
	} {
		if _, err := rpc.NewServer(rpc.ServerConfig{APIs: apis}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestRepliesInOrder: R1 and R2. All pipelined requests have begun before the
// first is answered, and the replies keep the order of the requests.
func TestRepliesInOrder(t *testing.T) {
	const n = 20
	var begun atomic.Int32
	all := make(chan struct{})
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{
		Key: keyEcho, Raw: true,
		Begin: func(_ context.Context, r *rpc.Request) func(context.Context) rpc.Response {
			if r.Correlation != begun.Add(1)-1 {
				t.Errorf("request %d begun out of order", r.Correlation)
			}
			if begun.Load() == n {
				close(all)
			}
			return func(context.Context) rpc.Response {
				<-all
				return rpc.Response{Buffers: net.Buffers{r.Raw}}
			}
		},
	}}})
	c := pipe(t, s)
	var sent sync.WaitGroup
	sent.Go(func() {
		for i := range int32(n) {
			c.Write(frame(keyEcho, 0, i, []byte{byte(i)}))
		}
	})
	for i := range int32(n) {
		if b := readReply(t, c); correlation(b) != i || b[len(b)-1] != byte(i) {
			t.Fatalf("reply %d is %x", i, b)
		}
	}
	sent.Wait()
}

func TestHandleRunsOneByOne(t *testing.T) {
	var running atomic.Int32
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
		if running.Add(1) != 1 {
			t.Error("two handlers of one connection at a time")
		}
		time.Sleep(time.Millisecond)
		running.Add(-1)
		return echo(ctx, r)
	}}}})
	c := dial(t, listen(t, s))
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := c.Call(t.Context(), keyEcho, 0, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// TestBadRequestsClose: R7. What was asked before is still answered.
func TestBadRequestsClose(t *testing.T) {
	body := kmsg.NewPtrMetadataRequest()
	body.Version = 12
	long := frame(keyEcho, 0, 1, nil)
	binary.BigEndian.PutUint32(long, 1<<30)
	negative := frame(keyEcho, 0, 1, nil)
	binary.BigEndian.PutUint32(negative, 0x80000000)
	short := binary.BigEndian.AppendUint32(nil, 4)
	short = append(short, 0, 0, 0, 0, 0, 0, 0, 0)
	truncated := frame(int16(kmsg.Metadata), 12, 1, body.AppendTo(nil)[:1])
	badID := frame(keyEcho, 0, 1, nil)
	badID[12], badID[13] = 0x7f, 0xff
	for name, bad := range map[string][]byte{
		"unknown key":           frame(999, 0, 1, nil),
		"unsupported version":   frame(int16(kmsg.Metadata), 14, 1, nil),
		"negative version":      frame(int16(kmsg.Metadata), -1, 1, nil),
		"larger than the limit": long,
		"negative size":         negative,
		"too short":             short,
		"truncated body":        truncated,
		"truncated header":      badID,
		"http":                  []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"TLS":                   {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0x01, 0x02},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI(), metadataAPI()}})
			c := pipe(t, s)
			go c.Write(append(frame(keyEcho, 0, 7, []byte("good")), bad...))
			if b := readReply(t, c); correlation(b) != 7 {
				t.Errorf("first reply is %x", b)
			}
			if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
				t.Errorf("after the bad request: %x, %v", rest, err)
			}
		})
	}
}

// TestSizeIsCheckedBeforeAllocation: R3.
func TestSizeIsCheckedBeforeAllocation(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{metadataAPI()}})
	huge := frame(int16(kmsg.Metadata), 1, 0, nil)
	binary.BigEndian.PutUint32(huge, 1<<30)
	got := allocatedBy(func() {
		c := pipe(t, s)
		c.Write(huge)
		io.ReadAll(c)
	})
	if got > 1<<20 {
		t.Errorf("refusing a frame of 1 GiB allocated %d bytes", got)
	}
}

func TestLimitBeforeAuthentication(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{AuthRequired: true, APIs: []rpc.API{{Key: keyEcho, Raw: true, Limit: 8 << 20, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		r.Conn.SetAuthenticated(len(r.Raw) > 0)
		return rpc.Response{Buffers: net.Buffers{[]byte("ok")}}
	}}}})
	addr := listen(t, s)
	big := make([]byte, 2<<20)
	if _, err := dial(t, addr).Call(t.Context(), keyEcho, 0, big); !errors.Is(err, rpc.ErrDisconnected) {
		t.Errorf("2 MiB before authentication: %v", err)
	}
	c := dial(t, addr)
	for _, body := range [][]byte{{1}, big} {
		if _, err := c.Call(t.Context(), keyEcho, 0, body); err != nil {
			t.Error(err)
		}
	}
}

// TestApiVersionsOfUnknownVersion: KIP-511. The answer is a version 0 body under
// a header without tags.
func TestApiVersionsOfUnknownVersion(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{apiVersionsAPI()}})
	c := dial(t, listen(t, s))
	for _, version := range []int16{0, 2, 3, 4, 5} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "test", "1"
		got, err := c.Do(t.Context(), req)
		if err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		resp, want := got.(*kmsg.ApiVersionsResponse), int16(0)
		if version > 3 {
			want = 35
		}
		if resp.ErrorCode != want || len(resp.ApiKeys) != 1 {
			t.Errorf("v%d: %+v", version, resp)
		}
		if version > 3 && resp.Version != 0 {
			t.Errorf("v%d: answered in version %d", version, resp.Version)
		}
	}
}

func TestApiVersionsUnknownVersionWithAnyBody(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{apiVersionsAPI()}})
	c := pipe(t, s)
	go c.Write(frame(rpc.KeyApiVersions, 32000, 5, []byte("a body of the future")))
	b := readReply(t, c)
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(b[4:]); err != nil || correlation(b) != 5 || resp.ErrorCode != 35 {
		t.Errorf("%x: %+v, %v", b, resp, err)
	}
	if want := resp.AppendTo(nil); !bytes.Equal(b[4:], want) {
		t.Errorf("body %x is not the version 0 body %x", b[4:], want)
	}
}

func TestClientSoftware(t *testing.T) {
	seen := make(chan rpc.Software, 1)
	api := apiVersionsAPI()
	inner := api.Handle
	api.Handle = func(ctx context.Context, r *rpc.Request) rpc.Response {
		seen <- r.Conn.Software()
		if r.ClientID != "test" {
			t.Errorf("client id %q", r.ClientID)
		}
		return inner(ctx, r)
	}
	c := dial(t, listen(t, newServer(t, rpc.ServerConfig{APIs: []rpc.API{api}})))
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "apache-kafka-java", "4.4.0"
	if _, err := c.Do(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != (rpc.Software{Name: "apache-kafka-java", Version: "4.4.0"}) {
		t.Errorf("%+v", got)
	}
}

// TestNothingIsNotAnswered: Produce with acks=0 leaves no hole in the replies.
func TestNothingIsNotAnswered(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI(), {Key: 0, Min: 3, Max: 13, Raw: true, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		return rpc.Response{Nothing: true}
	}}}})
	c := dial(t, listen(t, s))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, 0
	for range 3 {
		if resp, err := c.Do(t.Context(), req); resp != nil || err != nil {
			t.Fatal(resp, err)
		}
		if got, err := c.Call(t.Context(), keyEcho, 0, []byte("next")); string(got) != "next" || err != nil {
			t.Fatal(string(got), err)
		}
	}
}

func TestCloseErrAfterEarlierReplies(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI(), {Key: keyEcho + 1, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
		return rpc.Response{CloseErr: errors.New("acks=0 failed")}
	}}}})
	c := pipe(t, s)
	go func() {
		c.Write(frame(keyEcho, 0, 1, nil))
		c.Write(frame(keyEcho+1, 0, 2, nil))
		c.Write(frame(keyEcho, 0, 3, nil))
	}()
	if b := readReply(t, c); correlation(b) != 1 {
		t.Errorf("first reply %x", b)
	}
	if rest, _ := io.ReadAll(c); len(rest) > 0 {
		t.Errorf("after CloseErr: %x", rest)
	}
}

// TestPanicClosesOneConnection: R5.
func TestPanicClosesOneConnection(t *testing.T) {
	var logged syncBuffer
	boom := func(context.Context, *rpc.Request) rpc.Response { panic("boom") }
	s := newServer(t, rpc.ServerConfig{
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		APIs: []rpc.API{echoAPI(), {Key: keyEcho + 1, Raw: true, Handle: boom}, {Key: keyEcho + 2, Raw: true,
			Begin: func(context.Context, *rpc.Request) func(context.Context) rpc.Response { panic("boom at once") }},
			{Key: keyEcho + 3, Raw: true, Begin: func(_ context.Context, r *rpc.Request) func(context.Context) rpc.Response {
				return func(ctx context.Context) rpc.Response { return boom(ctx, r) }
			}}, {Key: keyEcho + 4, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
				return rpc.Response{Body: (*kmsg.MetadataResponse)(nil)}
			}}, {Key: keyEcho + 5, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
				return rpc.Response{CloseErr: errors.New("closing"), Release: func() { panic("boom in Release") }}
			}}},
	})
	addr := listen(t, s)
	other := dial(t, addr)
	for key := keyEcho + 1; key <= keyEcho+5; key++ {
		if _, err := dial(t, addr).Call(t.Context(), key, 0, nil); !errors.Is(err, rpc.ErrDisconnected) {
			t.Errorf("key %d: %v", key, err)
		}
	}
	if _, err := other.Call(t.Context(), keyEcho, 0, nil); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if n := strings.Count(logged.String(), "server_test.go"); n < 4 || !strings.Contains(logged.String(), "boom at once") {
		t.Errorf("log lacks stacks: %s", logged.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestThrottleMutes: KIP-219. The reply comes at once, the next request is not
// read before the throttle time is over.
func TestThrottleMutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			resp := echo(ctx, r)
			resp.Throttle = 3 * time.Second
			return resp
		}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		for i, want := range []time.Duration{0, 3 * time.Second, 3 * time.Second} {
			start := time.Now()
			if _, err := c.Call(t.Context(), keyEcho, 0, nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("call %d took %v, want %v", i, took, want)
			}
		}
	})
}

func TestThrottleFieldIsSet(t *testing.T) {
	api := metadataAPI()
	inner := api.Handle
	api.Handle = func(ctx context.Context, r *rpc.Request) rpc.Response {
		resp := inner(ctx, r)
		resp.Throttle = 250 * time.Millisecond
		return resp
	}
	c := dial(t, listen(t, newServer(t, rpc.ServerConfig{APIs: []rpc.API{api}})))
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	resp, err := c.Do(t.Context(), req)
	if err != nil || resp.(*kmsg.MetadataResponse).ThrottleMillis != 250 {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestForgottenResponseCloses: a Kafka client must never get an empty body.
func TestForgottenResponseCloses(t *testing.T) {
	api := metadataAPI()
	api.Handle = func(context.Context, *rpc.Request) rpc.Response { return rpc.Response{} }
	c := dial(t, listen(t, newServer(t, rpc.ServerConfig{APIs: []rpc.API{api}})))
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	if _, err := c.Do(t.Context(), req); !errors.Is(err, rpc.ErrDisconnected) {
		t.Error(err)
	}
}

func TestReleaseIsCalledOnce(t *testing.T) {
	var released atomic.Int32
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
		return rpc.Response{Buffers: net.Buffers{make([]byte, 4<<20)}, Release: func() { released.Add(1) }}
	}}}})
	addr := listen(t, s)
	if _, err := dial(t, addr).Call(t.Context(), keyEcho, 0, nil); err != nil {
		t.Fatal(err)
	}
	// A peer that goes away in the middle of the reply.
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	nc.Write(frame(keyEcho, 0, 0, nil))
	nc.Read(make([]byte, 1))
	nc.Close()
	s.Shutdown(t.Context())
	if n := released.Load(); n != 2 {
		t.Errorf("released %d times, want 2", n)
	}
}

// TestBuffersArriveWhole over connections with and without writev.
func TestBuffersArriveWhole(t *testing.T) {
	var bufs net.Buffers
	var want []byte
	for i, n := range []int{10, 1, 5000, 3000, 0, 3000, 300_000, 20, 600_000, 7} {
		bufs = append(bufs, bytes.Repeat([]byte{byte('a' + i)}, n))
		want = append(want, bufs[i]...)
	}
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
		return rpc.Response{Buffers: bufs}
	}}}})
	piped := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
	defer piped.Close()
	for name, c := range map[string]*rpc.Client{"tcp": dial(t, listen(t, s)), "pipe": piped} {
		for range 2 { // the handler's slice must survive the first reply
			got, err := c.Call(t.Context(), keyEcho, 0, nil)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
			}
		}
	}
}
