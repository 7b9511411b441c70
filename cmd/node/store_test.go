package main

import (
	"strings"
	"testing"
)

func TestStoreThatIsAsSlowAsS3(t *testing.T) {
	for _, c := range []struct {
		url, kind string
		slow      bool
		err       string
	}{
		{url: "mem:", kind: "mem"},
		{url: "mem:?latency=s3", kind: "mem", slow: true},
		{url: "dir://" + t.TempDir() + "?latency=s3", kind: "dir", slow: true},
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
		if k.Name != c.kind || (k.PutsPerSecond > 0) != c.slow || (len(storeWarnings(b)) > 0) != c.slow {
			t.Errorf("%s: kind %+v, warnings %q", c.url, k, storeWarnings(b))
		}
	}
}
