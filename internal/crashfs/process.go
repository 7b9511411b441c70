package crashfs

import (
	"io/fs"
	"sync"

	"ponor/internal/vfs"
)

// Process is one process's view of an FS. It can be killed alone, as kill -9
// does: what it wrote stays visible to others, synced or not.
type Process struct {
	*FS
	mu struct {
		sync.Mutex
		left int // operations until it dies; negative means it never does
	}
	// Skip, if set, makes the operations it says do nothing and succeed: a
	// program that forgot them.
	Skip func(op Op, name string) bool
}

// Process returns a view that dies after n operations, never if n is negative.
func (f *FS) Process(n int) *Process {
	p := &Process{FS: f}
	p.Left(n)
	return p
}

// Left lets the process live for n more operations, for ever if n is negative.
func (p *Process) Left(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.left = n
}

// step says whether an operation happens.
func (p *Process) step(op Op, name string) (skip bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.left == 0 {
		return false, &fs.PathError{Op: string(op), Path: name, Err: ErrStopped}
	}
	p.mu.left--
	return p.Skip != nil && p.Skip(op, name), nil
}

func (p *Process) do(op Op, name string, f func() error) error {
	if skip, err := p.step(op, name); err != nil || skip {
		return err
	}
	return f()
}

// Create implements vfs.FS.
func (p *Process) Create(name string) (vfs.File, error) {
	if _, err := p.step(Create, name); err != nil {
		return nil, err
	}
	return p.wrap(p.FS.Create(name))
}

// Open implements vfs.FS.
func (p *Process) Open(name string) (vfs.File, error) { return p.wrap(p.FS.Open(name)) }

func (p *Process) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &processFile{File: f.(*File), p: p}, nil
}

// Link implements vfs.FS.
func (p *Process) Link(old, new string) error {
	return p.do(Link, new, func() error { return p.FS.Link(old, new) })
}

// Rename implements vfs.FS.
func (p *Process) Rename(old, new string) error {
	return p.do(Rename, new, func() error { return p.FS.Rename(old, new) })
}

// Remove implements vfs.FS.
func (p *Process) Remove(name string) error {
	return p.do(Remove, name, func() error { return p.FS.Remove(name) })
}

// Mkdir implements vfs.FS.
func (p *Process) Mkdir(name string) error {
	return p.do(Mkdir, name, func() error { return p.FS.Mkdir(name) })
}

// SyncDir implements vfs.FS.
func (p *Process) SyncDir(name string) error {
	return p.do(SyncDir, name, func() error { return p.FS.SyncDir(name) })
}

type processFile struct {
	*File
	p *Process
}

// Writev writes part by part, so that a kill can come between.
func (f *processFile) Writev(parts [][]byte) error {
	for _, part := range parts {
		err := f.p.do(Write, f.name, func() error { return f.File.Writev([][]byte{part}) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *processFile) Sync() error { return f.p.do(Sync, f.name, f.File.Sync) }
