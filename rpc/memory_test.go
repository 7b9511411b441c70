package rpc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// allocatedBy returns the bytes that f allocates, in all goroutines.
func allocatedBy(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// resident is the process's memory in bytes, 0 where /proc does not tell.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, rss int64
	fmt.Sscan(string(b), &size, &rss)
	return rss * int64(os.Getpagesize())
}

const (
	idleConns  = 10_000
	stuckConns = 100
)

// TestManyConnections: idle connections and such that never read their replies
// are cheap. The clients live in a second process, so that only the server is
// measured and each process needs half of the files.
func TestManyConnections(t *testing.T) {
	if addr := os.Getenv("RPC_TEST_DIAL"); addr != "" {
		holdConnections(t, addr)
		return
	}
	if testing.Short() || rpc.RaceDetector {
		t.Skip("opens 10,100 connections and measures memory")
	}
	if resident() == 0 {
		t.Skip("needs /proc")
	}
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI(), apiVersionsAPI()}})
	addr := listen(t, s)
	debug.FreeOSMemory()
	before := resident()

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManyConnections$", "-test.v")
	cmd.Env = append(os.Environ(), "RPC_TEST_DIAL="+addr)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 1)
	for ready[0] != '!' {
		if _, err := io.ReadFull(out, ready); err != nil {
			t.Fatalf("client process: %v", err)
		}
	}
	// A client is connected, and can write, before the server has accepted.
	for end := time.Now().Add(time.Minute); s.Conns() != idleConns+stuckConns; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections", s.Conns())
		}
	}
	peak := resident() - before
	t.Logf("%d connections cost %d MB, %d bytes each", s.Conns(), peak>>20, peak/int64(s.Conns()))
	if peak > 200<<20 {
		t.Errorf("connections cost %d MB", peak>>20)
	}
	hold.Close()
	io.Copy(io.Discard, out)
	cmd.Wait()
}

// holdConnections is the client process: it opens the connections, says so, and
// keeps them until its standard input ends.
func holdConnections(t *testing.T, addr string) {
	var mu sync.Mutex
	var open []net.Conn
	var group sync.WaitGroup
	dialOne := func() net.Conn {
		nc, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
		if err != nil {
			t.Error(err)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		open = append(open, nc)
		return nc
	}
	hello := kmsg.NewRequestFormatter().AppendRequest(nil, &kmsg.ApiVersionsRequest{}, 0)
	for range 50 {
		group.Go(func() {
			for range idleConns / 50 {
				if nc := dialOne(); nc != nil {
					nc.Write(hello)
					readReply(t, nc)
				}
			}
		})
	}
	group.Wait()
	// Pipelined requests whose replies fill the socket and then the server.
	request := frame(keyEcho, 0, 0, make([]byte, 10<<10))
	for range stuckConns {
		nc := dialOne()
		if nc == nil {
			continue
		}
		nc.(*net.TCPConn).SetReadBuffer(4 << 10)
		group.Go(func() {
			nc.SetWriteDeadline(time.Now().Add(2 * time.Second))
			for {
				if _, err := nc.Write(request); err != nil {
					return // the server has stopped reading
				}
			}
		})
	}
	group.Wait()
	fmt.Fprint(os.Stdout, "!")
	io.Copy(io.Discard, os.Stdin)
	for _, nc := range open {
		nc.Close()
	}
}
