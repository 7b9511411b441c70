package logtest

import (
	"strings"
	"testing"

	"ponor/commitlog"
)

// World is a fresh medium and the way to own logs in it. Open at a higher epoch
// may be called while an older owner still has the log open: it is another
// broker then, if the medium is shared. Logs that a test leaves open are the
// World's to clean up (testing.TB.Cleanup).
type World interface {
	commitlog.Store
}

// Holder is a World that can keep appends from becoming durable. Commits stay
// pending from Hold until Release. Open may wait for Release, nothing else may.
type Holder interface {
	Hold()
	Release()
}

// Failer is a World whose writes can be made to fail for good: after Fail(err)
// the Commits of appends fail. Fail(nil) heals the medium; logs that were lost
// stay so.
type Failer interface {
	Fail(err error)
}

// Crasher is a World that can take all logs from their owners without Close, as
// a power loss would: what was not durable is gone. A Hold is over afterwards.
type Crasher interface {
	Crash()
}

// Corrupter is a World that can damage what it stores: one bit of the batch at
// offset, on the medium, so that the next owner's read meets it. name is what
// the error of that read must contain (the object or file).
type Corrupter interface {
	Corrupt(id commitlog.ID, offset commitlog.Offset) (name string, err error)
}

// Clause is one named test of the contract.
type Clause struct {
	// Name starts with the clause it tests, such as "C3".
	Name string
	// Needs names the powers it cannot do without: "Holder", "Failer",
	// "Crasher", "Corrupter".
	Needs []string
	// Test fails through tb if w breaks the clause. It waits at most 20 s.
	Test func(tb testing.TB, w World)
}

// Clauses lists the whole suite in order, but for the random histories.
func Clauses() []Clause {
	var all []Clause
	all = append(all, appendClauses()...)
	all = append(all, ownerClauses()...)
	all = append(all, readClauses()...)
	all = append(all, keepClauses()...)
	return all
}

// Run tests the contract on worlds made by newWorld, one per clause, and on
// random histories from fixed seeds.
func Run(t *testing.T, newWorld func(tb testing.TB) World) {
	t.Helper()
	var skipped []string
	for _, c := range Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			w := newWorld(t)
			if lacks := missing(w, c.Needs); len(lacks) > 0 {
				skipped = append(skipped, c.Name)
				t.Skipf("NOT TESTED: the world is no %s", strings.Join(lacks, ", no "))
			}
			c.Test(t, w)
		})
	}
	t.Run("histories", func(t *testing.T) {
		for seed := range uint64(8) {
			History(t, newWorld(t), seed, 150)
		}
	})
	if len(skipped) > 0 {
		t.Logf("NOT TESTED, %d clauses for want of powers of the world: %s", len(skipped), strings.Join(skipped, "; "))
	}
}

// missing returns the powers that w lacks.
func missing(w World, needs []string) []string {
	var out []string
	for _, n := range needs {
		ok := false
		switch n {
		case "Holder":
			_, ok = w.(Holder)
		case "Failer":
			_, ok = w.(Failer)
		case "Crasher":
			_, ok = w.(Crasher)
		case "Corrupter":
			_, ok = w.(Corrupter)
		}
		if !ok {
			out = append(out, n)
		}
	}
	return out
}
