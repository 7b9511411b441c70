package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// diskBytes is the size of a node's small disk; Raft's log takes some megabytes.
const diskBytes = 64 << 20

// mount puts a small file system in memory at a directory. It needs root.
func mount(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes))
}

// unmount keeps what was there in a directory of the same name.
func unmount(dir string) error {
	kept := dir + ".kept"
	err := os.CopyFS(kept, os.DirFS(dir))
	if err := errors.Join(err, syscall.Unmount(dir, syscall.MNT_DETACH)); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	return os.Rename(kept, dir)
}

// Fill takes all room of a node's small disk, and says how much it was.
func (c *Processes) Fill(id int32) (int64, error) {
	f, err := os.Create(filepath.Join(dataDir(c.cfg, id), Ballast))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var total int64
	for b := make([]byte, 64<<10); len(b) > 0; {
		n, err := f.Write(b)
		total += int64(n)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			b = b[:len(b)/2]
		case err != nil:
			return total, err
		case total > diskBytes:
			return total, errors.New("the disk is not small")
		}
	}
	return total, nil
}

// Empty gives it back.
func (c *Processes) Empty(id int32) error {
	err := os.Remove(filepath.Join(dataDir(c.cfg, id), Ballast))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
