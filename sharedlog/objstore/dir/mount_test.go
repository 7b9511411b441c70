package dir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/objtest"
)

// A store that is unmounted under a running process leaves its empty mount
// point behind. What is written there is lost with the next mount.
func TestNothingIsWrittenIntoAnEmptyMountPoint(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	b := objtest.DirAt(t, root, dir.Options{})
	if _, err := objstore.Claim(t.Context(), b, "cluster"); err != nil {
		t.Fatal(err)
	}
	put := func(key string) error { return b.PutNew(t.Context(), key, objstore.BytesBody([]byte("x"))) }
	if err := put("wal/1-1/0/0"); err != nil {
		t.Fatal(err)
	}
	b.Close() // nothing goes on in the background while the directory goes away
	away := root + ".away"
	if err := errors.Join(os.Rename(root, away), os.Mkdir(root, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"wal/1-1/0/1", "wal/1-1/0/1", "wal/2-2/0/0"} {
		if err := put(key); err == nil {
			t.Errorf("%s was written into the empty mount point", key)
		}
	}
	if err := errors.Join(os.RemoveAll(root), os.Rename(away, root)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"wal/1-1/0/1", "wal/2-2/0/0"} {
		if err := put(key); err != nil {
			t.Errorf("with the store back, %s: %v", key, err)
		}
	}
}
