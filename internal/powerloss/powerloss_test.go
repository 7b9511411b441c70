package powerloss_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"ponor/internal/powerloss"
)

// saver replaces files as it should be done, again and again, and marks each
// content once it is durable.
func saver(c *powerloss.Process) error {
	var g errgroup.Group
	for w := range 3 { // on threads of their own, in directories of their own
		g.Go(func() error {
			dir := filepath.Join(c.Dir, fmt.Sprint(w))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := syncDir(c.Dir); err != nil {
				return err
			}
			for i := range 40 {
				if err := save(dir, i); err != nil {
					return err
				}
				c.Mark("%d %d", w, i)
			}
			return nil
		})
	}
	return g.Wait()
}

// save writes in several ways.
func save(dir string, i int) error {
	tmp := filepath.Join(dir, "tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	data := strings.Repeat(fmt.Sprintf("%03d,", i), 300+i)
	_, err = f.WriteString(data[:100])
	_, err1 := f.WriteAt([]byte(data[600:]), 600)
	_, err2 := f.WriteAt([]byte(data[100:600]), 100)
	err = errors.Join(err, err1, err2, f.Truncate(1200), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, "file")); err != nil {
		return err
	}
	return syncDir(dir)
}

// lost says what is missing from what a crash left, or half there.
func lost(t *testing.T, c *powerloss.Crash) error {
	dir := t.TempDir()
	must(t, c.Write(dir))
	least := map[int]int{}
	for _, m := range c.Marks {
		var w, i int
		if _, err := fmt.Sscan(m, &w, &i); err != nil {
			t.Fatal(err)
		}
		least[w] = i
	}
	for w, i := range least {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(w), "file"))
		if err != nil {
			return err
		}
		var got int
		if _, err := fmt.Sscanf(string(b), "%d,", &got); err != nil || got < i {
			return fmt.Errorf("file %d is %.8q, want %d or newer", w, b, i)
		}
		if want := strings.Repeat(fmt.Sprintf("%03d,", got), 300); string(b) != want {
			return fmt.Errorf("file %d of %d bytes is damaged", w, len(b))
		}
	}
	return nil
}

// Every sync of the saver is needed and enough: crashes lose nothing, and those
// of a recording without one of them do.
func TestCrashesLoseWhatWasNotSyncedAndNothingElse(t *testing.T) {
	if c := powerloss.Child(t); c != nil {
		must(t, saver(c))
		return
	}
	dir := t.TempDir()
	r := powerloss.Record(t, dir, "")
	if n := len(r.Marks()); n != 120 {
		t.Fatalf("%d marks, want 120", n)
	}
	again := powerloss.Record(t, dir, "") // on what the first left
	for _, r := range []*powerloss.Recording{r, again} {
		for c, err := range r.Crashes(1, 300) {
			must(t, err)
			if err := lost(t, c); err != nil {
				t.Fatalf("%v\n%v", err, c)
			}
		}
	}
	for suffix, least := range map[string]int{"/tmp": 120, "/1": 40, "/": 1} {
		forgetful, n := r.Omit(func(path string) bool { return strings.HasSuffix(path, suffix) })
		if n < least {
			t.Errorf("%d syncs of %s omitted, want %d", n, suffix, least)
		}
		caught := false
		for c, err := range forgetful.Crashes(1, 300) {
			must(t, err)
			caught = caught || lost(t, c) != nil
		}
		if !caught {
			t.Errorf("300 crashes do not show that syncs of %s were forgotten", suffix)
		}
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
