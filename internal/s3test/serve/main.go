// Serve is an S3 server in memory as a process of its own, for tests that are not
// in Go: it prints the URL of a store, with %s in place of a name that each
// cluster chooses, and serves until it is killed or its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ponor/internal/s3test"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve S3:", err)
		stop()
		os.Exit(1)
	}
}

func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := s3test.New()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.URL = "http://" + l.Addr().String()
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	over := make(chan struct{})
	go func() { // ends with the process
		defer close(over)
		_, _ = io.Copy(io.Discard, in)
	}()
	done := make(chan error, 1)
	go func() { done <- web.Serve(l) }()
	fmt.Fprintln(out, s.Store("%s"))
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-over:
	}
	_ = web.Close()
	<-done
	return nil
}
