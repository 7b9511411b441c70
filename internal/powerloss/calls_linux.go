//go:build linux && (amd64 || arm64)

package powerloss

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a system call that a thread is in, with what must be known before it
// happens.
type call struct {
	number   int64
	args     [6]uint64
	path, to string // below root
	sync     int
}

func (c *call) fd(arg int) int { return int(int32(c.args[arg])) }

func (t *tracer) add(e event) { t.rec.events = append(t.rec.events, e) }

// enter looks at a call that begins. It returns nil for one that is no concern
// of ours. Go programs use the *at calls only.
func (t *tracer) enter(tid int, number int64, args [6]uint64) (c *call, err error) {
	c = &call{number: number, args: args}
	switch number {
	case unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT:
		if c.path, err = t.resolve(tid, c.fd(0), args[1]); c.path == "" {
			return nil, err
		}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		c.path, err = t.resolve(tid, c.fd(0), args[1])
		if err == nil {
			c.to, err = t.resolve(tid, c.fd(2), args[3])
		}
		if err != nil || c.path == "" && c.to == "" {
			return nil, err
		}
		if c.path == "" || c.to == "" || number == unix.SYS_RENAMEAT2 && args[4]&^unix.RENAME_NOREPLACE != 0 {
			return nil, t.unsupported(c)
		}
	case unix.SYS_SYMLINKAT:
		if c.path, err = t.resolve(tid, c.fd(1), args[2]); c.path == "" {
			return nil, err
		}
		return nil, t.unsupported(c)
	case unix.SYS_WRITE:
		if c.fd(0) == markFD {
			data, err := t.memory(tid, args[1], int(args[2]))
			t.add(event{op: opMark, data: data})
			return nil, err
		}
		return t.ours(c), nil
	case unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_FCNTL:
		return t.ours(c), nil
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		if t.ours(c) == nil {
			return nil, nil
		}
		t.syncs++
		c.sync = t.syncs
		t.add(event{op: opSync, fd: c.fd(0), sync: c.sync})
	case unix.SYS_CLOSE:
		// Now: the descriptor may be given out again before the call has ended.
		if t.ours(c) != nil {
			delete(t.open, c.fd(0))
			t.add(event{op: opClose, fd: c.fd(0)})
		}
		return nil, nil
	default:
		return nil, t.refuse(c)
	}
	return c, nil
}

// refuse fails for a call that changes files in a way that is not recorded.
func (t *tracer) refuse(c *call) error {
	fd := -1
	switch c.number {
	case unix.SYS_MMAP:
		if c.args[2]&unix.PROT_WRITE != 0 && c.args[3]&unix.MAP_TYPE != unix.MAP_PRIVATE {
			fd = c.fd(4)
		}
	case unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_SENDFILE:
		fd = c.fd(0)
	case unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE:
		fd = c.fd(2)
	case unix.SYS_CLOSE_RANGE, unix.SYS_IO_URING_SETUP, unix.SYS_TRUNCATE, unix.SYS_OPENAT2:
		return t.unsupported(c)
	}
	if t.open[fd] {
		return t.unsupported(c)
	}
	return nil
}

func (t *tracer) unsupported(c *call) error {
	return fmt.Errorf("the process made a system call that is not recorded: number %d, arguments %v, path %q %q", c.number, c.args, c.path, c.to)
}

// ours returns c if its first argument is a descriptor of ours.
func (t *tracer) ours(c *call) *call {
	if t.open[c.fd(0)] {
		return c
	}
	return nil
}

// leave records a call that succeeded.
func (t *tracer) leave(tid int, c *call, result int) error {
	switch c.number {
	case unix.SYS_OPENAT:
		flags := int(c.args[2])
		if flags&unix.O_TMPFILE == unix.O_TMPFILE {
			return t.unsupported(c)
		}
		t.open[result] = true
		t.add(event{op: opOpen, path: c.path, fd: result, create: flags&unix.O_CREAT != 0, truncate: flags&unix.O_TRUNC != 0})
	case unix.SYS_MKDIRAT:
		t.add(event{op: opMkdir, path: c.path})
	case unix.SYS_UNLINKAT:
		t.add(event{op: opRemove, path: c.path})
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		t.add(event{op: opRename, path: c.path, to: c.to})
	case unix.SYS_LINKAT:
		t.add(event{op: opLink, path: c.path, to: c.to})
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64:
		return t.wrote(tid, c, result)
	case unix.SYS_FTRUNCATE:
		t.add(event{op: opTruncate, fd: c.fd(0), at: int64(c.args[1])})
	case unix.SYS_FALLOCATE:
		if c.args[1] != 0 {
			return t.unsupported(c)
		}
		t.add(event{op: opExtend, fd: c.fd(0), at: int64(c.args[2] + c.args[3])})
	case unix.SYS_FCNTL:
		if cmd := c.args[1]; cmd != unix.F_DUPFD && cmd != unix.F_DUPFD_CLOEXEC {
			return nil
		}
		fallthrough
	case unix.SYS_DUP, unix.SYS_DUP3:
		t.open[result] = true
		t.add(event{op: opDup, fd: c.fd(0), dup: result})
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		t.add(event{op: opSynced, fd: c.fd(0), sync: c.sync})
	}
	return nil
}

// wrote records the n bytes that a call wrote.
func (t *tracer) wrote(tid int, c *call, n int) (err error) {
	e := event{op: opWrite, fd: c.fd(0), at: int64(c.args[3])}
	if c.number == unix.SYS_WRITEV {
		e.data, err = t.vector(tid, c.args[1], int(c.args[2]), n)
	} else {
		e.data, err = t.memory(tid, c.args[1], n)
	}
	if err == nil && c.number != unix.SYS_PWRITE64 {
		var end int64
		end, err = t.position(e.fd)
		e.at = end - int64(n)
	}
	if err == nil {
		t.add(e)
	}
	return err
}

// position is where the next write to a descriptor goes.
func (t *tracer) position(fd int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", t.pid, fd))
	if err != nil {
		return 0, fmt.Errorf("find where a write went: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(line, "pos:")), 10, 64)
}

// resolve returns the path of a name below root, "" for others.
func (t *tracer) resolve(tid, dirfd int, address uint64) (string, error) {
	name, err := t.text(tid, address)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(name) {
		link := fmt.Sprintf("/proc/%d/fd/%d", t.pid, dirfd)
		if dirfd == unix.AT_FDCWD {
			link = fmt.Sprintf("/proc/%d/cwd", t.pid)
		}
		dir, err := os.Readlink(link)
		if err != nil {
			return "", fmt.Errorf("find the directory of %q: %w", name, err)
		}
		name = filepath.Join(dir, name)
	}
	name = filepath.Clean(name)
	if name == t.root {
		return "/", nil
	}
	if rest, ok := strings.CutPrefix(name, t.root); ok && rest[0] == '/' {
		return rest, nil
	}
	return "", nil
}

// text reads a string that ends with a zero byte.
func (t *tracer) text(tid int, address uint64) (string, error) {
	var s []byte
	for len(s) <= unix.PathMax {
		// Up to the end of a page: the next may not be there.
		b, err := t.memory(tid, address, 256-int(address%256))
		if err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(s, b[:i]...)), nil
		}
		s, address = append(s, b...), address+uint64(len(b))
	}
	return "", errors.New("a path has no end")
}

// memory reads n bytes of the process.
func (t *tracer) memory(tid int, address uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	for done := 0; done < n; {
		local := unix.Iovec{Base: &b[done]}
		local.SetLen(n - done)
		got, err := unix.ProcessVMReadv(tid, []unix.Iovec{local},
			[]unix.RemoteIovec{{Base: uintptr(address) + uintptr(done), Len: n - done}}, 0)
		if err != nil {
			return nil, fmt.Errorf("read the memory of the process: %w", err)
		}
		done += got
	}
	return b, nil
}

// vector reads the first n bytes of count buffers.
func (t *tracer) vector(tid int, address uint64, count, n int) ([]byte, error) {
	list, err := t.memory(tid, address, 16*count)
	if err != nil {
		return nil, err
	}
	var data []byte
	for ; len(list) > 0 && len(data) < n; list = list[16:] {
		size := min(int(binary.LittleEndian.Uint64(list[8:])), n-len(data))
		part, err := t.memory(tid, binary.LittleEndian.Uint64(list), size)
		if err != nil {
			return nil, err
		}
		data = append(data, part...)
	}
	return data, nil
}
