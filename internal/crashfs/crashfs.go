// Package crashfs is an in-memory vfs.FS for tests of what survives a power
// cut. It keeps, beside what processes see, what the disk surely has: content
// as of a file's last successful Sync, names as of a directory's last
// successful SyncDir. Crash drops the rest. Killing a process proves nothing
// about power loss, because the page cache survives it.
//
// It is harsher than most file systems: without Sync nothing need survive, of
// what was not synced any part may, syncing a file does not make its name
// durable, and a failed sync loses what was dirty while a later one succeeds all
// the same.
package crashfs

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ponor/internal/vfs"
)

// ErrStopped is what every operation answers after the machine has stopped.
var ErrStopped = errors.New("machine stopped")

// Op is an operation of the file system, for Hook.
type Op string

// The operations that change something or make it durable.
const (
	Create   Op = "create"
	Write    Op = "write"
	Truncate Op = "truncate"
	Sync     Op = "sync"
	SyncDir  Op = "syncdir"
	Link     Op = "link"
	Rename   Op = "rename"
	Remove   Op = "remove"
	Mkdir    Op = "mkdir"
)

// FS is the file system. The zero value is not usable; see New.
type FS struct {
	mu struct {
		sync.Mutex
		root    *node
		ops     int
		stopAt  int // stop when ops reaches it; 0 never
		stopped bool
		hook    func(Op, string) error
	}
}

// New returns an empty file system; "/" exists.
func New() *FS {
	f := &FS{}
	f.mu.root = newDir()
	return f
}

// Hook is asked before each operation; an error makes the operation fail with
// it. A failed Sync or SyncDir loses what was dirty for good.
func (f *FS) Hook(hook func(op Op, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.hook = hook
}

// StopAfter lets n more operations happen; then the machine stops.
func (f *FS) StopAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopAt = f.mu.ops + n
	f.mu.stopped = n == 0
}

// Ops is how many operations have happened.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.ops
}

// Crash stops the machine and returns what it finds on its disk afterwards; see
// AfterCrash.
func (f *FS) Crash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopped = true
	return f.afterCrashLocked(rng)
}

// AfterCrash is what the disk would hold if the power were cut now; this file
// system goes on. With a nil rng that is what was synced and nothing else;
// otherwise each change that was not synced survives or not by chance, and
// writes may be torn at sectors.
func (f *FS) AfterCrash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.afterCrashLocked(rng)
}

func (f *FS) afterCrashLocked(rng *rand.Rand) *FS {
	after := New()
	after.mu.root = survive(f.mu.root, rng, map[*node]*node{})
	return after
}

// stepLocked counts an operation and asks the hook.
func (f *FS) stepLocked(op Op, name string) error {
	if f.mu.stopped {
		return &fs.PathError{Op: string(op), Path: name, Err: ErrStopped}
	}
	f.mu.ops++
	if f.mu.ops == f.mu.stopAt {
		f.mu.stopped = true // this one still happens
	}
	if f.mu.hook != nil {
		if err := f.mu.hook(op, name); err != nil {
			return &fs.PathError{Op: string(op), Path: name, Err: err}
		}
	}
	return nil
}

// findLocked resolves a path.
func (f *FS) findLocked(name string) (*node, error) {
	n := f.mu.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			break
		}
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[part]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

// parentLocked resolves the directory that has or gets the name.
func (f *FS) parentLocked(name string) (*node, string, error) {
	dir, base := path.Split(path.Clean("/" + name))
	n, err := f.findLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	return n, base, err
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &node{}
	if err := f.addLocked(Create, name, n); err != nil {
		return nil, err
	}
	return &File{fs: f, n: n, name: name}, nil
}

// Mkdir implements vfs.FS.
func (f *FS) Mkdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addLocked(Mkdir, name, newDir())
}

// Link implements vfs.FS.
func (f *FS) Link(old, new string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.findLocked(old)
	if err != nil {
		return &fs.PathError{Op: "link", Path: old, Err: err}
	}
	return f.addLocked(Link, new, n)
}

func (f *FS) addLocked(op Op, name string, n *node) error {
	if err := f.stepLocked(op, name); err != nil {
		return err
	}
	dir, base, err := f.parentLocked(name)
	if err == nil && dir.names[base] != nil {
		err = syscall.EEXIST
	}
	if err != nil {
		return &fs.PathError{Op: string(op), Path: name, Err: err}
	}
	dir.setName(base, n)
	return nil
}

// Rename implements vfs.FS.
func (f *FS) Rename(old, new string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stepLocked(Rename, new); err != nil {
		return err
	}
	from, oldBase, err := f.parentLocked(old)
	if err == nil && from.names[oldBase] == nil {
		err = syscall.ENOENT
	}
	if err != nil {
		return &fs.PathError{Op: "rename", Path: old, Err: err}
	}
	to, newBase, err := f.parentLocked(new)
	if err != nil {
		return &fs.PathError{Op: "rename", Path: new, Err: err}
	}
	n := from.names[oldBase]
	from.setName(oldBase, nil)
	to.setName(newBase, n)
	return nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stepLocked(Remove, name); err != nil {
		return err
	}
	dir, base, err := f.parentLocked(name)
	if err == nil {
		switch n := dir.names[base]; {
		case n == nil:
			err = syscall.ENOENT
		case n.dir && len(n.names) > 0:
			err = syscall.ENOTEMPTY
		}
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	dir.setName(base, nil)
	return nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.findLocked(name)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: err}
	}
	if err := f.stepLocked(SyncDir, name); err != nil {
		if !errors.Is(err, ErrStopped) {
			n.poisoned = true
		}
		return err
	}
	n.startSync()()
	return nil
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.seeLocked("open", name)
	if err != nil {
		return nil, err
	}
	return &File{fs: f, n: n, name: name}, nil
}

// seeLocked finds a node for a reader.
func (f *FS) seeLocked(op, name string) (*node, error) {
	n, err := f.findLocked(name)
	if f.mu.stopped {
		err = ErrStopped
	}
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.seeLocked("stat", name)
	if err != nil {
		return nil, err
	}
	return info{path.Base(name), int64(len(n.data)), n}, nil
}

// SameFile implements vfs.FS.
func (f *FS) SameFile(a, b fs.FileInfo) bool { return a.(info).n == b.(info).n }

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.seeLocked("readdir", name)
	if err != nil {
		return nil, err
	}
	var list []fs.DirEntry
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		c := n.names[base]
		list = append(list, fs.FileInfoToDirEntry(info{base, int64(len(c.data)), c}))
	}
	return list, nil
}

type info struct {
	name string
	size int64
	n    *node
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.n.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.n.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
