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
	"ponor/sharedlog/objstore/s3"
)

// storeKinds is in every message about a store URL of a kind that is not there.
const storeKinds = "use dir:///path, s3://bucket/prefix or mem:"

// probeTimeout bounds opening and probing a store.
const probeTimeout = 30 * time.Second

// openStore opens the store that a URL names and probes that it keeps what a
// Bucket promises.
func openStore(ctx context.Context, raw, owner string, log *slog.Logger) (objstore.Bucket, error) {
	b, err := openBucket(ctx, raw, owner)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := objstore.Probe(ctx, b)
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	log.Debug("store probed", "store", b.Kind().URL, "report", fmt.Sprintf("%+v", report))
	for _, w := range storeWarnings(b) {
		log.Warn("store is not set up well", "store", b.Kind().URL, "err", w)
	}
	return b, nil
}

// openBucket opens the store that a URL names.
func openBucket(ctx context.Context, raw, owner string) (objstore.Bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, usagef("store %q: %w", raw, err)
	}
	switch u.Scheme {
	case "mem":
		return mem.New(), nil
	case "dir":
		if err := os.MkdirAll(u.Path, 0o755); err != nil {
			return nil, fmt.Errorf("make store directory: %w", err)
		}
		b, err := dir.New(u.Path, dir.Options{Owner: owner})
		if err != nil {
			return nil, fmt.Errorf("open store %s: %w", raw, err)
		}
		return b, nil
	case "s3":
		if _, err := s3.Parse(raw); err != nil {
			return nil, usagef("%w", err)
		}
		b, err := s3.Open(ctx, raw, s3.Options{})
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	return nil, usagef("store %q: unknown kind; %s", raw, storeKinds)
}

// storeWarnings are what a store says about how it is set up, where it can tell.
func storeWarnings(b objstore.Bucket) []string {
	if w, ok := b.(interface{ Warnings() []string }); ok {
		return w.Warnings()
	}
	return nil
}
