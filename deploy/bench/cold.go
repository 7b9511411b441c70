package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// cool makes sure that what was produced is in no memory: brokers start anew,
// and the page cache gives the files up. Then it measures what the disk gives
// for the same files, in bytes per second.
func (s *system) cool(ctx context.Context, o options) (float64, error) {
	if s.args != nil {
		s.end(syscall.SIGTERM)
		if err := s.launch(o); err != nil {
			return 0, err
		}
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := s.awaitService(wait, o); err != nil {
			return 0, err
		}
	}
	syscall.Sync() // only clean pages can be given up
	files, err := bigFiles(s.data)
	if err != nil {
		return 0, err
	}
	rate, err := directRate(files)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		if err := evict(f); err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// bigFiles lists the files that hold nearly all bytes, which are those that can
// be read at the disk's full speed.
func bigFiles(root string) (out []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() >= 1<<20 { // else it is gone
			out = append(out, path)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no large files in %s", root)
	}
	return out, err
}

// directRate reads files whole past the page cache, a few at a time so that the
// disk always has something to do.
func directRate(files []string) (bytesPerSecond float64, err error) {
	const readers = 4
	var wg sync.WaitGroup
	errs := make([]error, readers)
	sums := make([]int64, readers)
	start := time.Now()
	for r := range readers {
		wg.Go(func() {
			buf := alignedBuffer(4 << 20)
			for i := r; i < len(files) && errs[r] == nil; i += readers {
				var n int64
				n, errs[r] = readDirect(files[i], buf)
				sums[r] += n
			}
		})
	}
	wg.Wait()
	var sum int64
	for r := range readers {
		if errs[r] != nil {
			return 0, fmt.Errorf("measure disk: %w", errs[r])
		}
		sum += sums[r]
	}
	return float64(sum) / time.Since(start).Seconds(), nil
}

func readDirect(path string, buf []byte) (n int64, err error) {
	f, err := openDirect(path)
	if os.IsNotExist(err) {
		return 0, nil // packed meanwhile
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for {
		k, err := f.Read(buf)
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
