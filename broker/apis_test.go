package broker_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// B1: whatever bytes come, the broker neither dies nor hangs: it answers or
// closes that connection, and goes on serving the others.
func TestMalformedRequestsOfEveryKey(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	random := rand.New(rand.NewPCG(1, 2))
	for _, a := range c.APIs("") {
		for _, version := range []int16{a.Min, a.Max} {
			req := kmsg.RequestForKey(a.Key)
			req.SetVersion(version)
			whole := req.AppendTo(nil)
			junk := make([]byte, 64)
			for i := range junk {
				junk[i] = byte(random.Uint32())
			}
			bodies := [][]byte{nil, junk, whole[:len(whole)/2]}
			if a.Key != 0 { // there it is a valid request with acks=0, which has no reply
				bodies = append(bodies, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff})
			}
			for _, body := range bodies {
				cl := c.dial()
				ctx, cancel := context.WithTimeout(context.Background(), long)
				_, err := cl.Call(ctx, a.Key, version, body)
				if err != nil && ctx.Err() != nil {
					t.Errorf("key %d version %d: %d bytes were neither answered nor refused", a.Key, version, len(body))
				}
				cancel()
			}
		}
	}
	c.dial().mustProduce("t", 0, "still here")
}

// Requests with nothing in them are answered with nothing, at every version.
func TestEmptyRequestsOfEveryKey(t *testing.T) {
	c := newCluster(t)
	c.topic("t", 1)
	for _, a := range c.APIs("") {
		for version := a.Min; version <= a.Max; version++ {
			req := kmsg.RequestForKey(a.Key)
			switch r := req.(type) {
			case *kmsg.ProduceRequest:
				r.Acks = -1 // 0 has no reply
			case *kmsg.ApiVersionsRequest:
				r.ClientSoftwareName, r.ClientSoftwareVersion = "x", "y"
			}
			resp := ask[kmsg.Response](c.dial(), version, req)
			if resp == nil {
				t.Errorf("key %d version %d: no answer", a.Key, version)
			}
		}
	}
}

// The frame limits: a request that claims more than its key may have is refused
// before it is read.
func TestFrameLimits(t *testing.T) {
	c := newCluster(t)
	for _, a := range c.APIs("") {
		if a.Limit < 0 || a.Limit > 100<<20 {
			t.Errorf("key %d: limit %d", a.Key, a.Limit)
		}
	}
	cl := c.dial()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if _, err := cl.Call(ctx, 22, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1)); err == nil {
		t.Error("a string longer than its frame was accepted")
	}
}
