package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"ponor/cmd/node/process"
	"ponor/internal/metrics"
)

// listenMetrics opens the port of --metrics-listen; nil if addr is empty.
func listenMetrics(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w; choose another --metrics-listen", err)
	}
	return l, nil
}

// serveMetrics serves a node's metrics and probes on l until the returned func
// is called. A nil l serves nothing.
func serveMetrics(l net.Listener, n *process.Node, log *slog.Logger) (stop func()) {
	if l == nil {
		return func() {}
	}
	srv := &http.Server{Handler: metricsHandler(n), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("metrics are not served any more", "err", err)
		}
	}()
	log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	return func() { _ = srv.Close(); <-done }
}

// metricsHandler answers a scrape, "are you alive" and "may I send clients".
func metricsHandler(n *process.Node) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var page bytes.Buffer
		if err := n.WriteMetrics(&page); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = w.Write(page.Bytes())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // a node that cannot go on ends its process
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := n.Unready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}
