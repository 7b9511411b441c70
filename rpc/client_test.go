package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

func TestClientPipelines(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI(), metadataAPI()}})
	c := dial(t, listen(t, s))
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d-%d", i, j)
				if got, err := c.Call(t.Context(), keyEcho, 1, []byte(want)); string(got) != want || err != nil {
					t.Errorf("%s: %q, %v", want, got, err)
				}
				req := kmsg.NewPtrMetadataRequest()
				req.Version = int16(j % 14)
				req.Topics = make([]kmsg.MetadataRequestTopic, i)
				for k := range req.Topics {
					req.Topics[k].Topic = kmsg.StringPtr("t")
				}
				got, err := c.Do(t.Context(), req)
				if err != nil {
					t.Errorf("metadata v%d: %v", req.Version, err)
				} else if n := len(got.(*kmsg.MetadataResponse).Topics); n != i {
					t.Errorf("metadata v%d: %d topics, want %d", req.Version, n, i)
				}
			}
		})
	}
	calls.Wait()
}

// TestClientCancel: a call that is given up leaves the connection usable, and
// its late reply goes to nobody.
func TestClientCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
			time.Sleep(time.Duration(r.Raw[0]) * time.Second)
			return echo(ctx, r)
		}}}})
		c := rpc.NewClient(pipe(t, s), rpc.ClientConfig{MaxInflight: 2})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, keyEcho, 0, []byte{30}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first call: %v", err)
		}
		for i := range 5 {
			if got, err := c.Call(t.Context(), keyEcho, 0, []byte{0, byte(i)}); err != nil || got[1] != byte(i) {
				t.Errorf("call %d afterwards: %x, %v", i, got, err)
			}
		}
	})
}

// TestClientSlots: calls beyond MaxInflight wait and can be given up there.
func TestClientSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server) // never answers
		c := rpc.NewClient(client, rpc.ClientConfig{MaxInflight: 2})
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Call(ctx, keyEcho, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		c.Close()
		server.Close()
		if _, err := c.Call(t.Context(), keyEcho, 0, nil); !errors.Is(err, rpc.ErrClientClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestClientDisconnect(t *testing.T) {
	reply := func(correlation, size int32, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(size))
		b = binary.BigEndian.AppendUint32(b, uint32(correlation))
		return append(b, rest...)
	}
	for name, answer := range map[string][]byte{
		"closed":                  nil,
		"another correlation id":  reply(17, 5, 0),
		"too large":               reply(0, 1<<30),
		"too short":               reply(0, 3),
		"cut off":                 reply(0, 100, 0),
		"header tags cut off":     reply(0, 5, 3),
		"a reply without request": append(reply(0, 5, 0), reply(1, 5, 0)...),
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			c := rpc.NewClient(client, rpc.ClientConfig{MaxResponse: 1 << 20})
			defer c.Close()
			go func() {
				server.Read(make([]byte, 100))
				server.Write(answer)
				server.Close()
			}()
			_, err := c.Call(t.Context(), keyEcho, 0, nil)
			if name == "a reply without request" {
				<-c.Done()
				err = c.Err()
			}
			if !errors.Is(err, rpc.ErrDisconnected) {
				t.Errorf("call: %v", err)
			}
			<-c.Done()
		})
	}
}

func TestDialFails(t *testing.T) {
	_, err := rpc.Dial(t.Context(), func(context.Context, string, string) (net.Conn, error) {
		return nil, io.ErrUnexpectedEOF
	}, "nowhere:1", rpc.ClientConfig{})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestClientLargeCall(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{echoAPI()}})
	piped := rpc.NewClient(pipe(t, s), rpc.ClientConfig{})
	defer piped.Close()
	body := bytes.Repeat([]byte("0123456789abcdef"), 400_000)
	for name, c := range map[string]*rpc.Client{"tcp": dial(t, listen(t, s)), "pipe": piped} {
		if got, err := c.Call(t.Context(), keyEcho, 0, body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestClientStuckServer: a server that does not read ends the connection.
func TestClientStuckServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		c := rpc.NewClient(client, rpc.ClientConfig{WriteStall: 3 * time.Second})
		defer c.Close()
		start := time.Now()
		if _, err := c.Call(t.Context(), keyEcho, 0, nil); !errors.Is(err, rpc.ErrDisconnected) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
