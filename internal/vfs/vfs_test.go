package vfs_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ponor/internal/vfs"
)

// TestWritevWritesWhatItIsGiven covers sizes around the limits of direct writes,
// cut into parts of any size, and a second call that continues the file.
func TestWritevWritesWhatItIsGiven(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, fs := range []vfs.OS{{}, {Direct: true}} {
		for _, size := range []int{0, 1, 4096, 128<<10 - 1, 128 << 10, 128<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 4095} {
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(rng.Uint32())
			}
			var parts [][]byte
			for rest := want; len(rest) > 0; {
				n := min(len(rest), rng.IntN(200<<10))
				parts = append(parts, rest[:n])
				rest = rest[n:]
			}
			name := filepath.Join(t.TempDir(), "f")
			f, err := fs.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := f.Writev(parts); err != nil {
					t.Fatalf("%+v: write %d bytes: %v", fs, size, err)
				}
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			f.Close()
			got, err := os.ReadFile(name)
			if err != nil || !bytes.Equal(got, append(want, want...)) {
				t.Fatalf("%+v: %d bytes, twice: read back %d other bytes, %v", fs, size, len(got), err)
			}
		}
	}
}

func TestMakeDirs(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	for range 2 { // also where it is
		if err := vfs.MakeDirs(deep + "/"); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := os.Stat(deep); err != nil || !i.IsDir() {
		t.Errorf("there is %v, %v", i, err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, filepath.Join(file, "below")} {
		if err := vfs.MakeDirs(name); err == nil {
			t.Errorf("a directory was made at %s, which is a file or in one", name)
		}
	}
}
