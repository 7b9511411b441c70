package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// scripted is a connection whose peer sends some bytes and then closes.
type scripted struct {
	io.Reader
	written bytes.Buffer
}

func (s *scripted) Write(p []byte) (int, error)      { return s.written.Write(p) }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

// everyAPI serves all keys that kmsg knows, answering with an empty response.
func everyAPI() []rpc.API {
	apis := []rpc.API{echoAPI()}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		apis = append(apis, rpc.API{Key: key, Max: r.MaxVersion(), Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
			return rpc.Response{Body: kmsg.ResponseForKey(r.Key)}
		}})
	}
	return apis
}

// FuzzServe feeds a connection arbitrary bytes: no panic, and every reply is a
// frame to a request that was sent, in order.
func FuzzServe(f *testing.F) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if r := kmsg.RequestForKey(key); r != nil {
			for v := int16(0); v <= r.MaxVersion(); v++ {
				r.SetVersion(v)
				f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, r, 1))
			}
		}
	}
	f.Add(append(frame(keyEcho, 0, 1, []byte("x")), frame(rpc.KeyApiVersions, 99, 2, nil)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	panics := new(syncBuffer)
	s, err := rpc.NewServer(rpc.ServerConfig{
		APIs:   everyAPI(),
		Logger: slog.New(slog.NewTextHandler(panics, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &scripted{Reader: bytes.NewReader(in)}
		s.ServeConn(t.Context(), c)
		if log := panics.String(); log != "" {
			t.Fatal(log)
		}
		checkReplies(t, in, c.written.Bytes())
	})
}

func checkReplies(t *testing.T, in, out []byte) {
	for len(out) > 0 {
		n := 4 + int(binary.BigEndian.Uint32(out))
		if n < 8 || n > len(out) {
			t.Fatalf("reply of %d bytes in %d", n, len(out))
		}
		asked := 4 + int(binary.BigEndian.Uint32(in))
		if !bytes.Equal(in[8:12], out[4:8]) {
			t.Fatalf("reply %x to request %x", out[4:8], in[8:12])
		}
		in, out = in[asked:], out[n:]
	}
}

// FuzzClient feeds a client arbitrary bytes as the reply to a call.
func FuzzClient(f *testing.F) {
	f.Add([]byte{0, 0, 0, 5, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 0, 1, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		client, server := net.Pipe()
		c := rpc.NewClient(client, rpc.ClientConfig{MaxResponse: 1 << 20})
		defer c.Close()
		go func() {
			server.Read(make([]byte, 64))
			server.Write(in)
			server.Close()
		}()
		c.Call(t.Context(), keyEcho, 0, nil)
	})
}
