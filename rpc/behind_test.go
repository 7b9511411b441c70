package rpc_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ponor/rpc"
)

// putOff is an API whose answer waits for what comes behind it, for an hour at most, and
// says what that was. Beside it there is the echo.
func putOff(served func(rpc.Served)) rpc.ServerConfig {
	return rpc.ServerConfig{OnReply: served, APIs: []rpc.API{echoAPI(), {Key: keyEcho + 1, Raw: true, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		begun, said := time.Now(), "late"
		select {
		case <-r.Behind():
			said = "next"
			if r.Last() {
				said = "last"
			}
		case <-time.After(time.Hour):
		}
		return rpc.Response{Buffers: [][]byte{[]byte(said)}, Held: time.Since(begun)}
	}}}}
}

// isReply checks the body of the next reply.
func isReply(t *testing.T, c interface{ Read([]byte) (int, error) }, want string) {
	t.Helper()
	if got := readReply(t, c); !bytes.HasSuffix(got, []byte(want)) {
		t.Errorf("reply is %q, want %q", got, want)
	}
}

// The next request is seen with its first byte, also if it came before the handler asked.
func TestBehindIsTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		c := pipe(t, newServer(t, putOff(nil)))
		for range 3 {
			c.Write(frame(keyEcho+1, 0, 1, nil))
			synctest.Wait()
			next := frame(keyEcho, 0, 2, []byte("echo"))
			c.Write(next[:1])
			isReply(t, c, "next")
			c.Write(next[1:])
			isReply(t, c, "echo")
			c.Write(append(frame(keyEcho+1, 0, 3, nil), next...))
			isReply(t, c, "next")
			isReply(t, c, "echo")
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %v", took)
		}
		c.Write(frame(keyEcho+1, 0, 1, nil))
		isReply(t, c, "late")
	})
}

// Nothing comes behind on a connection that its peer closed, or whose server drains: what
// is put off holds up neither.
func TestBehindEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, putOff(nil))
		begun := time.Now()
		left := pipe(t, s)
		left.Write(frame(keyEcho+1, 0, 1, nil))
		synctest.Wait()
		left.Close()
		synctest.Wait()
		if n := s.Conns(); n != 0 {
			t.Errorf("%d connections are open after the peer closed its own", n)
		}
		stays := pipe(t, s)
		stays.Write(frame(keyEcho+1, 0, 1, nil))
		synctest.Wait()
		down := make(chan error)
		go func() { down <- s.Shutdown(t.Context()) }()
		isReply(t, stays, "last")
		if err := <-down; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A hold is not in the times that are measured.
func TestAHoldIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := make(chan rpc.Served, 1)
		c := pipe(t, newServer(t, putOff(func(s rpc.Served) { served <- s })))
		c.Write(frame(keyEcho+1, 0, 1, nil))
		isReply(t, c, "late")
		if s := <-served; s.Queued+s.Handled+s.Written != 0 {
			t.Errorf("an answer that was there at once and held for an hour took %v", s)
		}
	})
}
