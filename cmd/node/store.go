package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/mem"
)

// openStore opens the store that a URL names and probes that it keeps what a
// Bucket promises.
func openStore(ctx context.Context, raw, owner string, log *slog.Logger) (objstore.Bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, usagef("store %q: %w", raw, err)
	}
	var b objstore.Bucket
	switch u.Scheme {
	case "mem":
		b = mem.New()
	case "dir":
		if err := os.MkdirAll(u.Path, 0o755); err != nil {
			return nil, fmt.Errorf("make store directory: %w", err)
		}
		if b, err = dir.New(u.Path, dir.Options{Owner: owner}); err != nil {
			return nil, fmt.Errorf("open store %s: %w", raw, err)
		}
	default:
		return nil, usagef("store %q: unknown kind; use dir:///path or mem:", raw)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	report, err := objstore.Probe(ctx, b)
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("probe store %s: %w", raw, err)
	}
	log.Debug("store probed", "store", raw, "report", fmt.Sprintf("%+v", report))
	return b, nil
}
