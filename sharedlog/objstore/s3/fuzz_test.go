package s3_test

import (
	"strings"
	"testing"

	"ponor/sharedlog/objstore/s3"
)

// FuzzParse: any URL is read or refused without panic, what is read comes back
// from its own text, and no secret ever does.
func FuzzParse(f *testing.F) {
	for _, raw := range []string{
		"s3://bucket", "s3://bucket/a/b?region=eu-west-1", "s3://b.c/p?endpoint=http://127.0.0.1:9000&path-style=false", "s3://id:secret@b/x",
		"s3:///x", "s3://b/../x", "s3://b/%2e%2e", "s3://b/a%20b", "s3://b?endpoint=http://[::1]:1/%3f%26", "s3://b#x", "s3://b?region=a%26b&region=c", "",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := s3.Parse(raw)
		if err != nil {
			if !strings.Contains(err.Error(), "store") {
				t.Errorf("%q does not say what it is about", err)
			}
			return
		}
		if again, err := s3.Parse(l.String()); err != nil || again != l {
			t.Errorf("%q is %+v, written %q, read as %+v, %v", raw, l, l.String(), again, err)
		}
	})
}
