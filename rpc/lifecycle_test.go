package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/rpc"
)

// TestOverdueConnectionsClose: R6, each limit on virtual time.
func TestOverdueConnectionsClose(t *testing.T) {
	cfg := rpc.ServerConfig{
		APIs: []rpc.API{echoAPI()}, IdleTimeout: time.Minute, HandshakeTimeout: 20 * time.Second,
		ReadStall: 8 * time.Second, WriteStall: 12 * time.Second,
	}
	hello := frame(keyEcho, 0, 0, []byte("hello"))
	for name, test := range map[string]struct {
		do   func(t *testing.T, c net.Conn)
		want time.Duration
	}{
		"silent after connecting": {func(*testing.T, net.Conn) {}, cfg.HandshakeTimeout},
		"idle after a request":    {func(t *testing.T, c net.Conn) { c.Write(hello); readReply(t, c) }, cfg.IdleTimeout},
		"stalled in a head":       {func(_ *testing.T, c net.Conn) { c.Write(hello[:7]) }, cfg.ReadStall},
		"stalled in a body":       {func(_ *testing.T, c net.Conn) { c.Write(hello[:len(hello)-1]) }, cfg.ReadStall},
		"never reads":             {func(_ *testing.T, c net.Conn) { c.Write(hello) }, cfg.WriteStall},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, cfg)
				client, server := net.Pipe()
				start := time.Now()
				var took time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.ServeConn(t.Context(), server)
					took = time.Since(start)
				}()
				test.do(t, client)
				<-done
				if took < test.want || took > test.want+3*time.Second {
					t.Errorf("closed after %v, want %v", took, test.want)
				}
			})
		})
	}
}

// TestBusyIsNotIdle: a request in flight (a long poll) keeps its connection.
func TestBusyIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{IdleTimeout: time.Second, APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			time.Sleep(time.Hour)
			return echo(ctx, r)
		}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		if _, err := c.Call(t.Context(), keyEcho, 0, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestShutdownFinishesWhatWasRead: a request in flight is answered, then the
// connection closes, and no new one is accepted.
func TestShutdownFinishesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			time.Sleep(10 * time.Second)
			return echo(ctx, r)
		}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		idle := pipe(t, s)
		reply := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.Call(t.Context(), keyEcho, 0, nil)
				reply <- err
			}()
		}
		synctest.Wait()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-reply; err != nil {
				t.Errorf("a request that was read: %v", err)
			}
		}
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("idle connection: %v", err)
		}
		if _, err := pipe(t, s).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("new connection: %v", err)
		}
	})
}

func TestShutdownIsCutOffByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			<-ctx.Done()
			return echo(ctx, r)
		}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
		defer c.Close()
		go c.Call(t.Context(), keyEcho, 0, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestLeavingPeerIsServed: what a client sent before it closed is still done,
// but its long polls end after Linger.
func TestLeavingPeerIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, cut atomic.Int32
		s := newServer(t, rpc.ServerConfig{Linger: 2 * time.Second, APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			select {
			case <-time.After(time.Duration(r.Raw[0]) * time.Second):
				done.Add(1)
			case <-ctx.Done():
				cut.Add(1)
			}
			return rpc.Response{Nothing: true}
		}}}})
		c := pipe(t, s)
		start := time.Now()
		for i, seconds := range []byte{0, 1, 60, 0} {
			c.Write(frame(keyEcho, 0, int32(i), []byte{seconds}))
		}
		c.Close()
		for s.Conns() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if done.Load() != 2 || cut.Load() != 1 || time.Since(start) > 3*time.Second {
			t.Errorf("%d done, %d cut after %v", done.Load(), cut.Load(), time.Since(start))
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI()}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	c := dial(t, l.Addr().String())
	if _, err := c.Call(t.Context(), keyEcho, 0, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v", err)
	}
	<-c.Done()
	if s.Conns() != 0 {
		t.Errorf("%d connections are left", s.Conns())
	}
}

func TestMaxConns(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{MaxConns: 1, APIs: []rpc.API{echoAPI()}})
	addr := listen(t, s)
	first := dial(t, addr)
	if _, err := first.Call(t.Context(), keyEcho, 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, addr).Call(t.Context(), keyEcho, 0, nil); !errors.Is(err, rpc.ErrDisconnected) {
		t.Errorf("second connection: %v", err)
	}
	if _, err := first.Call(t.Context(), keyEcho, 0, nil); err != nil {
		t.Errorf("first connection afterwards: %v", err)
	}
}
