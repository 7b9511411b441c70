package dir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"

	"ponor/internal/crashfs"
	"ponor/internal/vfs"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
)

func open(t *testing.T, f vfs.FS, owner string) *dir.Bucket {
	t.Helper()
	b, err := dir.New("/", dir.Options{FS: f, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func body(s string) objstore.Body {
	b := objstore.BytesBody([]byte(s))
	b.Parts = [][]byte{b.Parts[0][:2], b.Parts[0][2:]}
	return b
}

func get(t *testing.T, b objstore.Bucket, key string) (string, error) {
	p := make([]byte, 100)
	n, err := b.GetRange(t.Context(), key, 0, p)
	return string(p[:n]), err
}

type skip func(op crashfs.Op, name string) bool

// killedWriter lets a writer die after n operations, a second one create the
// same object, and then cuts the power. It says how B2 was broken.
func killedWriter(t *testing.T, n int, forget skip) error {
	f := crashfs.New()
	open(t, f, "setup")
	a := f.Process(-1)
	a.Skip = forget
	first := open(t, a, "a")
	a.Left(n)
	errA := first.PutNew(t.Context(), "x/y/k", body("from a"))
	b := f.Process(-1)
	b.Skip = forget
	errB := open(t, b, "b").PutNew(t.Context(), "x/y/k", body("from b"))
	want := "from b"
	if errors.Is(errB, objstore.ErrExists) {
		want = "from a"
	} else if errB != nil {
		return fmt.Errorf("second writer: %w", errB)
	}
	if errA == nil && want != "from a" {
		return errors.New("both writers created the object")
	}
	got, err := get(t, open(t, f.Crash(nil), "c"), "x/y/k")
	if err != nil || got != want {
		return fmt.Errorf("after the power cut: %q, %w, want %q", got, err, want)
	}
	return nil
}

// operations is an upper bound for one PutNew with two new directories.
const operations = 15

func TestB2CreatedOrExistsSurvivesAPowerCut(t *testing.T) {
	for n := range operations {
		if err := killedWriter(t, n, nil); err != nil {
			t.Errorf("first writer killed after %d operations: %v", n, err)
		}
	}
}

// Every sync that PutNew makes is needed: a program without it is caught.
func TestB2NoSyncCanBeForgotten(t *testing.T) {
	for name, forget := range map[string]skip{
		"of a new file":                    func(op crashfs.Op, n string) bool { return op == crashfs.Sync && strings.HasPrefix(n, "/.tmp") },
		"of the object's directory":        func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && n == "/x/y" },
		"of a new directory's parent":      func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && n == "/x" },
		"of a new directory's grandparent": func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && n == "/" },
	} {
		caught := false
		for n := range operations {
			caught = caught || killedWriter(t, n, forget) != nil
		}
		if !caught {
			t.Errorf("a store without the sync %s passes", name)
		}
	}
}

// The writer of an existing object may have died between link and sync, so that
// "exists" needs a sync of its own, and of the file as well if the writer used
// another order than ours.
func TestB2ExistsIsNotAnsweredWithoutSync(t *testing.T) {
	for _, forget := range []skip{
		nil,
		func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && n == "/x" },
		func(op crashfs.Op, n string) bool { return op == crashfs.Sync && n == "/x/k" },
	} {
		f := crashfs.New()
		if err := f.Mkdir("/x"); err != nil {
			t.Fatal(err)
		}
		p := f.Process(-1)
		p.Skip = forget
		b := open(t, p, "b")
		// An unsynced file under an unsynced name.
		h, err := f.Create("/x/k")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Writev([][]byte{[]byte("other")}); err != nil {
			t.Fatal(err)
		}
		if err := b.PutNew(t.Context(), "x/k", body("mine")); !errors.Is(err, objstore.ErrExists) {
			t.Fatalf("put: %v, want ErrExists", err)
		}
		got, err := get(t, open(t, f.Crash(nil), "c"), "x/k")
		if kept := err == nil && got == "other"; kept != (forget == nil) {
			t.Errorf("after the power cut: %q, %v (sync forgotten: %t)", got, err, forget != nil)
		}
	}
}

func TestB2SettleMakesOthersObjectsDurable(t *testing.T) {
	f := crashfs.New()
	a := open(t, f, "a")
	// Names and content of a writer that syncs nothing.
	p := f.Process(-1)
	p.Skip = func(op crashfs.Op, _ string) bool { return op == crashfs.Sync || op == crashfs.SyncDir }
	w := open(t, p, "w")
	for _, k := range []string{"w/1/0/a", "w/1/0/b", "other/c"} {
		if err := w.PutNew(t.Context(), k, body("data "+k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Settle(t.Context(), "w/1/0/"); err != nil {
		t.Fatal(err)
	}
	c := open(t, f.Crash(nil), "c")
	for _, k := range []string{"w/1/0/a", "w/1/0/b"} {
		if got, err := get(t, c, k); err != nil || got != "data "+k {
			t.Errorf("%s: %q, %v", k, got, err)
		}
	}
	if _, err := get(t, c, "other/c"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("object outside the prefix: %v", err)
	}
}

// failFirst makes the first such operation fail.
func failFirst(f *crashfs.FS, op crashfs.Op, name string, err error) {
	done := false
	f.Hook(func(o crashfs.Op, n string) error {
		if !done && o == op && strings.HasPrefix(n, name) {
			done = true
			return err
		}
		return nil
	})
}

func TestAFailedFileSyncDiscardsTheFile(t *testing.T) {
	f := crashfs.New()
	b := open(t, f, "a")
	failFirst(f, crashfs.Sync, "/.tmp", syscall.EIO)
	if err := b.PutNew(t.Context(), "x/k", body("data")); err == nil {
		t.Fatal("put succeeded without a sync")
	}
	if _, err := get(t, b, "x/k"); !errors.Is(err, objstore.ErrNotFound) {
		t.Fatalf("after a failed sync: %v, want ErrNotFound", err)
	}
	if err := b.PutNew(t.Context(), "x/k", body("data")); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, open(t, f.Crash(nil), "b"), "x/k"); err != nil || got != "data" {
		t.Errorf("after the power cut: %q, %v", got, err)
	}
}

func TestAFailedDirectorySyncBreaksTheDirectoryForGood(t *testing.T) {
	f := crashfs.New()
	b := open(t, f, "a")
	if err := b.PutNew(t.Context(), "x/0", body("data")); err != nil {
		t.Fatal(err)
	}
	failFirst(f, crashfs.SyncDir, "/x", syscall.EIO)
	for i, put := range []func() error{
		func() error { return b.PutNew(t.Context(), "x/1", body("data")) },
		func() error { return b.PutNew(t.Context(), "x/1", body("data")) },
		func() error { return b.PutNew(t.Context(), "x/2", body("data")) },
		func() error { return b.Settle(t.Context(), "x/") },
	} {
		if err := put(); !errors.Is(err, objstore.ErrUndurable) {
			t.Errorf("call %d after the failed sync: %v, want ErrUndurable", i, err)
		}
	}
	if err := b.PutNew(t.Context(), "y/1", body("data")); err != nil {
		t.Errorf("another directory: %v", err)
	}
}

func TestErrorsAreTheContracts(t *testing.T) {
	for op, ops := range map[crashfs.Op]string{crashfs.Write: "/.tmp", crashfs.Sync: "/.tmp", crashfs.Create: "/.tmp", crashfs.Mkdir: "/x", crashfs.Link: "/x"} {
		for errno, want := range map[error]error{
			syscall.ENOSPC: objstore.ErrFull, syscall.EDQUOT: objstore.ErrFull,
			syscall.EACCES: objstore.ErrRefused, syscall.EROFS: objstore.ErrRefused,
		} {
			f := crashfs.New()
			b := open(t, f, "a")
			failFirst(f, op, ops, errno)
			if err := b.PutNew(t.Context(), "x/k", body("data")); !errors.Is(err, want) {
				t.Errorf("%s fails with %v: %v, want %v", op, errno, err, want)
			}
			if err := b.PutNew(t.Context(), "x/k", body("data")); err != nil {
				t.Errorf("retry after %s failed with %v: %v", op, errno, err)
			}
		}
	}
	b := open(t, stale{crashfs.New()}, "a")
	if _, err := get(t, b, "x/k"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("ESTALE: %v, want ErrNotFound", err)
	}
}

// Over NFS a file that somebody deletes between open and fsync is stale. That says
// nothing about what else is in the directory.
func TestDeletedWhileSettledBreaksNothing(t *testing.T) {
	f := crashfs.New()
	b := open(t, f, "a")
	for _, key := range []string{"x/0", "x/1"} {
		if err := b.PutNew(t.Context(), key, body("data")); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []crashfs.Op{crashfs.Sync, crashfs.SyncDir} {
		failFirst(f, op, "/x", syscall.ESTALE)
		err := b.Settle(t.Context(), "x/")
		if errors.Is(err, objstore.ErrUndurable) || op == crashfs.Sync && err != nil {
			t.Errorf("settle, where %s is stale once: %v", op, err)
		}
		if err := b.Settle(t.Context(), "x/"); err != nil {
			t.Errorf("settle after %s was stale once: %v", op, err)
		}
	}
	if err := b.PutNew(t.Context(), "x/2", body("data")); err != nil {
		t.Error(err)
	}
}

// stale answers every open as NFS does for a file that is gone.
type stale struct{ vfs.FS }

func (stale) Open(name string) (vfs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ESTALE}
}

// lostReply answers a link that happened with EEXIST, as NFS may after
// sending it twice.
type lostReply struct{ vfs.FS }

func (l lostReply) Link(old, new string) error {
	if err := l.FS.Link(old, new); err != nil {
		return err
	}
	return l.FS.Link(old, new)
}

func TestARetransmittedLinkIsOurOwn(t *testing.T) {
	f := crashfs.New()
	b := open(t, lostReply{f}, "a")
	if err := b.PutNew(t.Context(), "x/k", body("data")); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, open(t, f.Crash(nil), "b"), "x/k"); err != nil || got != "data" {
		t.Errorf("after the power cut: %q, %v", got, err)
	}
}

func TestTemporaryFilesAreCleanedByTheirOwnerOnly(t *testing.T) {
	f := crashfs.New()
	for _, owner := range []string{"a", "b"} {
		p := f.Process(-1)
		b := open(t, p, owner)
		p.Skip = func(op crashfs.Op, _ string) bool { return op == crashfs.Remove }
		if err := b.PutNew(t.Context(), "x/"+owner, body("data")); err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
	count := func(owner string) (n int) {
		dirs, err := f.ReadDir(path.Join("/.tmp", owner))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dirs {
			list, err := f.ReadDir(path.Join("/.tmp", owner, d.Name()))
			if err != nil {
				t.Fatal(err)
			}
			n += len(list)
		}
		return n
	}
	if count("a") == 0 || count("b") == 0 {
		t.Fatalf("left behind: %d and %d files, want some each", count("a"), count("b"))
	}
	open(t, f, "a")
	if count("a") != 0 || count("b") == 0 {
		t.Errorf("after a came back: %d and %d files, want none and some", count("a"), count("b"))
	}
}

func TestListIgnoresWhatIsNoObject(t *testing.T) {
	f := crashfs.New()
	b := open(t, f, "a")
	if err := b.PutNew(t.Context(), "x/k", body("data")); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"/x/.nfs0001", "/.hidden"} {
		if _, err := f.Create(n); err != nil {
			t.Fatal(err)
		}
	}
	var keys bytes.Buffer
	if err := b.List(t.Context(), "", "", func(i objstore.Info) error { keys.WriteString(i.Key + " "); return nil }); err != nil {
		t.Fatal(err)
	}
	if keys.String() != "x/k " {
		t.Errorf("list: %q", keys.String())
	}
}
