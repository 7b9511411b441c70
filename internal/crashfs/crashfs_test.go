package crashfs_test

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"ponor/internal/crashfs"
)

func write(t *testing.T, f *crashfs.FS, name, data string, sync bool) {
	t.Helper()
	h, err := f.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Writev([][]byte{[]byte(data)}); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := h.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func read(f *crashfs.FS, name string) string {
	h, err := f.Open(name)
	if err != nil {
		return "error"
	}
	p := make([]byte, 100)
	n, err := h.ReadAt(p, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "error"
	}
	return string(p[:n])
}

func TestOnlySyncedContentUnderSyncedNamesSurvives(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/both", "x", true)
	write(t, f, "/name", "x", false)
	must(t, f.Mkdir("/dir"))
	must(t, f.SyncDir("/"))
	write(t, f, "/content", "x", true)
	write(t, f, "/dir/deep", "x", true)
	must(t, f.Link("/both", "/dir/second"))
	g := f.Crash(nil)
	for name, want := range map[string]string{
		"/both": "x", "/name": "", "/content": "error", "/dir/deep": "error", "/dir/second": "error",
	} {
		if got := read(g, name); got != want {
			t.Errorf("%s after the crash: %q, want %q", name, got, want)
		}
	}
	if got := read(f, "/both"); got != "error" {
		t.Errorf("the machine goes on after the crash: %q", got)
	}
	g = g.Crash(nil)
	if got := read(g, "/both"); got != "x" {
		t.Errorf("after the second crash: %q", got)
	}
}

func TestRemovedNamesComeBackUntilSynced(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "x", true)
	must(t, f.SyncDir("/"))
	must(t, f.Remove("/a"))
	if got := read(f.Crash(nil), "/a"); got != "x" {
		t.Errorf("after the crash: %q", got)
	}
}

func TestAFailedSyncLosesWhatWasDirtyForGood(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "x", false)
	must(t, f.SyncDir("/"))
	f.Hook(func(op crashfs.Op, _ string) error {
		if op == crashfs.Sync {
			return syscall.EIO
		}
		return nil
	})
	h, err := f.Open("/a")
	must(t, err)
	if err := h.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	f.Hook(nil)
	must(t, h.Sync()) // reported once
	if got := read(f.Crash(nil), "/a"); got != "" {
		t.Errorf("after the crash: %q", got)
	}
}

func TestRandomCrashKeepsAtLeastWhatWasSynced(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		f := crashfs.New()
		write(t, f, "/a", "safe", true)
		must(t, f.SyncDir("/"))
		write(t, f, "/b", "maybe", false)
		g := f.Crash(rand.New(rand.NewPCG(seed, 0)))
		if got := read(g, "/a"); got != "safe" {
			t.Fatalf("seed %d: %q", seed, got)
		}
		seen[read(g, "/b")] = true
	}
	if !seen["error"] || !seen[""] || !seen["maybe"] || !seen["\x00\x00\x00\x00\x00"] || len(seen) != 4 {
		t.Errorf("outcomes for what was not synced: %v, want all kinds", seen)
	}
}

// Of writes that were not synced each sector is as it was after any of them, on
// top of what was synced.
func TestRandomCrashTearsWritesAtSectors(t *testing.T) {
	old, first, second := strings.Repeat("o", 1536), strings.Repeat("1", 1024), strings.Repeat("2", 1024)
	seen := map[string]bool{}
	for seed := range uint64(5000) {
		f := crashfs.New()
		write(t, f, "/a", old, true)
		must(t, f.SyncDir("/"))
		v, err := f.Open("/a")
		must(t, err)
		h := v.(*crashfs.File)
		_, err = h.WriteAt([]byte(first), 0)
		must(t, err)
		_, err = h.WriteAt([]byte(second), 512)
		must(t, err)
		got := readAll(t, f.AfterCrash(rand.New(rand.NewPCG(seed, 0))), "/a")
		if len(got) != len(old) {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(got), len(old))
		}
		sectors := ""
		for at := 0; at < len(got); at += 512 {
			if got[at:at+512] != strings.Repeat(got[at:at+1], 512) {
				t.Fatalf("seed %d: the sector at %d is mixed", seed, at)
			}
			sectors += got[at : at+1]
		}
		seen[sectors] = true
	}
	for _, a := range "o1" {
		for _, b := range "o12" {
			for _, c := range "o2" {
				if s := string([]rune{a, b, c}); !seen[s] {
					t.Errorf("sectors %s never survived", s)
				}
			}
		}
	}
}

// A file that grew by one write may end at any sector in it, not elsewhere.
func TestRandomCrashEndsFilesAtSectors(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(1000) {
		f := crashfs.New()
		write(t, f, "/a", "old", true)
		must(t, f.SyncDir("/"))
		v, err := f.Open("/a")
		must(t, err)
		must(t, v.Writev([][]byte{make([]byte, 1200)}))
		seen[len(readAll(t, f.AfterCrash(rand.New(rand.NewPCG(seed, 0))), "/a"))] = true
	}
	if want := (map[int]bool{3: true, 512: true, 1024: true, 1203: true}); !maps.Equal(seen, want) {
		t.Errorf("sizes are %v, want %v", seen, want)
	}
}

func TestTruncatedContentComesBackUntilSynced(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "content", true)
	must(t, f.SyncDir("/"))
	v, err := f.Open("/a")
	must(t, err)
	h := v.(*crashfs.File)
	must(t, h.Truncate(3))
	if got := read(f.AfterCrash(nil), "/a"); got != "content" {
		t.Errorf("before the sync: %q", got)
	}
	must(t, h.Sync())
	must(t, h.Truncate(5))
	must(t, h.Sync())
	if got := read(f.AfterCrash(nil), "/a"); got != "con\x00\x00" {
		t.Errorf("after the syncs: %q", got)
	}
}

// A sync makes durable what there was when it started, once it has ended.
func TestASyncCoversWhatCameBeforeIt(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "1", false)
	v, err := f.Open("/a")
	must(t, err)
	d, err := f.Open("/")
	must(t, err)
	h := v.(*crashfs.File)
	endDir, end := d.(*crashfs.File).StartSync(), h.StartSync()
	must(t, h.Writev([][]byte{[]byte("2")}))
	write(t, f, "/b", "", true)
	if got := read(f.AfterCrash(nil), "/a"); got != "error" {
		t.Errorf("before the end of the sync: %q", got)
	}
	endDir()
	end()
	after := f.AfterCrash(nil)
	if got := read(after, "/a"); got != "1" {
		t.Errorf("after the end of the sync: %q", got)
	}
	if got := read(after, "/b"); got != "error" {
		t.Errorf("a name that came after the start of the sync: %q", got)
	}
}

func readAll(t *testing.T, f *crashfs.FS, name string) string {
	t.Helper()
	h, err := f.Open(name)
	must(t, err)
	i, err := h.Stat()
	must(t, err)
	p := make([]byte, i.Size())
	_, err = h.ReadAt(p, 0)
	must(t, err)
	return string(p)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
