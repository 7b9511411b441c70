package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/sharedlog/objstore/fault"
)

// Only a node that may begin a cluster makes a store: for others a path that is not
// there is wrong, or not mounted yet.
func TestOnlyTheFirstNodeMakesAStore(t *testing.T) {
	root := t.TempDir()
	for data, made := range map[string]bool{"new": true, "old": false} {
		set := settings{Store: "dir://" + filepath.Join(root, data, "store"), DataDir: filepath.Join(root, "data-"+data), Roles: "broker,controller"}
		if !made {
			if err := os.MkdirAll(filepath.Join(set.DataDir, "metadata"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		b, err := startStore(ctx, set, slog.New(&cancelling{slog.DiscardHandler, cancel}))
		if made {
			if err != nil {
				t.Fatal(err)
			}
			_ = b.Close()
			continue
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v, want that the directory is not there", err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a node with metadata has made a directory: %v", err)
	}
}

// cancelling ends a context at the first line that is logged.
type cancelling struct {
	slog.Handler
	cancel context.CancelFunc
}

func (c *cancelling) Enabled(context.Context, slog.Level) bool { return true }

func (c *cancelling) Handle(context.Context, slog.Record) error {
	c.cancel()
	return nil
}

func TestStoreThatIsWorseOnPurpose(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults.json")
	if err := fault.WriteScript(faults, fault.Script{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url, kind string
		slow      bool
		warned    bool
		err       string
	}{
		{url: "mem:", kind: "mem"},
		{url: "mem:?latency=s3", kind: "mem", slow: true},
		{url: "dir://" + t.TempDir() + "?latency=s3", kind: "dir", slow: true},
		{url: "mem:?faults=" + faults, kind: "mem", warned: true},
		{url: "mem:?faults=/no/such/file", err: "no such file"},
		{url: "mem:?faults=f", err: "latency=s3"},
		{url: "mem:?latency=s3&faults=" + faults, err: "do not go together"},
		{url: "mem:?latency=50ms", err: "latency=s3"},
		{url: "dir://" + t.TempDir() + "?latencies=s3", err: "latency=s3"},
	} {
		b, err := openBucket(t.Context(), c.url, "test")
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want one that says %q", c.url, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		k := b.Kind()
		defer b.Close()
		if k.Name != c.kind || (k.PutsPerSecond > 0) != c.slow || (len(storeWarnings(b)) > 0) != (c.slow || c.warned) {
			t.Errorf("%s: kind %+v, warnings %q", c.url, k, storeWarnings(b))
		}
	}
}
