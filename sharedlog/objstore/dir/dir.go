// Package dir is a Bucket in a directory: on a local disk for one node, on an
// NFS mount for many. Every object is a file; its key is its path.
//
// # How an object comes to be
//
// PutNew writes a temporary file, syncs it, links it to its name and syncs the
// directory; a taken name makes link fail, which decides between concurrent
// writers, also over NFS. So a name never leads to half an object, and
//
//   - created or exists implies that the file, its directory and every new
//     directory above are synced. For exists too: the other writer may have
//     died between link and sync, and its object would vanish with the power.
//   - a temporary file whose sync failed is thrown away: the kernel drops dirty
//     pages after reporting the error once, and a second sync proves nothing.
//   - after the sync of a directory failed nothing in it can be trusted any
//     more: every later write there answers objstore.ErrUndurable.
//
// # What else is in the directory
//
// Names that start with a dot are not objects: ".tmp/<owner>/<n>" has temporary
// files of one owner, who removes what a crash left behind, an hour later or more; NFS makes ".nfs*".
//
// # NFS
//
// The mount must be "hard" and must not cache negative lookups for long; Warnings
// tells. The server must export "sync". ESTALE reads as not found: the file was
// deleted by somebody else.
package dir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	"ponor/internal/vfs"
	"ponor/sharedlog/objstore"
)

// tempRoot has the temporary files of all owners.
const tempRoot = ".tmp"

// Options configure a Bucket. The zero value is ready to use.
type Options struct {
	// Owner names this user of the directory across restarts (a node id), one
	// key component. At New, temporary files that an earlier process of the
	// same owner left more than an hour ago are removed. Empty: a random name,
	// nothing is removed.
	Owner string
	// FS is what the directory is on, default the operating system's with large
	// writes past the page cache.
	FS vfs.FS
	// Unnamed saves two directory updates a write: files are written without a
	// name (O_TMPFILE) and linked. Only for file systems where a power-cut test
	// has shown that linkat after fsync is as safe as link; off by default.
	Unnamed bool
}

// Bucket is a store in a directory. Safe for concurrent use, also with other
// processes in the same directory.
type Bucket struct {
	root    string
	temp    string // this owner's temporary directory
	fs      vfs.FS
	unnamed vfs.Unnamed // nil unless Options.Unnamed
	// process and next name temporary files. The process part keeps two
	// processes of one owner (a paused one and its successor) from ever linking
	// each other's half-written files.
	process string
	next    atomic.Uint64
	marked  atomic.Bool // the store's marker was seen, see checkMounted
	spares  chan temp   // ready to be written, see temp.go
	tidying sync.WaitGroup

	mu struct {
		sync.Mutex
		// ready has the directories whose names this process has made durable,
		// up to the root. One per incarnation and kind of object: small.
		ready map[string]struct{}
		// broken has the directories whose sync failed.
		broken map[string]error
	}
}

var _ objstore.Bucket = (*Bucket)(nil)

// New opens the store in directory root, which must exist.
func New(root string, opts Options) (*Bucket, error) {
	if opts.FS == nil {
		opts.FS = vfs.OS{Direct: true}
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("name temporary files: %w", err)
	}
	process := hex.EncodeToString(id[:])
	if opts.Owner == "" {
		opts.Owner = "anonymous-" + process
	}
	if err := objstore.CheckKey(opts.Owner); err != nil {
		return nil, fmt.Errorf("open directory store: owner: %w", err)
	}
	b := &Bucket{root: path.Clean(root), fs: opts.FS, process: process, spares: make(chan temp, maxSpares)}
	b.temp = path.Join(b.root, tempRoot, opts.Owner)
	b.mu.ready = map[string]struct{}{b.root: {}}
	b.mu.broken = map[string]error{}
	if opts.Unnamed {
		u, ok := opts.FS.(vfs.Unnamed)
		if !ok {
			return nil, fmt.Errorf("open directory store: %w: no unnamed files on this system", objstore.ErrRefused)
		}
		b.unnamed = u
	}
	if info, err := b.fs.Stat(b.root); err != nil {
		return nil, fmt.Errorf("open directory store: %w", classify(err))
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open directory store: %w: %s is not a directory", objstore.ErrRefused, b.root)
	}
	b.syncRoot()
	if err := b.cleanTemp(); err != nil {
		return nil, fmt.Errorf("clean temporary files: %w", classify(err))
	}
	return b, nil
}

// syncRoot makes the root's own name durable, which whoever made it may not have
// done. Directories above that we may not read are the operator's business.
func (b *Bucket) syncRoot() {
	for d := b.root; path.Dir(d) != d; d = path.Dir(d) {
		if b.fs.SyncDir(path.Dir(d)) != nil {
			return
		}
	}
}

// PutNew implements objstore.Bucket.
func (b *Bucket) PutNew(ctx context.Context, key string, body objstore.Body) error {
	put := b.putNamed
	if b.unnamed != nil {
		put = b.putUnnamed
	}
	err := b.put(ctx, key, body, put)
	if err != nil {
		err = fmt.Errorf("put new %s: %w", key, classify(err))
	}
	b.noteMarker(key, err)
	return err
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body) error {
	if err := b.put(ctx, key, body, b.putOver); err != nil {
		return fmt.Errorf("put %s: %w", key, classify(err))
	}
	return nil
}

// put prepares the directory and has the object written. A call that hangs in
// the kernel cannot be ended; ctx is looked at before.
func (b *Bucket) put(ctx context.Context, key string, body objstore.Body, write func(objstore.Body, string) error) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	target := path.Join(b.root, key)
	if err := b.makeDir(path.Dir(target)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return write(body, target)
}

// putNamed is the safe order: temporary file, sync, link, sync of the directory.
func (b *Bucket) putNamed(body objstore.Body, target string) error {
	return b.withTemp(body, func(temp string) error { return b.linkNew(temp, target) })
}

// putOver takes the name, whatever had it.
func (b *Bucket) putOver(body objstore.Body, target string) error {
	return b.withTemp(body, func(temp string) error {
		if err := b.fs.Rename(temp, target); err != nil {
			return b.forget(path.Dir(target), err)
		}
		return b.syncDir(path.Dir(target))
	})
}

// linkNew names the file if the name is free.
func (b *Bucket) linkNew(temp, target string) error {
	err := b.fs.Link(temp, target)
	switch {
	case err == nil:
		return b.syncDir(path.Dir(target))
	case errors.Is(err, fs.ErrExist):
		// Over NFS a link whose reply got lost is sent again and meets itself.
		if b.same(temp, target) {
			return b.syncDir(path.Dir(target))
		}
		return b.settleExisting(target)
	}
	return b.forget(path.Dir(target), err)
}

func (b *Bucket) same(temp, target string) bool {
	t, err := b.fs.Stat(temp)
	if err != nil {
		return false
	}
	o, err := b.fs.Stat(target)
	return err == nil && b.fs.SameFile(t, o)
}

// settleExisting makes another writer's object durable before it is reported.
func (b *Bucket) settleExisting(target string) error {
	if err := b.syncFile(target); err != nil {
		return err
	}
	if err := b.syncDir(path.Dir(target)); err != nil {
		return err
	}
	return objstore.ErrExists
}

// syncFile makes a named file durable. If that fails, its directory is broken
// like after a failed sync of the directory: a name in it leads to bytes that
// may be lost. One that was deleted meanwhile is not found (NFS says stale).
func (b *Bucket) syncFile(name string) error {
	f, err := b.fs.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); isGone(err) {
		return err
	} else if err != nil {
		return b.markBroken(path.Dir(name), err)
	}
	return nil
}

// putUnnamed is the cheaper order: no temporary name to make and to remove.
func (b *Bucket) putUnnamed(body objstore.Body, target string) error {
	dir := path.Dir(target)
	f, err := b.unnamed.CreateUnnamed(dir)
	if err != nil {
		return b.forget(dir, err)
	}
	defer f.Close()
	if err := f.Writev(body.Parts); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	switch err := b.unnamed.LinkUnnamed(f, target); {
	case errors.Is(err, fs.ErrExist):
		return b.settleExisting(target)
	case err != nil:
		return b.forget(dir, err)
	}
	return b.syncDir(dir)
}

// makeDir makes a directory and those above it, durably. A directory that
// exists may be another process's that is not synced yet, so each is synced
// into its parent once by this process.
func (b *Bucket) makeDir(dir string) error {
	b.mu.Lock()
	_, ready := b.mu.ready[dir]
	broken := b.mu.broken[dir]
	b.mu.Unlock()
	if broken != nil {
		return broken
	}
	if ready {
		return nil
	}
	parent := path.Dir(dir)
	if err := b.makeDir(parent); err != nil {
		return err
	}
	if err := b.checkMounted(); err != nil {
		return err
	}
	if err := b.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return b.forget(parent, err)
	}
	if err := b.syncDir(parent); err != nil {
		return err
	}
	b.mu.Lock()
	b.mu.ready[dir] = struct{}{}
	b.mu.Unlock()
	return nil
}

// checkMounted refuses to lay out a new tree where the store's marker has gone
// since this process saw it: what was mounted there is not any more, and
// records written into the mount point would be lost with the next mount.
func (b *Bucket) checkMounted() error {
	if !b.marked.Load() {
		return nil
	}
	if _, err := b.fs.Stat(path.Join(b.root, objstore.ClusterKey)); err != nil {
		return fmt.Errorf("%s has lost its marker %s, is the store still mounted? %s", b.root, objstore.ClusterKey, err.Error())
	}
	return nil
}

// noteMarker remembers that the store's marker was seen.
func (b *Bucket) noteMarker(key string, err error) {
	if key == objstore.ClusterKey && (err == nil || errors.Is(err, objstore.ErrExists)) {
		b.marked.Store(true)
	}
}

// forget drops what is remembered of a directory that turns out to be gone, so
// that the caller's retry makes it again.
func (b *Bucket) forget(dir string, err error) error {
	if isGone(err) && dir != b.root {
		b.mu.Lock()
		clear(b.mu.ready)
		b.mu.ready[b.root] = struct{}{}
		b.mu.Unlock()
		return fmt.Errorf("directory is gone: %s", err.Error()) // not ErrNotFound: a put can be retried
	}
	return err
}

// isGone says whether what a call was about has been deleted.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
}

// syncDir makes the names in a directory durable. If that fails, the directory
// is broken for good: the kernel may report the failure only once.
func (b *Bucket) syncDir(dir string) error {
	b.mu.Lock()
	broken := b.mu.broken[dir]
	b.mu.Unlock()
	if broken != nil {
		return broken
	}
	err := b.fs.SyncDir(dir)
	if err == nil {
		return nil
	}
	if isGone(err) {
		return b.forget(dir, err)
	}
	return b.markBroken(dir, err)
}

// markBroken remembers that nothing in the directory can be trusted any more.
func (b *Bucket) markBroken(dir string, err error) error {
	err = fmt.Errorf("%w: sync failed: %w", objstore.ErrUndurable, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.broken[dir] = err
	return err
}

// Delete implements objstore.Bucket. It does not sync: an object that comes back
// after a power cut is garbage again and swept again.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := objstore.CheckKey(key); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		if err := classify(b.fs.Remove(path.Join(b.root, key))); err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return fmt.Errorf("delete %s: %w", key, err)
		}
	}
	return nil
}

// Kind implements objstore.Bucket. Writes cost nothing but time. An ordinary disk
// writes 1 MiB as fast per byte as more, but making, syncing, linking and deleting
// a file costs as much CPU time as its first MiB, so a busy writer fills 4 MiB
// (see BenchmarkPutNew); an idle one does not wait for that. Two in flight keep
// the disk busy while one is being prepared.
func (b *Bucket) Kind() objstore.Kind {
	return objstore.Kind{Name: "dir", URL: "dir:" + b.root, MaxInflight: 2, TargetObject: 4 << 20}
}

// Close implements objstore.Bucket. It gives up what was made ready for the next
// puts; none may be going on.
func (b *Bucket) Close() error {
	b.tidying.Wait()
	b.dropSpares()
	return nil
}

// classify adds the contract's error to the file system's.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, objstore.ErrExists), errors.Is(err, objstore.ErrUndurable), errors.Is(err, objstore.ErrRefused):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", objstore.ErrFull, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %w", objstore.ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", objstore.ErrRefused, err)
	}
	return err
}
