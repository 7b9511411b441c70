package vfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxParts is the most that one writev takes (IOV_MAX).
const maxParts = 1024

// Writev implements File.
func (f osFile) Writev(parts [][]byte) error {
	skip := 0
	if f.direct {
		var err error
		if skip, err = f.writeDirect(parts); err != nil {
			return err
		}
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// The kernel may take less than offered; what is left is offered again. The
	// caller's slice stays as it is, so a partly written part goes alone.
	for i, off := 0, skip; i < len(parts); {
		if off >= len(parts[i]) {
			i, off = i+1, off-len(parts[i])
			continue
		}
		batch := parts[i:min(i+maxParts, len(parts))]
		if off > 0 {
			batch = [][]byte{parts[i][off:]}
		}
		n := 0
		cerr := conn.Write(func(fd uintptr) bool {
			n, err = unix.Writev(int(fd), batch)
			return !errors.Is(err, unix.EAGAIN)
		})
		if cerr != nil {
			err = cerr
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "writev", Path: f.Name(), Err: err}
		}
		if n == 0 {
			return &os.PathError{Op: "writev", Path: f.Name(), Err: fmt.Errorf("wrote nothing")}
		}
		for n > 0 {
			step := min(n, len(parts[i])-off)
			n, off = n-step, off+step
			if off == len(parts[i]) {
				i, off = i+1, 0
			}
		}
	}
	return nil
}

// CreateUnnamed implements Unnamed.
func (o OS) CreateUnnamed(dir string) (File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, &os.PathError{Op: "open unnamed", Path: dir, Err: err}
	}
	return osFile{os.NewFile(uintptr(fd), dir+"/(unnamed)"), o.Direct}, nil
}

// LinkUnnamed implements Unnamed.
func (OS) LinkUnnamed(f File, name string) error {
	of, ok := f.(osFile)
	if !ok {
		return &os.PathError{Op: "link", Path: name, Err: os.ErrInvalid}
	}
	// /proc instead of AT_EMPTY_PATH, which needs a capability.
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", of.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "link", Old: of.Name(), New: name, Err: err}
	}
	return nil
}
