package powerloss

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ponor/internal/crashfs"
)

// Recording is what a process did to a directory, in order.
type Recording struct {
	// dirs and files are what there was before, all of it durable. Paths start
	// with "/", the directory itself, everywhere here.
	dirs   []string
	files  map[string][]byte
	events []event
}

// op is the kind of an event.
type op string

// A sync is two events: what it makes durable is what there was when it started,
// and that is durable once it ended.
const (
	opOpen     op = "open"
	opDup      op = "dup"
	opClose    op = "close"
	opWrite    op = "write"
	opTruncate op = "truncate"
	opExtend   op = "extend"
	opSync     op = "sync"
	opSynced   op = "synced"
	opMkdir    op = "mkdir"
	opLink     op = "link"
	opRename   op = "rename"
	opRemove   op = "remove"
	opMark     op = "mark"
)

// event is a system call that succeeded, or one end of a sync.
type event struct {
	op       op
	path, to string
	fd, dup  int    // descriptors of the process
	data     []byte // of a write or a mark
	at       int64  // offset of a write, size of a truncate or extend
	create   bool   // of an open
	truncate bool   // of an open
	sync     int    // pairs a sync with its end
}

func (e event) String() string {
	switch e.op {
	case opOpen:
		return fmt.Sprintf("open %s as %d (create %t, truncate %t)", e.path, e.fd, e.create, e.truncate)
	case opDup:
		return fmt.Sprintf("dup %d as %d", e.fd, e.dup)
	case opWrite:
		return fmt.Sprintf("write %d bytes at %d to %d", len(e.data), e.at, e.fd)
	case opTruncate, opExtend:
		return fmt.Sprintf("%s %d to %d bytes", e.op, e.fd, e.at)
	case opLink, opRename:
		return fmt.Sprintf("%s %s to %s", e.op, e.path, e.to)
	case opMkdir, opRemove:
		return fmt.Sprintf("%s %s", e.op, e.path)
	case opMark:
		return fmt.Sprintf("mark %q", e.data)
	}
	return fmt.Sprintf("%s %d", e.op, e.fd)
}

// Len is the number of events.
func (r *Recording) Len() int { return len(r.events) }

// Marks are all promises made.
func (r *Recording) Marks() (marks []string) {
	for _, e := range r.events {
		if e.op == opMark {
			marks = append(marks, string(e.data))
		}
	}
	return marks
}

// Omit drops the syncs of files and directories with certain paths, as they were
// opened: the recording of a program that forgot them. It returns how many those
// are.
func (r *Recording) Omit(forgotten func(path string) bool) (without *Recording, syncs int) {
	without = &Recording{dirs: r.dirs, files: r.files}
	paths := map[int]string{}
	drop := map[int]bool{}
	for _, e := range r.events {
		switch e.op {
		case opOpen:
			paths[e.fd] = e.path
		case opDup:
			paths[e.dup] = paths[e.fd]
		case opSync:
			if forgotten(paths[e.fd]) {
				drop[e.sync] = true
			}
		}
		if !drop[e.sync] { // 0 for all but syncs
			without.events = append(without.events, e)
		}
	}
	return without, len(drop)
}

// Crash is one power cut.
type Crash struct {
	// Seed chose it.
	Seed uint64
	// Marks are the promises made before it.
	Marks []string

	disk   *crashfs.FS
	events []event // before it
}

// Write puts what the crash left into a directory, which must be empty. A file
// with two names becomes two files.
func (c *Crash) Write(dir string) error {
	left := &Recording{}
	err := left.readFS(c.disk, "/")
	for _, d := range left.dirs {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, d), 0o755)
		}
	}
	for name, data := range left.files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("write what crash %d left: %w", c.Seed, err)
	}
	return nil
}

// String says where the power was cut.
func (c *Crash) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, power cut after %d system calls, of which the last:", c.Seed, len(c.events))
	for _, e := range c.events[max(0, len(c.events)-12):] {
		fmt.Fprintf(&b, "\n  %v", e)
	}
	return b.String()
}

// Crashes are n power cuts with seeds from first, in the order of the moments
// they come at. An error, if any, comes last.
func (r *Recording) Crashes(first uint64, n int) iter.Seq2[*Crash, error] {
	return func(yield func(*Crash, error) bool) {
		type cut struct {
			seed uint64
			at   int
			rng  *rand.Rand
		}
		cuts := make([]cut, n)
		for i := range cuts {
			seed := first + uint64(i)
			rng := rand.New(rand.NewPCG(seed, 11))
			cuts[i] = cut{seed, rng.IntN(len(r.events) + 1), rng}
			if rng.IntN(3) == 0 {
				cuts[i].rng = nil // nothing survives that was not synced
			}
		}
		slices.SortStableFunc(cuts, func(a, b cut) int { return a.at - b.at })
		p, err := r.play()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, c := range cuts {
			for ; p.done < c.at; p.done++ {
				if err := p.step(r.events[p.done]); err != nil {
					yield(nil, fmt.Errorf("play event %d (%v): %w", p.done, r.events[p.done], err))
					return
				}
			}
			if !yield(&Crash{c.seed, slices.Clone(p.marks), p.fs.AfterCrash(c.rng), r.events[:c.at]}, nil) {
				return
			}
		}
	}
}

// player plays events on a file system.
type player struct {
	fs    *crashfs.FS
	done  int
	open  map[int]*crashfs.File
	ends  map[int]func() // of syncs that have started
	marks []string
}

func (r *Recording) play() (*player, error) {
	p := &player{fs: crashfs.New(), open: map[int]*crashfs.File{}, ends: map[int]func(){}}
	for _, d := range r.dirs {
		if err := p.fs.Mkdir(d); err != nil {
			return nil, fmt.Errorf("lay out the directory: %w", err)
		}
	}
	for name, data := range r.files {
		f, err := p.fs.Create(name)
		if err == nil {
			err = f.Writev([][]byte{data})
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return nil, fmt.Errorf("lay out the directory: %w", err)
		}
	}
	for _, d := range append(slices.Clone(r.dirs), "/") {
		if err := p.fs.SyncDir(d); err != nil {
			return nil, fmt.Errorf("lay out the directory: %w", err)
		}
	}
	return p, nil
}

func (p *player) step(e event) error {
	switch e.op {
	case opMark:
		p.marks = append(p.marks, string(e.data))
		return nil
	case opOpen:
		return p.openFile(e)
	case opClose:
		delete(p.open, e.fd)
		return nil
	case opMkdir:
		return p.fs.Mkdir(e.path)
	case opLink:
		return p.fs.Link(e.path, e.to)
	case opRename:
		return p.fs.Rename(e.path, e.to)
	case opRemove:
		return p.fs.Remove(e.path)
	case opSynced:
		p.ends[e.sync]()
		delete(p.ends, e.sync)
		return nil
	}
	f := p.open[e.fd]
	if f == nil {
		return syscall.EBADF
	}
	switch e.op {
	case opDup:
		p.open[e.dup] = f
	case opWrite:
		_, err := f.WriteAt(e.data, e.at)
		return err
	case opTruncate:
		return f.Truncate(e.at)
	case opExtend:
		if i, err := f.Stat(); err != nil || i.Size() >= e.at {
			return err
		}
		return f.Truncate(e.at)
	case opSync:
		p.ends[e.sync] = f.StartSync()
	}
	return nil
}

func (p *player) openFile(e event) error {
	_, err := p.fs.Stat(e.path)
	if err != nil && e.create {
		_, err = p.fs.Create(e.path)
	}
	if err != nil {
		return err
	}
	f, err := p.fs.Open(e.path)
	if err != nil {
		return err
	}
	p.open[e.fd] = f.(*crashfs.File)
	if i, err := f.Stat(); err != nil || !e.truncate || i.Size() == 0 {
		return err
	}
	return p.open[e.fd].Truncate(0)
}

// read notes what is in a directory.
func (r *Recording) read(dir string) error {
	r.files = map[string][]byte{}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), dir)
		if d.IsDir() {
			r.dirs = append(r.dirs, name)
			return nil
		}
		r.files[name], err = os.ReadFile(path)
		return err
	})
}

// check plays the whole recording and compares that with the directory, where
// nothing crashed: what was not seen would differ.
func (r *Recording) check(dir string) error {
	p, err := r.play()
	if err != nil {
		return err
	}
	for _, e := range r.events {
		if err := p.step(e); err != nil {
			return fmt.Errorf("play %v: %w", e, err)
		}
	}
	left := &Recording{}
	if err := left.read(dir); err != nil {
		return err
	}
	played := &Recording{}
	if err := played.readFS(p.fs, "/"); err != nil {
		return err
	}
	if !slices.Equal(left.dirs, played.dirs) {
		return fmt.Errorf("the process left directories %v, its recording %v", left.dirs, played.dirs)
	}
	if !maps.EqualFunc(left.files, played.files, bytes.Equal) {
		return fmt.Errorf("the process left files %v, its recording %v, or other content", names(left.files), names(played.files))
	}
	return nil
}

func names(files map[string][]byte) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, fmt.Sprintf("%s (%d bytes)", name, len(files[name])))
	}
	return list
}

// readFS notes what is in a directory of f.
func (r *Recording) readFS(f *crashfs.FS, dir string) error {
	if r.files == nil {
		r.files = map[string][]byte{}
	}
	list, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			r.dirs = append(r.dirs, name)
			if err := r.readFS(f, name); err != nil {
				return err
			}
			continue
		}
		h, err := f.Open(name)
		if err != nil {
			return err
		}
		i, err := h.Stat()
		if err != nil {
			return err
		}
		data := make([]byte, i.Size())
		if _, err := h.ReadAt(data, 0); err != nil && len(data) > 0 {
			return err
		}
		r.files[name] = data
	}
	return nil
}
