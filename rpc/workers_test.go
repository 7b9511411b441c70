package rpc_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"ponor/rpc"
)

// TestIdleConnectionsHaveOneGoroutine: ordered goroutines are as many as
// connections are busy at a time, and end when they are not needed.
func TestIdleConnectionsHaveOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns = 50
		hold := make(chan struct{})
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			if len(r.Raw) > 0 {
				<-hold
			}
			return echo(ctx, r)
		}}}})
		before := runtime.NumGoroutine()
		isMore := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			// NumGoroutine is off by one now and then, while others come and go.
			if n := runtime.NumGoroutine() - before; n < want-3 || n > want+3 {
				t.Errorf("%s there are %d more goroutines, want %d", when, n, want)
			}
		}
		var open []net.Conn
		for range conns {
			c := pipe(t, s)
			c.Write(frame(keyEcho, 0, 0, nil))
			readReply(t, c)
			synctest.Wait() // the goroutine is free for the next
			open = append(open, c)
		}
		const reaper = 1
		isMore("after one request each,", conns+reaper)
		for _, c := range open {
			c.Write(frame(keyEcho, 0, 0, []byte("wait")))
		}
		isMore("while all are busy,", 2*conns+reaper)
		close(hold)
		for _, c := range open {
			readReply(t, c)
		}
		time.Sleep(time.Minute) // idle connections stay for ten
		isMore("after a while without requests,", conns+reaper)
		for _, c := range open {
			c.Write(frame(keyEcho, 0, 0, nil))
			readReply(t, c)
			c.Close()
		}
		time.Sleep(time.Minute)
		isMore("after the connections", 0)
	})
}

// TestDecodingIsPartOfTheOrder: a request that cannot be decoded closes the
// connection only after the replies to earlier ones.
func TestDecodingIsPartOfTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{metadataAPI(), {Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			time.Sleep(time.Second)
			return echo(ctx, r)
		}}}})
		c := pipe(t, s)
		c.Write(frame(keyEcho, 0, 7, []byte("first")))
		c.Write(frame(3, 1, 8, []byte{0x7f, 0xff, 0xff, 0xff}))
		if got := correlation(readReply(t, c)); got != 7 {
			t.Errorf("reply to %d, want 7", got)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes after the request that could not be decoded", n)
		}
	})
}
