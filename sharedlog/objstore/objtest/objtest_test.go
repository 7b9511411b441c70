package objtest_test

import (
	"testing"

	"ponor/internal/crashfs"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/objstore/objtest"
)

func TestMem(t *testing.T) {
	objtest.Run(t, objtest.Options{Open: func(*testing.T) objstore.Bucket { return mem.New() }})
}

func TestDecorators(t *testing.T) {
	objtest.Run(t, objtest.Options{Rounds: 10, Open: func(*testing.T) objstore.Bucket {
		return counted.New(fault.New(mem.New(), 1))
	}})
}

func TestDir(t *testing.T) {
	for name, opts := range map[string]dir.Options{"safe order": {}, "unnamed": {Unnamed: true}} {
		t.Run(name, func(t *testing.T) {
			open := func(t *testing.T, root string) objstore.Bucket {
				return objtest.DirAt(t, root, opts)
			}
			objtest.Run(t, objtest.Options{
				Open:   func(t *testing.T) objstore.Bucket { return open(t, t.TempDir()) },
				Reopen: func(t *testing.T, b objstore.Bucket) objstore.Bucket { return open(t, b.Kind().URL[len("dir:"):]) },
			})
		})
	}
}

func TestDirOnCrashfs(t *testing.T) {
	objtest.Run(t, objtest.Options{Rounds: 10, Open: func(t *testing.T) objstore.Bucket {
		b, err := dir.New("/", dir.Options{FS: crashfs.New()})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}})
}
