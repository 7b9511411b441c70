package main

import (
	"context"
	"errors"
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

const (
	// probeTimeout bounds one probe of a store.
	probeTimeout = 30 * time.Second
	// startPatience is how long a starting node waits for a store in trouble: a
	// cluster that comes back together with its store must not have to be
	// started twice.
	startPatience = 2 * time.Minute
	// checkPatience is the same for a person at a terminal.
	checkPatience = 3 * time.Second
)

// openStore opens the store that a URL names and probes that it keeps what a
// Bucket promises.
func openStore(ctx context.Context, raw, owner string, log *slog.Logger) (objstore.Bucket, error) {
	b, err := openBucket(ctx, raw, owner)
	if err != nil {
		return nil, err
	}
	report, err := probeStore(ctx, b, startPatience, func(err error) {
		log.Warn("store does not answer as it should; trying again", "store", b.Kind().URL, "err", err)
	})
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

// probeStore probes until the store proves fit or unfit, or patience ends. An
// outage and a 503 say nothing about either; trouble is told about each.
func probeStore(ctx context.Context, b objstore.Bucket, patience time.Duration, trouble func(error)) (objstore.Report, error) {
	var report objstore.Report
	err := insist(ctx, patience, func() (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		var err error
		report, err = objstore.Probe(attempt, b)
		return err == nil || errors.Is(err, objstore.ErrUnfit) || errors.Is(err, objstore.ErrRefused) || errors.Is(err, objstore.ErrUndurable), err
	}, trouble)
	return report, err
}

// insist tries until an outcome is final or patience ends, at growing intervals; trouble
// is told why it goes on.
func insist(ctx context.Context, patience time.Duration, try func() (final bool, err error), trouble func(error)) error {
	end := time.Now().Add(patience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		final, err := try()
		if final || time.Now().After(end) {
			return err
		}
		trouble(err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// makeStore makes the directory of a store that is one, for those who may begin a
// store: to all others one that is not there is a mistake, or not mounted yet.
func makeStore(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "dir" || u.Host != "" || u.Path == "" {
		return nil //nolint:nilerr // openBucket says it
	}
	if err := os.MkdirAll(u.Path, 0o755); err != nil {
		return fmt.Errorf("make store directory: %w", err)
	}
	return nil
}

// awaitStore waits a while for the directory of a store, as long as it may not be
// mounted yet.
func awaitStore(ctx context.Context, raw string, patience time.Duration, log *slog.Logger) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "dir" {
		return
	}
	_ = insist(ctx, patience, func() (bool, error) { // who opens the store says it
		_, err := os.Stat(u.Path)
		return !errors.Is(err, os.ErrNotExist), err
	}, func(error) {
		log.Warn("the store's directory is not there; is the path right, should something be mounted there? Trying again", "store", raw)
	})
}

// openBucket opens the store that a URL names, which must be there.
func openBucket(ctx context.Context, raw, owner string) (objstore.Bucket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, usagef("store %q: %w", raw, err)
	}
	switch u.Scheme {
	case "mem":
		return worsened(u, mem.New())
	case "dir":
		if u.Host != "" || u.Path == "" {
			return nil, usagef("store %q: write dir:///path, with three slashes: %q would be taken for a host", raw, u.Host)
		}
		if _, err := os.Stat(u.Path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open store %s: %w; the first controller of a cluster makes the directory at its first start; is the path right, should something be mounted there?", raw, err)
		} else if err != nil {
			return nil, fmt.Errorf("open store %s: %w; is the path right, should something be mounted there?", raw, err)
		}
		b, err := dir.New(u.Path, dir.Options{Owner: owner})
		if err != nil {
			return nil, fmt.Errorf("open store %s: %w", raw, err)
		}
		return worsened(u, b)
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
