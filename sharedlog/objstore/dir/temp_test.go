package dir_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/objtest"
)

// temps are the temporary files of the owner "node-1".
func temps(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, ".tmp", "node-1"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A second process of one name, which will be refused, does not disturb the first; what
// a crash left behind goes when it is old.
func TestOnlyOldTemporaryFilesAreRemoved(t *testing.T) {
	root := t.TempDir()
	opts := dir.Options{Owner: "node-1"}
	first := objtest.DirAt(t, root, opts)
	for i := range 8 {
		if err := first.PutNew(t.Context(), fmt.Sprint("a/", i), objstore.BytesBody([]byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	objtest.DirAt(t, root, opts)
	for i := range 8 {
		if err := first.PutNew(t.Context(), fmt.Sprint("b/", i), objstore.BytesBody([]byte("x"))); err != nil {
			t.Errorf("after another process of this name has begun: %v", err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, ".tmp", "node-1", "00", "left")
	if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	objtest.DirAt(t, root, opts)
	if files := temps(t, root); len(files) != 1 {
		t.Errorf("a young file: %v are there", files)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	objtest.DirAt(t, root, opts)
	if files := temps(t, root); len(files) != 0 {
		t.Errorf("an old file: %v are there", files)
	}
}
