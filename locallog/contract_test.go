package locallog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/logtest"
	"ponor/internal/powerloss"
	"ponor/locallog"
)

// world is a data directory on a machine that can lose power.
type world struct {
	tb   testing.TB
	disk *powerFS
	dir  string

	mu    sync.Mutex
	store *locallog.Store
	old   []*locallog.Store // of runs that crashed
}

func newWorld(tb testing.TB, seed uint64) *world {
	w := &world{tb: tb, disk: newPowerFS(seed), dir: "/data"}
	w.start()
	tb.Cleanup(func() {
		w.disk.Release()
		w.disk.Fail(nil)
		for _, s := range append(w.old, w.store) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = s.Close(ctx)
			cancel()
		}
	})
	return w
}

func (w *world) start() {
	s, err := locallog.New(locallog.Config{Dir: w.dir, FS: w.disk.boot(), CheckpointBytes: 4000})
	if err != nil {
		w.tb.Fatalf("start the store: %v", err)
	}
	w.store = s
}

func (w *world) current() *locallog.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

func (w *world) Open(ctx context.Context, id commitlog.ID, epoch commitlog.Epoch, opts commitlog.Options) (commitlog.Log, error) {
	return w.current().Open(ctx, id, epoch, opts)
}

func (w *world) Remove(ctx context.Context, id commitlog.ID) error {
	return w.current().Remove(ctx, id)
}

func (w *world) Hold()          { w.disk.Hold() }
func (w *world) Release()       { w.disk.Release() }
func (w *world) Fail(err error) { w.disk.Fail(err) }

// Crash cuts the power and boots again.
func (w *world) Crash() {
	w.disk.Crash()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.old = append(w.old, w.store)
	w.start()
}

func (w *world) Corrupt(id commitlog.ID, offset commitlog.Offset) (string, error) {
	return corrupt(w.disk.boot(), filepath.Join(w.dir, id.String()), offset)
}

// corrupt flips a bit near the end of the batch that holds an offset.
func corrupt(fsys locallog.FS, dir string, offset commitlog.Offset) (string, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		at, b, err := findBatch(fsys, filepath.Join(dir, name), offset)
		if err != nil {
			return "", err
		}
		if b == nil {
			continue
		}
		f, err := fsys.Open(filepath.Join(dir, name), false)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte{b[len(b)-3] ^ 4}, at+int64(len(b))-3); err != nil {
			return "", err
		}
		return name, f.Sync()
	}
	return "", fmt.Errorf("no batch holds offset %d", offset)
}

func findBatch(fsys locallog.FS, name string, offset commitlog.Offset) (int64, commitlog.Batch, error) {
	rest := content(fsys, name)
	for at := int64(0); len(rest) > 0; {
		b, next, err := commitlog.SplitBatch(rest)
		if err != nil {
			return 0, nil, err
		}
		if b.BaseOffset() <= offset && offset <= b.LastOffset() {
			return at, b, nil
		}
		at, rest = at+int64(len(b)), next
	}
	return 0, nil, nil
}

// content reads a whole file, nil if it is not there.
func content(fsys locallog.FS, name string) []byte {
	f, err := fsys.Open(name, false)
	if err != nil {
		return nil
	}
	defer f.Close()
	n, _ := f.Size()
	b := make([]byte, n)
	_, _ = f.ReadAt(b, 0)
	return b
}

func TestContractUnderPowerLoss(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World { return newWorld(tb, 1) })
}

func TestHistoriesUnderPowerLoss(t *testing.T) {
	first, n := powerloss.Seeds(60)
	crashes := 0
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			logtest.History(t, w, seed, 200)
			crashes += w.disk.crashes
		})
	}
	t.Logf("%d power cuts in %d histories of a local log", crashes, n)
}

// A store that forgot to sync would be a store whose syncs do nothing: the
// histories notice that, so they would notice the store.
func TestHistoriesNoticeSyncsThatDoNothing(t *testing.T) {
	for name, lie := range map[string]func(*powerFS){
		"logs":        func(p *powerFS) { p.lies = func(name string) bool { return strings.HasSuffix(name, ".log") } },
		"checkpoints": func(p *powerFS) { p.lies = func(name string) bool { return strings.Contains(name, "checkpoint") } },
		"directories": func(p *powerFS) { p.lies = func(name string) bool { return strings.HasSuffix(name, "-3") } },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				w := newWorld(t, seed)
				lie(w.disk)
				r := &recorder{TB: t}
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.tb = r
					logtest.History(r, w, seed, 200)
				}()
				<-done
				if r.failed.Load() {
					return
				}
			}
			t.Error("twenty histories did not notice")
		})
	}
}

// recorder is a testing.TB whose failures do not fail the test that runs it.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Failed() bool          { return r.failed.Load() }
func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Fatal(...any)          { r.failed.Store(true); runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed.Store(true); runtime.Goexit() }

// In a bubble a mutex held across I/O or a leaked goroutine would show.
func TestContractOnVirtualTime(t *testing.T) {
	for _, c := range logtest.Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, newWorld(t, 2)) })
		})
	}
}

// files is a data directory on the real file system.
type files struct {
	*locallog.Store
	dir string
}

// hasty is the real file system without its slow syncs; what syncs are for is
// tested on powerFS.
type hasty struct{ locallog.OS }

type hastyFile struct{ locallog.File }

func (h hasty) Open(name string, create bool) (locallog.File, error) {
	f, err := h.OS.Open(name, create)
	return hastyFile{f}, err
}
func (hasty) SyncDir(string) error { return nil }
func (hastyFile) Sync() error      { return nil }

func (f *files) Corrupt(id commitlog.ID, offset commitlog.Offset) (string, error) {
	return corrupt(locallog.OS{}, filepath.Join(f.dir, id.String()), offset)
}

func TestContractOnFiles(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World {
		dir := tb.TempDir()
		s, err := locallog.New(locallog.Config{Dir: dir, FS: hasty{}})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil && !errors.Is(err, commitlog.ErrFenced) {
				tb.Errorf("close the store: %v", err)
			}
		})
		return &files{s, dir}
	})
}
