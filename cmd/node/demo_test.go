package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// safeBuffer may be read while others write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *safeBuffer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}

// What the nodes of a demo say of each other's end is nothing to be warned of.
func TestDemoEndsWithoutAWord(t *testing.T) {
	out, in := io.Pipe()
	var errOut safeBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"demo", "--dir", t.TempDir()}, strings.NewReader(""), in, &errOut)
		_ = in.Close()
	}()
	said := ""
	for b := make([]byte, 1024); !strings.Contains(said, "Ctrl-C ends it."); {
		n, err := out.Read(b)
		if said += string(b[:n]); err != nil {
			t.Fatalf("exit %d after %q: %s", <-ended, said, errOut.String())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	errOut.reset() // a slow machine may have had elections
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exitOK || errOut.String() != "" {
		t.Errorf("exit %d: %s", code, errOut.String())
	}
}
