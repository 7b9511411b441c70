package locallog_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"

	"ponor/internal/crashfs"
	"ponor/locallog"
)

// powerFS is a machine that can lose power at any time, with a crashfs.FS for a
// disk.
type powerFS struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	disk    *crashfs.FS
	crashes int
	held    chan struct{}
	fail    error
	lock    bool
	// syncs counts File.Sync calls on logs.
	syncs int
	// lies picks files and directories whose syncs do nothing.
	lies func(name string) bool
}

func newPowerFS(seed uint64) *powerFS {
	return &powerFS{rnd: rand.New(rand.NewPCG(seed, 3)), disk: crashfs.New()}
}

// boot is the file system as one run of a process sees it: dead after a crash.
func (p *powerFS) boot() locallog.FS {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &booted{p, p.disk}
}

// Crash loses what was not durable, all of it or by chance.
func (p *powerFS) Crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	rnd := p.rnd
	if rnd.IntN(3) == 0 {
		rnd = nil
	}
	p.disk = p.disk.Crash(rnd)
	p.crashes++
	p.lock = false
	p.release()
}

// StopAfter makes the machine stop in the middle of things, n operations on.
func (p *powerFS) StopAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disk.StopAfter(n)
}

// Hold makes syncs of logs wait.
func (p *powerFS) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release ends a Hold.
func (p *powerFS) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
}

func (p *powerFS) release() {
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Fail makes syncs of logs fail; nil ends it.
func (p *powerFS) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// booted is what one run of a process sees.
type booted struct {
	power *powerFS
	disk  *crashfs.FS
}

// lie says whether a sync does nothing.
func (b *booted) lie(name string) bool {
	b.power.mu.Lock()
	defer b.power.mu.Unlock()
	return b.power.lies != nil && b.power.lies(name)
}

func (b *booted) Open(name string, create bool) (locallog.File, error) {
	f, err := b.disk.Open(name)
	if create && errors.Is(err, fs.ErrNotExist) {
		f, err = b.disk.Create(name)
	}
	if err != nil {
		return nil, err
	}
	return &powerFile{f.(*crashfs.File), b, name}, nil
}

func (b *booted) ReadDir(name string) ([]string, error) {
	list, err := b.disk.ReadDir(name)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, err
}

func (b *booted) MkdirAll(name string) error {
	if _, err := b.disk.Stat(name); err == nil || errors.Is(err, crashfs.ErrStopped) {
		return err
	}
	parent := path.Dir(name)
	if _, err := b.disk.Stat(parent); err != nil {
		if err := b.MkdirAll(parent); err != nil {
			return err
		}
		if err := b.disk.SyncDir(path.Dir(parent)); err != nil {
			return err
		}
	}
	return b.disk.Mkdir(name)
}

func (b *booted) Rename(from, to string) error { return b.disk.Rename(from, to) }

func (b *booted) RemoveAll(name string) error {
	list, err := b.disk.ReadDir(name)
	for _, e := range list {
		if err := b.RemoveAll(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	if err == nil || !errors.Is(err, crashfs.ErrStopped) {
		err = b.disk.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (b *booted) SyncDir(name string) error {
	if b.lie(name) {
		return nil
	}
	return b.disk.SyncDir(name)
}

func (b *booted) Lock(string) (io.Closer, error) {
	b.power.mu.Lock()
	defer b.power.mu.Unlock()
	if b.power.lock {
		return nil, errors.New("locked")
	}
	b.power.lock = true
	return unlocker{b}, nil
}

type unlocker struct{ b *booted }

func (u unlocker) Close() error {
	u.b.power.mu.Lock()
	defer u.b.power.mu.Unlock()
	if u.b.disk == u.b.power.disk { // else it ended with the machine
		u.b.power.lock = false
	}
	return nil
}

type powerFile struct {
	*crashfs.File
	b    *booted
	name string
}

func (f *powerFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (f *powerFile) Sync() error {
	p := f.b.power
	isLog := strings.HasSuffix(f.name, ".log")
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil && isLog {
		<-held
	}
	if isLog {
		p.mu.Lock()
		err := p.fail
		if err == nil {
			p.syncs++
		}
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if f.b.lie(f.name) {
		return nil
	}
	return f.File.Sync()
}
