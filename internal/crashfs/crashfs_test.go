package crashfs_test

import (
	"errors"
	"io"
	"math/rand/v2"
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
	for seed := range uint64(50) {
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
	if !seen["error"] || !seen[""] || !seen["maybe"] || len(seen) < 5 {
		t.Errorf("outcomes for what was not synced: %v, want all kinds", seen)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
