package fault_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

// followed is a bucket that follows a file, and what writes the file and waits
// until the bucket does what it says.
func followed(t *testing.T) (b *fault.Bucket, write func(...fault.Line), seen func() fault.Seen) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "faults.json")
	serial := 0
	seen = func() fault.Seen { s, _ := fault.ReadSeen(file); return s }
	b = fault.New(mem.New(), 1)
	write = func(lines ...fault.Line) {
		t.Helper()
		serial++
		if err := fault.WriteScript(file, fault.Script{Serial: serial, Rules: lines}); err != nil {
			t.Fatal(err)
		}
		if serial > 1 {
			eventually(t, func() bool { return seen().Serial == serial })
		}
	}
	write()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = b.Close() })
	if err := b.Follow(ctx, file); err != nil {
		t.Fatal(err)
	}
	return b, write, seen
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

func TestScriptSaysWhatHappens(t *testing.T) {
	b, write, seen := followed(t)
	put := func(key string) error { return b.PutNew(t.Context(), key, objstore.BytesBody([]byte("x"))) }
	there := func(key string) bool { _, err := b.Head(t.Context(), key); return err == nil }
	for _, c := range []struct {
		line        fault.Line
		fails, full bool
		now, later  bool
	}{
		{line: fault.Line{Delay: 1}, now: true, later: true},
		{line: fault.Line{Median: 1, P99: 2}, now: true, later: true},
		{line: fault.Line{Fails: "unavailable"}, fails: true},
		{line: fault.Line{Fails: "full"}, fails: true, full: true},
		{line: fault.Line{Fails: "lost"}, fails: true, now: true, later: true},
		{line: fault.Line{Fails: "late", Late: 300 * time.Millisecond}, fails: true, later: true},
	} {
		key := "k" + c.line.Fails + c.line.Delay.String() + c.line.Median.String()
		c.line.Ops = []fault.Op{fault.PutNew}
		write(c.line)
		err := put(key)
		if (err != nil) != c.fails || errors.Is(err, objstore.ErrFull) != c.full || there(key) != c.now {
			t.Errorf("%+v: put gives %v, and the object is there: %t", c.line, err, there(key))
		}
		eventually(t, func() bool { s := seen(); return len(s.Hits) == 1 && s.Hits[0] == 1 })
		b.Land()
		if there(key) != c.later {
			t.Errorf("%+v: in the end the object is there: %t", c.line, there(key))
		}
	}
	write()
	if err := put("last"); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

// A call that hangs goes on when the file changes.
func TestScriptHangs(t *testing.T) {
	b, write, seen := followed(t)
	write(fault.Line{Hang: true})
	done := make(chan error)
	go func() { done <- b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("x"))) }()
	eventually(t, func() bool { return len(seen().Hits) == 1 && seen().Hits[0] == 1 })
	select {
	case err := <-done:
		t.Fatalf("it does not hang: %v", err)
	default:
	}
	write()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStaleListLeavesNewObjectsOut(t *testing.T) {
	b, write, _ := followed(t)
	list := func() (n int) {
		if err := b.List(t.Context(), "", "", func(objstore.Info) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if n := list(); n != 1 {
		t.Errorf("%d objects, want 1", n)
	}
	write(fault.Line{Ops: []fault.Op{fault.List}, Stale: time.Hour})
	if n := list(); n != 0 {
		t.Errorf("%d objects in a stale list, want none", n)
	}
	write(fault.Line{Ops: []fault.Op{fault.List}, Stale: 1})
	if n := list(); n != 1 {
		t.Errorf("%d objects in a list that is hardly stale, want 1", n)
	}
}

func TestScriptMustBeRight(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "EOF"},
		{`{"rule":[]}`, "unknown field"},
		{`{"rules":[{"ops":["puts"]}]}`, "unknown op"},
		{`{"rules":[{"fails":"always"}]}`, "unknown failure"},
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fault.New(mem.New(), 1).Follow(t.Context(), file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	if err := fault.New(mem.New(), 1).Follow(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
