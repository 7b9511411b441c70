package locallog_test

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"ponor/locallog"
)

// powerFS is a file system in memory that a power loss can strike at any time.
// Content survives if it was synced, names if their directory was; of what was
// not, some sectors survive and some do not, in any order.
type powerFS struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	root *node
	gen  int // counts crashes; files opened before one are dead
	held chan struct{}
	fail error
	lock bool
	// syncs counts File.Sync calls on logs.
	syncs int
	// lies picks files and directories whose syncs do nothing.
	lies func(name string) bool
}

type node struct {
	children, durable map[string]*node // of a directory
	data, synced      []byte           // of a file
}

var errDead = errors.New("the machine lost power")

func newPowerFS(seed uint64) *powerFS {
	return &powerFS{rnd: rand.New(rand.NewPCG(seed, 3)), root: newDir()}
}

func newDir() *node { return &node{children: map[string]*node{}, durable: map[string]*node{}} }

// boot is the file system as one run of a process sees it: dead after a crash.
func (p *powerFS) boot() locallog.FS {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &booted{p, p.gen}
}

type booted struct {
	*powerFS
	mine int
}

type powerFile struct {
	b    *booted
	n    *node
	name string
}

// Crash loses what was not durable.
func (p *powerFS) Crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gen++
	p.lock = false
	p.release()
	p.crash(p.root)
}

func (p *powerFS) crash(n *node) {
	if n.children == nil {
		n.data = p.tear(n.synced, n.data)
		n.synced = slices.Clone(n.data)
		return
	}
	n.children = maps.Clone(n.durable)
	for _, c := range n.children {
		p.crash(c)
	}
}

// tear returns what the disk holds: each sector that was written since the last
// sync old or new, and the size anything between the two.
func (p *powerFS) tear(old, now []byte) []byte {
	size := len(old)
	if len(now) > size {
		size += p.rnd.IntN(len(now) - size + 1)
	}
	out := make([]byte, size)
	copy(out, old)
	keep := p.rnd.IntN(3) // 0 none, 1 some, 2 all
	for at := 0; at < size; at += 512 {
		end := min(at+512, size)
		if at < len(now) && (keep == 2 || keep == 1 && p.rnd.IntN(4) > 0) {
			copy(out[at:end], now[at:])
		}
	}
	return out
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

// enter locks the file system for one operation of a run that is still alive.
func (b *booted) enter() (leave func(), err error) {
	b.mu.Lock()
	if b.mine != b.gen {
		b.mu.Unlock()
		return nil, errDead
	}
	return b.mu.Unlock, nil
}

// find walks to a path; the last element may be missing.
func (b *booted) find(name string) (dir *node, base string, n *node) {
	dir, n = nil, b.root
	if name == "/" {
		return nil, "", n
	}
	for part := range strings.SplitSeq(strings.Trim(filepath.ToSlash(name), "/"), "/") {
		if n == nil || n.children == nil {
			return nil, "", nil
		}
		dir, base, n = n, part, n.children[part]
	}
	return dir, base, n
}

func (b *booted) Open(name string, create bool) (locallog.File, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	dir, base, n := b.find(name)
	if n == nil {
		if !create || dir == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		n = &node{}
		dir.children[base] = n
	}
	return &powerFile{b, n, name}, nil
}

func (b *booted) ReadDir(name string) ([]string, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, _, n := b.find(name); n != nil && n.children != nil {
		return slices.Sorted(maps.Keys(n.children)), nil
	}
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
}

func (b *booted) MkdirAll(name string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	n := b.root
	for part := range strings.SplitSeq(strings.Trim(filepath.ToSlash(name), "/"), "/") {
		if n.children[part] == nil {
			n.children[part] = newDir()
		}
		n = n.children[part]
	}
	return nil
}

func (b *booted) Rename(from, to string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	fromDir, fromBase, n := b.find(from)
	toDir, toBase, _ := b.find(to)
	if n == nil || toDir == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(fromDir.children, fromBase)
	toDir.children[toBase] = n
	return nil
}

func (b *booted) RemoveAll(name string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	if dir, base, n := b.find(name); n != nil {
		delete(dir.children, base)
	}
	return nil
}

func (b *booted) SyncDir(name string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	if _, _, n := b.find(name); n != nil && (b.lies == nil || !b.lies(name)) {
		n.durable = maps.Clone(n.children)
	}
	return nil
}

func (b *booted) Lock(string) (io.Closer, error) {
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if b.powerFS.lock {
		return nil, errors.New("locked")
	}
	b.powerFS.lock = true
	return unlocker{b}, nil
}

type unlocker struct{ b *booted }

func (u unlocker) Close() error {
	leave, err := u.b.enter()
	if err != nil {
		return err
	}
	defer leave()
	u.b.powerFS.lock = false
	return nil
}

func (f *powerFile) ReadAt(p []byte, off int64) (int, error) {
	leave, err := f.b.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *powerFile) WriteAt(p []byte, off int64) (int, error) {
	leave, err := f.b.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if grow := off + int64(len(p)) - int64(len(f.n.data)); grow > 0 {
		f.n.data = append(f.n.data, make([]byte, grow)...)
	}
	return copy(f.n.data[off:], p), nil
}

func (f *powerFile) Size() (int64, error) {
	leave, err := f.b.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return int64(len(f.n.data)), nil
}

func (f *powerFile) Truncate(size int64) error {
	leave, err := f.b.enter()
	if err != nil {
		return err
	}
	defer leave()
	if size < int64(len(f.n.data)) {
		f.n.data = slices.Clone(f.n.data[:size])
	}
	return nil
}

func (f *powerFile) Sync() error {
	isLog := strings.HasSuffix(f.name, ".log")
	f.b.mu.Lock()
	held := f.b.held
	f.b.mu.Unlock()
	if held != nil && isLog {
		<-held
	}
	leave, err := f.b.enter()
	if err != nil {
		return err
	}
	defer leave()
	if isLog {
		if f.b.fail != nil {
			return f.b.fail
		}
		f.b.syncs++
	}
	if f.b.lies == nil || !f.b.lies(f.name) {
		f.n.synced = slices.Clone(f.n.data)
	}
	return nil
}

func (f *powerFile) Close() error { return nil }
