package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openDirect opens a file for reads past the page cache.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// alignedBuffer is memory that direct reads take.
func alignedBuffer(n int) []byte {
	const align = 4 << 10
	b := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n]
}

// evict has the page cache give a file up.
func evict(path string) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("evict file: %w", err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("evict %s: %w", path, err)
	}
	return nil
}
