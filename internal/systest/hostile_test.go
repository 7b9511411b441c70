package systest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/systest"
	"ponor/rpc/kmsgtest"
)

// attackers are how many hostile connections there are at a time.
const attackers = 16

// TestHostileInput sends a real process what no client would. It must survive,
// serve others meanwhile, and not grow by what it was only told.
func TestHostileInput(t *testing.T) {
	c := systest.Start(t, systest.Options{Nodes: 1})
	node := c.Nodes[0]
	w := witness(t, c)
	before := resident(t, node.Pid())
	for _, a := range []struct {
		name   string
		frames func(*rand.Rand) [][]byte
	}{
		{"garbage", garbage},
		{"sizes that lie", lyingSizes},
		{"truncated requests", truncated},
		{"unknown keys and versions", unknownKeys},
		{"array counts that lie", lyingCounts},
		{"every key with random bodies", randomBodies},
		{"every key with damaged requests", damaged},
	} {
		t.Run(a.name, func(t *testing.T) {
			frames := a.frames(rand.New(rand.NewPCG(1, 2)))
			served := w.served()
			peak := watchMemory(t, node.Pid(), func() { attack(t, node.Address, frames) })
			systest.Eventually(t, "another client is served", func() error {
				if w.served() < served+3 {
					return errors.New("it is not")
				}
				return nil
			})
			t.Logf("%d connections, resident memory grew by up to %d MB, others were served %d times, the slowest within %v",
				len(frames), (peak-before)>>20, w.served()-served, w.slowest())
			if peak-before > 200<<20 {
				t.Errorf("resident memory grew by %d MB", (peak-before)>>20)
			}
		})
	}
	w.stop()
	log, err := os.ReadFile(node.Log)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(log, []byte("panic")); i >= 0 {
		t.Errorf("the node panicked:\n%.4000s", log[i:])
	}
}

// attack sends each frame on a connection of its own and waits a moment for an
// answer or the end, then hangs up.
func attack(t *testing.T, address string, frames [][]byte) {
	var group sync.WaitGroup
	work := make(chan []byte)
	for range attackers {
		group.Go(func() {
			for frame := range work {
				if err := attackOnce(t.Context(), address, frame); err != nil {
					t.Errorf("connect: %v", err)
				}
			}
		})
	}
	for _, frame := range frames {
		work <- frame
	}
	close(work)
	group.Wait()
}

func attackOnce(ctx context.Context, address string, frame []byte) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = conn.Write(frame) // the node may close first
	_, _ = io.ReadFull(conn, make([]byte, 8))
	return nil
}

// honest is a client that minds its own business: it produces a record and
// consumes it, again and again.
type honest struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	count int
	worst time.Duration
}

func witness(t *testing.T, c *systest.Cluster) *honest {
	t.Helper()
	cl := c.Client(kgo.DefaultProduceTopic("honest"), kgo.ConsumeTopics("honest"))
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, -1, nil, "honest"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &honest{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for i := 0; ctx.Err() == nil; i++ {
			begun := time.Now()
			value := fmt.Sprint(i)
			if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil && ctx.Err() == nil {
				t.Errorf("honest client: produce: %v", err)
			}
			if got := cl.PollRecords(ctx, 1); ctx.Err() == nil {
				if err := got.Err(); err != nil || got.NumRecords() != 1 || string(got.Records()[0].Value) != value {
					t.Errorf("honest client: consume record %s: %d records, %v", value, got.NumRecords(), err)
				}
			}
			h.mu.Lock()
			h.count, h.worst = h.count+1, max(h.worst, time.Since(begun))
			h.mu.Unlock()
		}
	}()
	t.Cleanup(h.stop)
	return h
}

func (h *honest) stop() { h.cancel(); <-h.done }

func (h *honest) served() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

func (h *honest) slowest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worst
}

// request is a frame with a header without client id.
func request(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint16(b, 0xffff)
	if req := kmsg.RequestForKey(key); req != nil {
		if req.SetVersion(version); req.IsFlexible() {
			b = append(b, 0)
		}
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// everyVersion calls f with every key and version that kmsg knows.
func everyVersion(f func(req kmsg.Request)) {
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			f(req)
		}
	}
}

func junk(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func garbage(r *rand.Rand) (all [][]byte) {
	for range 1000 {
		all = append(all, junk(r, 1+r.IntN(1<<r.IntN(16))))
	}
	return append(all, []byte("GET / HTTP/1.1\r\nHost: ponor\r\n\r\n"), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), bytes.Repeat([]byte{0xff}, 1<<20), make([]byte, 1<<20))
}

// lyingSizes announce more than they send, up to the limit of every key and
// beyond.
func lyingSizes(r *rand.Rand) (all [][]byte) {
	for _, size := range []int32{-1, math.MinInt32, 0, 1, 7, 8, 9, 1 << 16, 1 << 20, 16 << 20, 100 << 20, 100<<20 + 1, math.MaxInt32} {
		everyVersion(func(req kmsg.Request) {
			if req.GetVersion() != req.MaxVersion() && req.Key() != 0 {
				return
			}
			f := request(req.Key(), req.GetVersion(), junk(r, 20))
			binary.BigEndian.PutUint32(f, uint32(size))
			all = append(all, f)
		})
	}
	return all
}

// truncated are requests that stop in the middle of the frame, and such whose
// frame is complete but whose body stops.
func truncated(r *rand.Rand) (all [][]byte) {
	for _, key := range []int16{0, 1, 3, 18, 19, 44} {
		req := kmsg.RequestForKey(key)
		req.SetVersion(req.MaxVersion())
		kmsgtest.Fill(r, req)
		whole := req.AppendTo(nil)
		for i := 0; i <= len(whole); i += 1 + len(whole)/40 {
			all = append(all, request(key, req.GetVersion(), whole[:i]), request(key, req.GetVersion(), whole)[:4+i])
		}
	}
	return all
}

func unknownKeys(r *rand.Rand) (all [][]byte) {
	for _, key := range []int16{-1, math.MinInt16, kmsg.MaxKey + 1, 1000, 9999, 10000, 10001, 10002, 10003, 10004, 10005, 10010, 10100, math.MaxInt16} {
		all = append(all, request(key, 0, nil), request(key, 0, junk(r, 100)), request(key, math.MaxInt16, junk(r, 100)))
	}
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			for _, v := range []int16{-1, math.MinInt16, req.MaxVersion() + 1, math.MaxInt16} {
				all = append(all, request(key, v, junk(r, 30)))
			}
		}
	}
	return all
}

// lyingCounts are bodies full of array counts of 2^31-1: Produce with one at
// each level, and every other key with such bytes from each of the first places
// on.
func lyingCounts(*rand.Rand) (all [][]byte) {
	most := []byte{0x7f, 0xff, 0xff, 0xff}
	compact := []byte{0xff, 0xff, 0xff, 0xff, 0x07}
	for v := range int16(14) {
		start := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1} // no transactional id, acks -1, timeout
		one, count, name := []byte{0, 0, 0, 1}, most, []byte{0, 1, 't'}
		if v >= 9 {
			start, one, count, name = start[1:], []byte{2}, compact, []byte{2, 't'}
			start[0] = 0
		}
		if v >= 13 {
			name = make([]byte, 16)
		}
		all = append(all, request(0, v, slices.Concat(start, count)), request(0, v, slices.Concat(start, one, name, count)),
			request(0, v, slices.Concat(start, one, name, one, []byte{0, 0, 0, 0}, count)))
	}
	everyVersion(func(req kmsg.Request) {
		for at := range 16 {
			pad := make([]byte, at)
			all = append(all, request(req.Key(), req.GetVersion(), slices.Concat(pad, most, make([]byte, 64))))
			if req.IsFlexible() {
				all = append(all, request(req.Key(), req.GetVersion(), slices.Concat(pad, compact, make([]byte, 64))))
			}
		}
	})
	return all
}

func randomBodies(r *rand.Rand) (all [][]byte) {
	everyVersion(func(req kmsg.Request) {
		for _, n := range []int{0, 1, 5, 20, 100, 5000} {
			all = append(all, request(req.Key(), req.GetVersion(), junk(r, n)))
		}
	})
	return all
}

// damaged are requests that make sense but for a few bits.
func damaged(r *rand.Rand) (all [][]byte) {
	everyVersion(func(req kmsg.Request) {
		for range 6 {
			kmsgtest.Fill(r, req)
			body := req.AppendTo(nil)
			for range r.IntN(4) {
				if len(body) > 0 {
					body[r.IntN(len(body))] ^= 1 << r.IntN(8)
				}
			}
			all = append(all, request(req.Key(), req.GetVersion(), body))
		}
	})
	return all
}
