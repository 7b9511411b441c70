package locallog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ponor/internal/vfs"
)

// FS is what a Store asks of a file system, small enough that a test can stand
// one under it that loses everything not synced. What it must not assume: data
// survives only after File.Sync, a name only after SyncDir of its directory.
type FS interface {
	// Open opens a file for reading and writing; create makes it if missing.
	// A missing file gives an error that is fs.ErrNotExist.
	Open(name string, create bool) (File, error)
	// ReadDir lists the names in a directory, sorted.
	ReadDir(name string) ([]string, error)
	// MkdirAll makes a directory and its parents. Those above it are durable then,
	// the directory itself once SyncDir of its parent returned.
	MkdirAll(name string) error
	// Rename replaces the target.
	Rename(from, to string) error
	// RemoveAll deletes a file or tree; one that is missing is no error.
	RemoveAll(name string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock that ends with Close or the process, and
	// fails at once if somebody has it.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt may run beside everything else; the rest is
// called by one goroutine at a time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes content and size durable. After an error nothing is known of
	// what was written since the last one that succeeded.
	Sync() error
}

// OS is the operating system's file system.
type OS struct{}

type osFile struct{ *os.File }

// Size implements File.
func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

// Open implements FS.
func (OS) Open(name string, create bool) (File, error) {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// MkdirAll implements FS.
func (OS) MkdirAll(name string) error { return vfs.MakeDirs(name) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Lock implements FS.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: another process uses this directory: %w", name, err)
	}
	return f, nil
}

// readFile reads a whole small file.
func readFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// replaceFile writes a small file so that after a crash either the old or the
// new content is there, and the new one once it returns.
func replaceFile(fsys FS, name string, content []byte) error {
	tmp := name + ".tmp"
	if err := fsys.RemoveAll(tmp); err != nil {
		return err
	}
	f, err := fsys.Open(tmp, true)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	return err
}
