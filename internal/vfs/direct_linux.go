package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// directBytes is the size from which a write goes past the page cache. Below
	// it the copy is cheaper than the extra calls.
	directBytes = 128 << 10
	// directBlock is what memory, offset and length are aligned to: no disk in use
	// has larger blocks.
	directBlock = 4 << 10
	// bounceBytes is how much is handed to the disk at once.
	bounceBytes = 1 << 20
)

// bouncePool has aligned memory of bounceBytes.
var bouncePool = sync.Pool{New: func() any {
	b := make([]byte, bounceBytes+directBlock)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (directBlock - 1)
	b = b[skip : skip+bounceBytes : skip+bounceBytes]
	return &b
}}

// writeDirect writes as much of parts as O_DIRECT can take and returns how many
// bytes that were; the caller writes the rest. 0, nil: not here. Afterwards the
// file is an ordinary one.
//
// The page cache costs several times the copy: each page is allocated, filled,
// written back and freed again, for data that the caller caches itself.
func (f osFile) writeDirect(parts [][]byte) (done int, err error) {
	total := 0
	for _, p := range parts {
		total += len(p)
	}
	if total < directBytes {
		return 0, nil
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at%directBlock != 0 {
		return 0, nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := conn.Control(func(fd uintptr) { done, err = directAll(int(fd), parts, total&^(directBlock-1)) })
	if cerr != nil {
		return done, cerr
	}
	if err != nil {
		return done, &os.PathError{Op: "write directly", Path: f.Name(), Err: err}
	}
	return done, nil
}

// directAll writes the first total bytes of parts.
func directAll(fd int, parts [][]byte, total int) (done int, err error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT); err != nil {
		return 0, nil // the file system has no such thing
	}
	defer func() {
		if _, e := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags); err == nil {
			err = e
		}
	}()
	p := bouncePool.Get().(*[]byte)
	defer bouncePool.Put(p)
	i, off := 0, 0
	for done < total {
		b := (*p)[:0]
		for room := min(bounceBytes, total-done); len(b) < room; {
			n := min(room-len(b), len(parts[i])-off)
			b = append(b, parts[i][off:off+n]...)
			if off += n; off == len(parts[i]) {
				i, off = i+1, 0
			}
		}
		n, err := writeBlocks(fd, b)
		done += n
		if n < len(b) {
			return done, err
		}
	}
	return done, nil
}

// writeBlocks writes aligned memory. It stops early, without an error, when the
// kernel takes no direct writes (here) after all.
func writeBlocks(fd int, b []byte) (done int, err error) {
	for done < len(b) {
		n, err := unix.Write(fd, b[done:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL):
			return done, nil
		case err != nil:
			return done, err
		case n == 0:
			return done, fmt.Errorf("wrote nothing")
		default:
			if done += n; n%directBlock != 0 {
				return done, nil
			}
		}
	}
	return done, nil
}
