//go:build unix

package wal

import (
	"fmt"
	"syscall"
)

// allocSlab maps anonymous memory: the garbage collector neither scans nor
// counts it, so that a large cache does not double the heap's size.
func allocSlab(size int) ([]byte, error) {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map slab of %d bytes: %w", size, err)
	}
	return mem, nil
}

func freeSlab(mem []byte) {
	if err := syscall.Munmap(mem); err != nil {
		panic("wal: unmap slab: " + err.Error())
	}
}
