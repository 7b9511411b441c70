// Package s3test runs the product against an S3 server in this process. It is a
// module of its own so that the server's dependencies stay out of the product's
// go.mod; 'make test' runs it like the rest.
//
// The server is gofakes3, which is known not to reject a wrong checksum and to
// forget everything with the test. In front of it stands a Server that counts
// requests and makes the faults of a real network and a real store: refusals,
// answers that get lost, connections that break, delay.
package s3test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// bucket is the one that exists.
const bucket = "logs"

// Fault is what happens to requests. Its actions are in the order of the fields.
type Fault struct {
	// Method and Path choose requests; "" is all, Path is a part of the key.
	Method, Path string
	// Times is how many requests it happens to, 0 for all.
	Times int
	// Every lets only each so-manieth request meet it, 0 for all.
	Every int

	// Delay waits before anything else.
	Delay time.Duration
	// Status, with Code, is answered without effect.
	Status int
	Code   string
	// Reset breaks the connection without effect.
	Reset bool
	// ResetAfter breaks the connection once the request has been applied.
	ResetAfter bool
	// SilentAfter applies the request and answers only when the client is gone.
	SilentAfter bool
	// StatusAfter is answered although the request has been applied.
	StatusAfter int

	seen, hit int
}

// Server is an S3 server in this process.
type Server struct {
	// URL is the endpoint.
	URL string

	s3 http.Handler
	mu struct {
		sync.Mutex
		faults []*Fault
		counts map[string]int
		ignore []string
	}
}

// Environment gives this process and its children credentials for any Server
// and keeps the machine's files and roles out. Call it from TestMain.
func Environment() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_ENDPOINT_URL": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// New makes a server with one empty bucket, which whoever serves HTTP by it gives
// its URL.
func New() (*Server, error) {
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		return nil, fmt.Errorf("make bucket: %w", err)
	}
	s := &Server{s3: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	s.mu.counts = map[string]int{}
	return s, nil
}

// Start runs a server with one empty bucket until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := New()
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(s)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.URL = server.URL
	return s
}

// Store is the URL of a store with a prefix.
func (s *Server) Store(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s", bucket, prefix, s.URL)
}

// Add starts a fault; the function it returns ends it. The first that matches a
// request decides about it.
func (s *Server) Add(f Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &f
	s.mu.faults = append(s.mu.faults, p)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, x := range s.mu.faults {
			if x == p {
				s.mu.faults = append(s.mu.faults[:i:i], s.mu.faults[i+1:]...)
				return
			}
		}
	}
}

// Ignore makes the server one that does not know a header.
func (s *Server) Ignore(header string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ignore = append(s.mu.ignore, header)
}

// Counts are the requests so far by kind: "PUT", "GET", "HEAD", "DELETE", "POST",
// and "LIST", which is a GET of the bucket.
func (s *Server) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := map[string]int{}
	for k, v := range s.mu.counts {
		c[k] = v
	}
	return c
}

func (s *Server) match(r *http.Request) Fault {
	kind := r.Method
	if kind == http.MethodGet && strings.Trim(r.URL.Path, "/") == bucket {
		kind = "LIST"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.counts[kind]++
	for _, h := range s.mu.ignore {
		r.Header.Del(h)
	}
	for _, f := range s.mu.faults {
		if f.Method != "" && f.Method != kind || !strings.Contains(r.URL.Path, f.Path) || f.Times > 0 && f.hit >= f.Times {
			continue
		}
		if f.seen++; f.Every > 0 && f.seen%f.Every != 0 {
			continue
		}
		f.hit++
		return *f
	}
	return Fault{}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.match(r)
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
		}
	}
	switch {
	case f.Reset:
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		reset(w)
	case f.Status != 0:
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, f.Status, f.Code)
	case f.ResetAfter:
		s.s3.ServeHTTP(httptest.NewRecorder(), r)
		reset(w)
	case f.SilentAfter:
		s.s3.ServeHTTP(httptest.NewRecorder(), r)
		<-r.Context().Done()
	case f.StatusAfter != 0:
		s.s3.ServeHTTP(httptest.NewRecorder(), r)
		answer(w, f.StatusAfter, "InternalError")
	default:
		s.s3.ServeHTTP(w, r)
	}
}

func answer(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>injected</Message></Error>", code)
}

// reset makes the client see "connection reset by peer".
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
