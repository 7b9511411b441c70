package objtest

import (
	"testing"

	"ponor/sharedlog/objstore/dir"
)

// Dir is a store in a directory of the test's own, closed when the test ends. A
// store that is not closed still tidies up while the directory is removed, which
// then is not empty and fails the test.
func Dir(tb testing.TB, opts dir.Options) *dir.Bucket {
	tb.Helper()
	return DirAt(tb, tb.TempDir(), opts)
}

// DirAt is Dir in a directory that the caller made with tb.TempDir.
func DirAt(tb testing.TB, root string, opts dir.Options) *dir.Bucket {
	tb.Helper()
	b, err := dir.New(root, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
