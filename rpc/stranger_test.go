package rpc_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"ponor/rpc"
)

// A peer that speaks something else only sees its connection end: the log says what it
// is, once, and what to do.
func TestStrangersAreToldInTheLog(t *testing.T) {
	nothing := func(context.Context, *rpc.Request) rpc.Response { return rpc.Response{} }
	kafka, nodes := []rpc.API{{Key: 18, Max: 3, Handle: nothing}}, []rpc.API{{Key: 10001, Raw: true, Handle: nothing}}
	for name, tc := range map[string]struct {
		first string
		apis  []rpc.API
		want  string
	}{
		"TLS":                {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abc", kafka, "security.protocol"},
		"HTTP":               {"GET /metrics HTTP/1.1\r\n\r\n", kafka, "--metrics-listen"},
		"Kafka at the nodes": {"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x00", nodes, "--listen of a broker"},
		"a bad Kafka frame":  {"\x00\x00\x00\x20\x70\x12\x00\x03\x00\x00\x00\x00", kafka, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			s := newServer(t, rpc.ServerConfig{APIs: tc.apis, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for range 2 {
				c := pipe(t, s)
				go func() { _, _ = io.WriteString(c, tc.first) }() // ends with the connection
				_, _ = io.Copy(io.Discard, c)
			}
			s.Close()
			lines := strings.Count(log.String(), "\n")
			if want := min(1, len(tc.want)); lines != want || !strings.Contains(log.String(), tc.want) {
				t.Errorf("%d lines, want %d with %q: %s", lines, want, tc.want, log.String())
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
