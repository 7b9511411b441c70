package controller

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"ponor/internal/powerloss"
)

// storeState is what the Raft stores must hold.
type storeState struct {
	term, votedIn uint64
	vote          string
	logs          map[uint64]uint64 // term by index
	snapshot      uint64            // index of the newest
}

func (s storeState) first() uint64 { return slices.Min(slices.Collect(maps.Keys(s.logs))) }
func (s storeState) last() uint64  { return slices.Max(slices.Collect(maps.Keys(s.logs))) }

func (s storeState) String() string {
	span := "none"
	if len(s.logs) > 0 {
		span = fmt.Sprintf("%d..%d", s.first(), s.last())
	}
	return fmt.Sprintf("term %d, voted for %q in %d, logs %s, snapshot %d", s.term, s.vote, s.votedIn, span, s.snapshot)
}

func (s storeState) equal(o storeState) bool {
	return s.term == o.term && s.votedIn == o.votedIn && s.vote == o.vote && s.snapshot == o.snapshot && maps.Equal(s.logs, o.logs)
}

// storeStep is one call of a store, as Raft makes them: do makes it, then is
// what it means.
type storeStep struct {
	do   func(stores) error
	then func(*storeState)
}

// stores are a voter's, open.
type stores struct {
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func()
}

func openVoterStores(dir string) (stores, error) {
	d, err := openDataDir(dir, 1)
	if err != nil {
		return stores{}, err
	}
	v := &voter{}
	end := func() { v.closeStores(); d.close() }
	s := stores{close: end}
	s.logs, s.stable, s.snaps, err = v.openStores(Config{DataDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		end()
	}
	return s, err
}

// storeSteps is a life of a voter: a pure function of its seed, so that process
// and test agree on it.
func storeSteps(seed uint64) []storeStep {
	rng := rand.New(rand.NewPCG(seed, 5))
	now := storeState{logs: map[uint64]uint64{}}
	var steps []storeStep
	add := func(do func(stores) error, then func(*storeState)) {
		then(&now)
		steps = append(steps, storeStep{do, then})
	}
	// The bootstrap, as Raft makes it.
	add(func(s stores) error { return s.stable.SetUint64([]byte("CurrentTerm"), 1) }, func(s *storeState) { s.term = 1 })
	add(func(s stores) error { return s.logs.StoreLog(&raft.Log{Index: 1, Term: 1, Data: payload(1, 1)}) },
		func(s *storeState) { s.logs[1] = 1 })
	next := uint64(2)
	for range 120 {
		switch n := rng.IntN(100); {
		case n < 12 || now.term == 1:
			stepTerm(add, now.term+1+uint64(rng.IntN(2)), fmt.Sprint("server ", rng.IntN(5)))
		case n < 18 && len(now.logs) > 4:
			// A new leader's log differs from ours at the end.
			cut, last := next-1-uint64(rng.IntN(3)), next-1
			add(func(s stores) error { return s.logs.DeleteRange(cut, last) }, func(s *storeState) {
				maps.DeleteFunc(s.logs, func(i, _ uint64) bool { return i >= cut })
			})
			next = cut
		case n < 28 && next > 5 && next-1 > now.snapshot:
			stepSnapshot(add, next-1, now.logs[next-1], rng.IntN(20000))
			if first, keep := now.first(), max(next, 8)-8; first < keep {
				add(func(s stores) error { return s.logs.DeleteRange(first, keep) }, func(s *storeState) {
					maps.DeleteFunc(s.logs, func(i, _ uint64) bool { return i <= keep })
				})
			}
		default:
			var batch []*raft.Log
			for range 1 + rng.IntN(6) {
				batch = append(batch, &raft.Log{Index: next, Term: now.term, Data: payload(next, now.term)})
				next++
			}
			add(func(s stores) error { return s.logs.StoreLogs(batch) }, func(s *storeState) {
				for _, l := range batch {
					s.logs[l.Index] = l.Term
				}
			})
		}
	}
	return steps
}

// stepTerm votes in a new term, in Raft's order and with its keys.
func stepTerm(add func(func(stores) error, func(*storeState)), term uint64, vote string) {
	add(func(s stores) error { return s.stable.SetUint64([]byte("CurrentTerm"), term) }, func(s *storeState) { s.term = term })
	add(func(s stores) error { return s.stable.SetUint64([]byte("LastVoteTerm"), term) }, func(s *storeState) { s.votedIn = term })
	add(func(s stores) error { return s.stable.Set([]byte("LastVoteCand"), []byte(vote)) }, func(s *storeState) { s.vote = vote })
}

func stepSnapshot(add func(func(stores) error, func(*storeState)), index, term uint64, size int) {
	add(func(s stores) error {
		_, trans := raft.NewInmemTransport("")
		sink, err := s.snaps.Create(1, index, term, raft.Configuration{}, 0, trans)
		if err != nil {
			return err
		}
		if _, err := sink.Write(bytes.Repeat(payload(index, term)[:8], size)); err != nil {
			return err
		}
		return sink.Close()
	}, func(s *storeState) { s.snapshot = index })
}

func payload(index, term uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, index<<16|term)
	return bytes.Repeat(b, 1+int(index*7%120))
}

// readStores opens the stores in a directory and reads all there is.
func readStores(t *testing.T, dir string) (got storeState, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt's way to say that its file is damaged
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	got.logs = map[uint64]uint64{}
	s, err := openVoterStores(dir)
	if err != nil {
		return got, err
	}
	defer s.close()
	number := func(key string) uint64 {
		n, err := s.stable.GetUint64([]byte(key))
		if err != nil && err.Error() != "not found" {
			t.Error(err)
		}
		return n
	}
	got.term, got.votedIn = number("CurrentTerm"), number("LastVoteTerm")
	vote, _ := s.stable.Get([]byte("LastVoteCand"))
	got.vote = string(vote)
	first, err := s.logs.FirstIndex()
	if err != nil {
		return got, err
	}
	last, err := s.logs.LastIndex()
	if err != nil {
		return got, err
	}
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		if err := s.logs.GetLog(i, &l); err != nil {
			return got, fmt.Errorf("read log %d: %w", i, err)
		}
		if l.Index != i || !bytes.Equal(l.Data, payload(i, l.Term)) {
			return got, fmt.Errorf("log %d is damaged", i)
		}
		got.logs[i] = l.Term
	}
	got.snapshot, err = readSnapshots(s.snaps)
	return got, err
}

// readSnapshots returns the index of the one that Raft would start from.
func readSnapshots(snaps raft.SnapshotStore) (uint64, error) {
	list, err := snaps.List()
	if err != nil {
		return 0, err
	}
	for _, m := range list {
		_, r, err := snaps.Open(m.ID)
		if err != nil {
			continue // Raft tries the next
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(b, bytes.Repeat(payload(m.Index, m.Term)[:8], len(b)/8)) {
			return 0, fmt.Errorf("snapshot %s is damaged: %w", m.ID, err)
		}
		return m.Index, nil
	}
	if len(list) > 0 {
		return 0, fmt.Errorf("none of %d snapshots can be read", len(list))
	}
	return 0, nil
}

// runStores is the process that is cut off: Arg is the seed of the steps, the
// first to make and the first not to. It marks where it is.
func runStores(t *testing.T, c *powerloss.Process) {
	var seed uint64
	var from, to int
	if _, err := fmt.Sscan(c.Arg, &seed, &from, &to); err != nil {
		t.Fatal(err)
	}
	s, err := openVoterStores(storesIn(c.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range storeSteps(seed)[from:to] {
		if i%50 == 49 {
			s.close()
			if s, err = openVoterStores(storesIn(c.Dir)); err != nil {
				t.Fatal(err)
			}
		}
		c.Mark("%d begins", from+i)
		if err := step.do(s); err != nil {
			t.Fatal(err)
		}
		c.Mark("%d done", from+i)
	}
	s.close()
}

func storesIn(dir string) string { return filepath.Join(dir, "node", "controller") }

// checkStores compares what a crash left with what was done: done steps all,
// and the one that had begun or not. It returns how many of them there are.
func checkStores(t *testing.T, c *powerloss.Crash, dir string, steps []storeStep, done int) (int, error) {
	begun := done
	for _, m := range c.Marks {
		var i int
		if _, err := fmt.Sscan(m, &i); err != nil {
			t.Error(err)
		}
		begun = i + 1
		if strings.HasSuffix(m, "done") {
			done = i + 1
		}
	}
	want := storeState{logs: map[uint64]uint64{}}
	for _, s := range steps[:done] {
		s.then(&want)
	}
	got, err := readStores(t, storesIn(dir))
	if err != nil {
		return 0, err
	}
	if got.equal(want) {
		return done, nil
	}
	if done == 1 && got.equal(storeState{}) {
		return 0, nil // half a bootstrap is none
	}
	was := want.String()
	for _, s := range steps[done:begun] {
		s.then(&want)
	}
	if begun > done && got.equal(want) {
		return begun, nil
	}
	return 0, fmt.Errorf("after %d steps (%d begun) there is %v, want %s", done, begun, got, was)
}

// cutStores makes n power cuts in a recording of the steps from done on. It
// returns a directory that one of them left, with the number of steps it holds,
// and the first fault.
func cutStores(t *testing.T, r *powerloss.Recording, steps []storeStep, done int, seed uint64, n int) (dir string, had int, err error) {
	middle := n / 2
	for c, err := range r.Crashes(seed, n) {
		if err != nil {
			t.Fatal(err)
		}
		left := powerloss.Scratch(t)
		if err := c.Write(left); err != nil {
			t.Fatal(err)
		}
		now, err := checkStores(t, c, left, steps, done)
		if err != nil {
			return "", 0, fmt.Errorf("%w\n%v", err, c)
		}
		if middle--; middle == 0 {
			dir, had = left, now
		}
	}
	return dir, had, nil
}

// A voter's stores after a power cut hold exactly what was done before it, and
// go on from there into the next one.
func TestRaftStoresSurvivePowerLoss(t *testing.T) {
	if c := powerloss.Child(t); c != nil {
		runStores(t, c)
		return
	}
	const lives, generations = 3, 3
	seed, n := powerloss.Seeds(300)
	n = n/(lives*generations) + 1
	crashes := 0
	for life := range uint64(lives) {
		steps, dir, done := storeSteps(life), powerloss.Scratch(t), 0
		for generation := 0; generation < generations && done < len(steps); generation++ {
			r := powerloss.Record(t, dir, fmt.Sprint(life, " ", done, " ", len(steps)))
			var err error
			if dir, done, err = cutStores(t, r, steps, done, seed+uint64(crashes), n); err != nil {
				t.Fatalf("life %d, generation %d: %v", life, generation, err)
			}
			crashes += n
		}
	}
	t.Logf("%d power cuts under a voter's stores", crashes)
}

// None of the syncs can be left out: without it, power cuts lose something.
func TestPowerLossNoticesForgottenSyncs(t *testing.T) {
	if c := powerloss.Child(t); c != nil {
		runStores(t, c)
		return
	}
	begins := powerloss.Record(t, powerloss.Scratch(t), "1 0 4")
	snapshots := powerloss.Record(t, powerloss.Scratch(t), "1 0 35")
	for _, f := range []struct {
		what, pattern string
		in            *powerloss.Recording
		cuts          int
	}{
		{"of the log", "/node/controller/raft.db", begins, 1500},
		{"of a new log", "/node/controller/raft.db.tmp", begins, 1500},
		{"of the controller directory", "/node/controller", begins, 1500},
		{"of its parent", "/node", begins, 1500},
		{"of its grandparent", "/", begins, 1500},
		{"of a snapshot", "/node/controller/snapshots/*/state.bin", snapshots, 400},
		{"of a snapshot's description", "/node/controller/snapshots/*/meta.json", snapshots, 400},
		{"of a snapshot's directory", "/node/controller/snapshots/*.tmp", snapshots, 400},
		{"of the directory of all snapshots", "/node/controller/snapshots", snapshots, 400},
	} {
		forgetful, syncs := f.in.Omit(func(p string) bool {
			ok, err := path.Match(f.pattern, p)
			return ok && err == nil
		})
		if syncs == 0 {
			t.Errorf("there is no sync %s", f.what)
		}
		if _, _, err := cutStores(t, forgetful, storeSteps(1), 0, 1, f.cuts); err == nil {
			t.Errorf("%d power cuts do not show that the sync %s was forgotten", f.cuts, f.what)
		} else {
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("without the sync %s: %s", f.what, first)
		}
	}
}
