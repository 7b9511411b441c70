package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"ponor/internal/vfs"
	"ponor/sharedlog/objstore"
)

// open opens an object. Errors carry the contract's.
func (b *Bucket) open(ctx context.Context, key string) (vfs.File, error) {
	if err := objstore.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	f, err := b.fs.Open(path.Join(b.root, key))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, classify(err))
	}
	return f, nil
}

// GetRange implements objstore.Bucket.
func (b *Bucket) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	f, err := b.open(ctx, key)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.ReadAt(dst, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("get %s: %w", key, classify(err))
	}
	b.noteMarker(key, nil)
	return n, nil
}

// GetTail implements objstore.Bucket.
func (b *Bucket) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	f, err := b.open(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = objstore.ErrNotFound
	}
	if err != nil {
		return 0, 0, fmt.Errorf("get %s: %w", key, classify(err))
	}
	off := max(0, info.Size()-int64(len(dst)))
	n, err := f.ReadAt(dst[:info.Size()-off], off)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, fmt.Errorf("get %s: %w", key, classify(err))
	}
	return n, info.Size(), nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckKey(key); err != nil {
		return objstore.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objstore.Info{}, fmt.Errorf("head %s: %w", key, err)
	}
	info, err := b.fs.Stat(path.Join(b.root, key))
	if err == nil && info.IsDir() {
		err = objstore.ErrNotFound
	}
	if err != nil {
		return objstore.Info{}, fmt.Errorf("head %s: %w", key, classify(err))
	}
	return objstore.Info{Key: key, Size: info.Size()}, nil
}

// List implements objstore.Bucket.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	err := b.walk(ctx, prefix, startAfter, func(key string, e fs.DirEntry) error {
		info, err := e.Info()
		if err != nil {
			if errors.Is(classify(err), objstore.ErrNotFound) {
				return nil // deleted meanwhile
			}
			return fmt.Errorf("list %s: %w", prefix, classify(err))
		}
		return fn(objstore.Info{Key: key, Size: info.Size()})
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// walk calls fn for every object under prefix with a key after startAfter, in
// byte order.
func (b *Bucket) walk(ctx context.Context, prefix, startAfter string, fn func(string, fs.DirEntry) error) error {
	// The deepest directory that has all of prefix.
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if dir != "" && objstore.CheckKey(dir[:len(dir)-1]) != nil {
		return nil //nolint:nilerr // no key has such a prefix, so nothing matches
	}
	return b.walkDir(ctx, dir, func(key string) bool {
		// A directory (its key ends in "/") is of interest if a key below it can be.
		return (strings.HasPrefix(key, prefix) || strings.HasSuffix(key, "/") && strings.HasPrefix(prefix, key)) &&
			(key > startAfter || strings.HasPrefix(startAfter, key) && key[len(key)-1] == '/')
	}, fn)
}

// walkDir walks the directory whose keys start with dir, "" or ending in "/".
func (b *Bucket) walkDir(ctx context.Context, dir string, wanted func(string) bool, fn func(string, fs.DirEntry) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	entries, err := b.fs.ReadDir(path.Join(b.root, dir))
	if err = classify(err); err != nil {
		if errors.Is(err, objstore.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("list %s: %w", dir, err)
	}
	// In the order of keys, a directory "a" is "a/" and comes after "a.b".
	sortName := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		key := dir + sortName(e)
		if e.Name()[0] == '.' || !wanted(key) {
			continue
		}
		if e.IsDir() {
			err = b.walkDir(ctx, key, wanted, fn)
		} else {
			err = fn(key, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settleWorkers sync files side by side: each sync of a clean file still costs a
// flush of the disk's cache, and concurrent flushes are merged (a thousand files
// take a fifth to a tenth of the time).
const settleWorkers = 16

// Settle implements objstore.Bucket: it syncs every object under prefix, their
// directories, and the directories above.
func (b *Bucket) Settle(ctx context.Context, prefix string) error {
	var keys []string
	err := b.walk(ctx, prefix, "", func(key string, _ fs.DirEntry) error {
		keys = append(keys, key)
		return nil
	})
	if err == nil {
		err = b.syncFiles(ctx, keys)
	}
	if err != nil {
		return err
	}
	dirs := map[string]struct{}{}
	for _, key := range keys {
		for d := path.Dir(key); ; d = path.Dir(d) {
			if _, seen := dirs[d]; seen {
				break
			}
			dirs[d] = struct{}{}
			if d == "." {
				break
			}
		}
	}
	for d := range dirs {
		if err := b.syncDir(path.Join(b.root, d)); err != nil {
			return fmt.Errorf("settle %s: %w", d, classify(err))
		}
	}
	return nil
}

func (b *Bucket) syncFiles(ctx context.Context, keys []string) error {
	errs := make([]error, settleWorkers)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(keys) && ctx.Err() == nil; i += len(errs) {
				err := classify(b.syncFile(path.Join(b.root, keys[i])))
				if err != nil && !errors.Is(err, objstore.ErrNotFound) {
					errs[w] = fmt.Errorf("settle %s: %w", keys[i], err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
