package rpc_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// TestMemoryBudget: R4. Readers pause at the budget, and everyone gets through.
func TestMemoryBudget(t *testing.T) {
	const body = 1 << 20
	var held, most atomic.Int64
	s := newServer(t, rpc.ServerConfig{MemoryBudget: 8 << 20, APIs: []rpc.API{{Key: keyEcho, Raw: true, Limit: 2 << 20,
		Begin: func(_ context.Context, r *rpc.Request) func(context.Context) rpc.Response {
			n := held.Add(int64(len(r.Raw)))
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return func(context.Context) rpc.Response {
				time.Sleep(time.Millisecond)
				return rpc.Response{Buffers: net.Buffers{{1}}, Release: func() { held.Add(-int64(len(r.Raw))) }}
			}
		}}}})
	addr := listen(t, s)
	var calls sync.WaitGroup
	for range 20 {
		c := dial(t, addr)
		for range 5 {
			calls.Go(func() {
				if _, err := c.Call(t.Context(), keyEcho, 0, make([]byte, body)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	if most.Load() > 8<<20 || most.Load() < 2<<20 {
		t.Errorf("%d bytes were held at most", most.Load())
	}
}

// TestSmallFramesPassLargeOnes: large requests that wait for the store do not
// keep heartbeats from being read.
func TestSmallFramesPassLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := make(chan struct{})
		var stuck atomic.Int32
		s := newServer(t, rpc.ServerConfig{MemoryBudget: 4 << 20, APIs: []rpc.API{echoAPI2(), {Key: keyEcho + 1, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			stuck.Add(1)
			<-store
			return echo(ctx, r)
		}}}})
		var calls sync.WaitGroup
		for range 10 {
			c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{WriteStall: time.Hour})
			defer c.Close()
			calls.Go(func() {
				if _, err := c.Call(t.Context(), keyEcho+1, 0, make([]byte, 900<<10)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := stuck.Load(); n == 0 || n == 10 {
			t.Errorf("%d of 10 large requests were read", n)
		}
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		if _, err := c.Call(t.Context(), keyEcho, 0, []byte("heartbeat")); err != nil {
			t.Error(err)
		}
		close(store)
		calls.Wait()
	})
}

// echoAPI2 is echo with the default limit, so that it does not raise budgets.
func echoAPI2() rpc.API { return rpc.API{Key: keyEcho, Raw: true, Handle: echo} }

// TestDecodeBudget: R4. More decoded bytes than the budget wait for each other
// and all get through, also when they are pipelined.
func TestDecodeBudget(t *testing.T) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.Topics = make([]kmsg.MetadataRequestTopic, 20_000) // ~1 MB decoded
	api := metadataAPI()
	inner := api.Handle
	api.Handle = func(ctx context.Context, r *rpc.Request) rpc.Response {
		time.Sleep(time.Millisecond)
		return inner(ctx, r)
	}
	s := newServer(t, rpc.ServerConfig{DecodeBudget: 1, APIs: []rpc.API{api}})
	addr := listen(t, s)
	var calls sync.WaitGroup
	for range 5 {
		c := dial(t, addr)
		for range 5 {
			calls.Go(func() {
				if _, err := c.Do(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
}

// TestExpandingRequestIsRefused: R3 end to end.
func TestExpandingRequestIsRefused(t *testing.T) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 8
	req.Topics = make([]kmsg.MetadataRequestTopic, 400_000)
	for i := range req.Topics {
		req.Topics[i].Topic = kmsg.StringPtr("")
	}
	c := dial(t, listen(t, newServer(t, rpc.ServerConfig{APIs: []rpc.API{metadataAPI()}})))
	if _, err := c.Do(t.Context(), req); !errors.Is(err, rpc.ErrDisconnected) {
		t.Errorf("400,000 empty topics: %v", err)
	}
}

func TestConnInflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		release := make(chan struct{})
		s := newServer(t, rpc.ServerConfig{ConnInflight: 3, APIs: []rpc.API{{Key: keyEcho, Raw: true,
			Begin: func(context.Context, *rpc.Request) func(context.Context) rpc.Response {
				begun.Add(1)
				return func(context.Context) rpc.Response { <-release; return rpc.Response{Buffers: net.Buffers{{1}}} }
			}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { c.Call(t.Context(), keyEcho, 0, nil) })
		}
		synctest.Wait()
		if n := begun.Load(); n != 3 {
			t.Errorf("%d requests begun, bound is 3", n)
		}
		close(release)
		calls.Wait()
		if n := begun.Load(); n != 10 {
			t.Errorf("%d of 10 requests begun in the end", n)
		}
	})
}

// TestForgottenRequestsKeepNobodyOut: requests that wait for others give their budget
// back, or the others could not come.
func TestForgottenRequestsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50
		var here sync.WaitGroup
		here.Add(most)
		api := rpc.API{Key: 3, Max: 12, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
			r.Forget()
			if r.Body != nil {
				t.Error("the body is still there")
			}
			here.Done()
			here.Wait()
			return rpc.Response{Body: kmsg.NewPtrMetadataResponse()}
		}}
		s := newServer(t, rpc.ServerConfig{MemoryBudget: 4 << 20, APIs: []rpc.API{api}})
		var calls sync.WaitGroup
		for range most {
			c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
			defer c.Close()
			calls.Go(func() {
				req := kmsg.NewPtrMetadataRequest()
				req.Version, req.Topics = 12, make([]kmsg.MetadataRequestTopic, 2000) // 40 KB
				if _, err := c.Do(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	})
}
