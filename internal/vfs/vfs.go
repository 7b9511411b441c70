// Package vfs is the part of a file system that storage code needs, as an
// interface, so that tests can put a file system under it that loses whatever
// was not synced (package crashfs). It promises no more than POSIX does:
//
//   - What was written to a File is durable only after its Sync returned nil.
//   - A name (created, linked, renamed, removed) is durable only after SyncDir
//     of its directory returned nil, and a directory only if its own name is.
//   - After a Sync failed, nothing is known about the file's content, and a
//     later Sync that succeeds proves nothing.
//
// Errors are those of package os: errors.Is with fs.ErrExist, fs.ErrNotExist
// and syscall.Errno values works.
package vfs

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a file system. Names are slash-separated paths. All methods are safe
// for concurrent use.
type FS interface {
	// Create makes a new, empty file open for writing; fs.ErrExist if the name
	// is taken.
	Create(name string) (File, error)
	// Open opens a file for reading (and for Sync).
	Open(name string) (File, error)
	// Link gives the file a second name; fs.ErrExist if that is taken.
	Link(old, new string) error
	// Rename moves a file, replacing what has the new name.
	Rename(old, new string) error
	// Remove removes a name of a file, or an empty directory.
	Remove(name string) error
	// Mkdir makes a directory; fs.ErrExist if the name is taken.
	Mkdir(name string) error
	// ReadDir lists a directory by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes what has the name.
	Stat(name string) (fs.FileInfo, error)
	// SameFile says whether two descriptions are of one file.
	SameFile(a, b fs.FileInfo) bool
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Closer
	// Writev appends all parts, in order, or returns an error.
	Writev(parts [][]byte) error
	// Sync makes the content durable.
	Sync() error
	// Stat describes the file.
	Stat() (fs.FileInfo, error)
}

// Unnamed is the optional power to write a file before it has any name
// (O_TMPFILE): it cannot be left behind by a crash.
type Unnamed interface {
	// CreateUnnamed opens a new file without a name in the file system of dir.
	CreateUnnamed(dir string) (File, error)
	// LinkUnnamed names it; fs.ErrExist if the name is taken.
	LinkUnnamed(f File, name string) error
}

// Spreader is the optional power to keep unrelated directories apart.
type Spreader interface {
	// Spread says that the directories that will be made in dir, and the files in
	// them, have nothing to do with each other. A hint: nothing happens where the
	// file system does not know it.
	Spread(dir string)
}

// OS is the operating system's file system.
type OS struct {
	// Direct lets large writes go past the page cache where the file system can
	// (Linux), which saves most of their CPU time. For users with a cache of their
	// own: what was just written is not in memory.
	Direct bool
}

// Create implements FS.
func (o OS) Create(name string) (File, error) {
	return open(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, o.Direct)
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return open(name, os.O_RDONLY, false) }

func open(name string, flag int, direct bool) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f, direct}, nil
}

// Link implements FS.
func (OS) Link(old, new string) error { return os.Link(old, new) }

// Rename implements FS.
func (OS) Rename(old, new string) error { return os.Rename(old, new) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Mkdir implements FS.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o755) }

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements FS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SameFile implements FS.
func (OS) SameFile(a, b fs.FileInfo) bool { return os.SameFile(a, b) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// MakeDirs makes a directory of the operating system and those above it that are
// missing, all of them durable.
func MakeDirs(name string) error {
	name = filepath.Clean(name)
	if i, err := os.Stat(name); err == nil && i.IsDir() {
		return nil
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MakeDirs(parent); err != nil {
			return err
		}
	}
	// Somebody else may be making it too; that one may not have synced it yet.
	if err := os.Mkdir(name, 0o755); err != nil {
		if i, serr := os.Stat(name); serr != nil || !i.IsDir() {
			return err
		}
	}
	return OS{}.SyncDir(parent)
}

type osFile struct {
	*os.File
	direct bool // large writes go past the page cache
}
