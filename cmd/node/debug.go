package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"
)

// blockRate samples blocking that lasts 0.1 ms or more on average once, which
// costs nothing that can be measured; it is on only with a debug listener.
const blockRate = 100_000

// serveDebug serves net/http/pprof on addr until the returned func is called. It
// is for whoever runs the node: profiles show no records, but anyone who reaches
// the address can slow the node down. Empty addr: nothing.
func serveDebug(ctx context.Context, addr string, log *slog.Logger) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles: %w; choose another --debug-listen", err)
	}
	runtime.SetBlockProfileRate(blockRate)
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("profiles are not served any more", "err", err)
		}
	}()
	log.Info("serving profiles", "url", fmt.Sprintf("http://%s/debug/pprof/", l.Addr()))
	return func() { _ = srv.Close(); <-done }, nil
}
