package main

import (
	"path/filepath"
	"strings"
	"testing"

	"ponor/sharedlog/objstore/fault"
)

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
