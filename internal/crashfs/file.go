package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"syscall"
)

// File is an open file, always readable and writable.
type File struct {
	fs   *FS
	n    *node
	name string
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.mu.stopped {
		return 0, ErrStopped
	}
	if f.n.dir {
		return 0, syscall.EISDIR
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Writev writes its parts as one operation each, so that a stop can tear it.
func (f *File) Writev(parts [][]byte) error {
	for _, p := range parts {
		if err := f.change(Write, change{off: -1, data: p}); err != nil {
			return err
		}
	}
	return nil
}

// WriteAt implements io.WriterAt as one operation.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if err := f.change(Write, change{off: off, data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Truncate sets the file's size in bytes; what is added is zero.
func (f *File) Truncate(size int64) error { return f.change(Truncate, change{off: size}) }

// change makes a change; a write at -1 appends.
func (f *File) change(op Op, c change) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.stepLocked(op, f.name); err != nil {
		return err
	}
	if f.n.dir {
		return &fs.PathError{Op: string(op), Path: f.name, Err: syscall.EISDIR}
	}
	if op == Write {
		c.data = slices.Clone(c.data) // the caller may reuse it
		if len(c.data) == 0 {
			return nil
		}
	}
	if c.off < 0 {
		c.off = int64(len(f.n.data))
	}
	f.n.do(c)
	return nil
}

// Sync implements vfs.File.
func (f *File) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.stepLocked(Sync, f.name); err != nil {
		if !errors.Is(err, ErrStopped) {
			f.n.poisoned = true
		}
		return err
	}
	f.n.startSync()()
	return nil
}

// StartSync starts to sync the file or directory. What there is now is durable
// once finish was called, what comes between is not: for replays of programs
// whose threads overlap.
func (f *File) StartSync() (finish func()) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	end := f.n.startSync()
	return func() {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		end()
	}
}

// Stat implements vfs.File.
func (f *File) Stat() (fs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return info{path.Base(f.name), int64(len(f.n.data)), f.n}, nil
}

// Close implements io.Closer.
func (f *File) Close() error { return nil }
