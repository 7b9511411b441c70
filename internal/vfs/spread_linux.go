package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL, "chattr +T": ext4 places each directory made in one
// with this flag in a block group of its own.
const topDir = 0x00020000

// Spread implements Spreader.
func (OS) Spread(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
}
