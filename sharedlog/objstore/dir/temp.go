package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"ponor/internal/vfs"
	"ponor/sharedlog/objstore"
)

// maxSpares is how many temporary files are kept ready. Making one costs a file
// system a search for a free inode, NFS a round trip: a put that finds one made
// need not wait for that. As many as are put at once, and some for a burst.
const maxSpares = 4

// temp is an empty temporary file.
type temp struct {
	name string
	file vfs.File
}

// tempDirs is how many directories temporary files are spread over. An inode is
// searched for near its directory, and ext4 without a journal looks at each one
// that was freed in the last minutes before it finds one: with hundreds of small
// objects a second that took a third of a broker's CPU time. See vfs.Spreader.
const tempDirs = 64

// tempAge is how old a temporary file must be to be nobody's any more. A process that
// is about to be refused, because another one runs under its name, must not take the
// files away that this one has ready: what is younger stays until a later start.
const tempAge = time.Hour

// cleanTemp makes the owner's temporary directory and removes the old files in it.
func (b *Bucket) cleanTemp() error {
	if err := b.mkdirs(path.Dir(b.temp), b.temp); err != nil {
		return err
	}
	if s, ok := b.fs.(vfs.Spreader); ok {
		s.Spread(b.temp)
	}
	dirs, err := b.fs.ReadDir(b.temp)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		old, err := b.fs.ReadDir(path.Join(b.temp, d.Name()))
		if err != nil {
			return err
		}
		for _, e := range old {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) < tempAge {
				continue
			}
			if err := b.fs.Remove(path.Join(b.temp, d.Name(), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (b *Bucket) mkdirs(names ...string) error {
	for _, d := range names {
		if err := b.fs.Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// makeTemp creates a temporary file, and its directory if that is not there.
func (b *Bucket) makeTemp() (temp, error) {
	n := b.next.Add(1)
	dir := path.Join(b.temp, fmt.Sprintf("%02d", n%tempDirs))
	name := path.Join(dir, fmt.Sprintf("%s-%d", b.process, n))
	f, err := b.fs.Create(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = b.checkMounted(); err == nil {
			err = b.mkdirs(path.Dir(b.temp), b.temp, dir)
		}
		if err == nil {
			f, err = b.fs.Create(name)
		}
	}
	return temp{name, f}, err
}

// takeTemp is a spare temporary file, or a new one.
func (b *Bucket) takeTemp() (temp, error) {
	select {
	case t := <-b.spares:
		return t, nil
	default:
		return b.makeTemp()
	}
}

// withTemp writes and syncs a temporary file and has it named. Removing its
// temporary name and making the next spare is left to a goroutine: neither
// matters to whoever waits for the object.
func (b *Bucket) withTemp(body objstore.Body, name func(temp string) error) error {
	t, err := b.takeTemp()
	if err != nil {
		return err
	}
	if err = writeSync(t.file, body); err == nil {
		err = name(t.name)
	}
	if err != nil {
		// The spares may share whatever is wrong: a directory or a server that
		// is gone. A retry begins from scratch.
		b.dropSpares()
	}
	b.tidying.Go(func() { b.tidy(t.name, err == nil) })
	return err
}

// tidy removes a temporary name that has done its duty and makes a spare.
func (b *Bucket) tidy(name string, spare bool) {
	b.fs.Remove(name) //nolint:errcheck // cleaned at the next start at the latest
	if !spare || len(b.spares) == maxSpares {
		return
	}
	t, err := b.makeTemp()
	if err != nil {
		return // the next put will see and tell
	}
	select {
	case b.spares <- t:
	default:
		b.drop(t)
	}
}

func (b *Bucket) dropSpares() {
	for {
		select {
		case t := <-b.spares:
			b.drop(t)
		default:
			return
		}
	}
}

func (b *Bucket) drop(t temp) {
	t.file.Close()
	b.fs.Remove(t.name) //nolint:errcheck // cleaned at the next start at the latest
}

// writeSync writes the body, makes it durable and closes the file.
func writeSync(f vfs.File, body objstore.Body) error {
	err := f.Writev(body.Parts)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
