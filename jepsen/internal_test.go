package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/jepsen/history"
	"ponor/jepsen/nemesis"
	"ponor/jepsen/workload"
)

// files are those below a directory, and directories that are empty.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		inside, err := os.ReadDir(path)
		if !d.IsDir() || err == nil && len(inside) == 0 {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A run that could not begin leaves nothing but the logs that may say why, and the
// directory that was there before.
func TestDiscard(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx context.Context
		why error
		log bool
	}{
		"a broker refused":    {t.Context(), fmt.Errorf("create topic t: %w", kerr.InvalidReplicationFactor), false},
		"an impossible fault": {t.Context(), fmt.Errorf("%w: halves", nemesis.ErrImpossible), false},
		"a node ended":        {t.Context(), errors.New("wait for the node"), true},
		"interrupted":         {stopped, errors.New("wait for the node"), false},
	} {
		for _, there := range []bool{false, true} {
			base := t.TempDir()
			out := filepath.Join(base, "runs", "one")
			r := &run{o: Options{Out: out}, say: newTeller(io.Discard, false), opened: true}
			if !there {
				r.made = []string{out, filepath.Dir(out)}
			}
			for _, file := range []string{HistoryFile, "cluster/node1.log", "cluster/node1/raft/log", "cluster/store/PONOR"} {
				path := filepath.Join(out, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := r.discard(c.ctx, c.why)
			if !errors.Is(err, c.why) || strings.Contains(err.Error(), "logs are in") != c.log {
				t.Errorf("%s: %v", name, err)
			}
			var want []string
			switch {
			case c.log:
				want = []string{"runs/one/cluster/node1.log"}
			case there:
				want = []string{"runs/one"}
			}
			if got := files(t, base); !slices.Equal(got, want) {
				t.Errorf("%s, directory there before: %v: left %v, want %v", name, there, got, want)
			}
		}
	}
}

// A cluster that does not start leaves its logs, one that is interrupted nothing.
func TestRunThatCannotStart(t *testing.T) {
	o := Options{Options: workload.Options{Time: 1}, Workload: "queue", Binary: "false", Nodes: 1, Output: io.Discard, Out: filepath.Join(t.TempDir(), "run")}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "logs are in") {
		t.Errorf("a node that ends at once: %v", err)
	}
	if got := files(t, filepath.Dir(o.Out)); !slices.Equal(got, []string{"run/cluster/node1.log"}) {
		t.Errorf("left %v", got)
	}
	o.Out = filepath.Join(t.TempDir(), "run")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(stopped, o); err == nil || !strings.Contains(err.Error(), "interrupted before the load began") {
		t.Errorf("interrupted: %v", err)
	}
	if got := files(t, filepath.Dir(o.Out)); len(got) > 0 {
		t.Errorf("left %v", got)
	}
}

// A workload's own faults are those for which there are enough nodes.
func TestPossible(t *testing.T) {
	if got := possible([]string{"kill", "pause", "move"}, 1); !slices.Equal(got, []string{"kill", "pause"}) {
		t.Errorf("one node can have %v", got)
	}
	if got := possible([]string{"kill", "move"}, 2); !slices.Equal(got, []string{"kill", "move"}) {
		t.Errorf("two nodes can have %v", got)
	}
}

func TestEventText(t *testing.T) {
	for want, e := range map[string]history.Event{
		"kill: node 1, node 2 (pid 5 is gone)":                                                            {Fault: "kill", Phase: "start", Target: []string{"node 1", "node 2"}, Proof: "pid 5 is gone"},
		"move could not be done: partitions: no partition had another leader within 15s":                  {Fault: "move", Phase: "start", Target: []string{"partitions"}, Err: "no partition had another leader within 15s"},
		"kill is undone: node 1 (pid 7 state S)":                                                          {Fault: "kill", Phase: "stop", Target: []string{"node 1"}, Proof: "pid 7 state S"},
		"kill could not be undone: node 1: no such file (pid 5 is gone)":                                  {Fault: "kill", Phase: "stop", Target: []string{"node 1"}, Proof: "pid 5 is gone", Err: "no such file"},
		"everything is undone, all nodes serve":                                                           {Fault: "heal", Phase: "heal", Target: []string{"node 1"}, Proof: "pid 7 state S"},
		"not everything could be undone: node 1: it lists 2 of 3 brokers; node 2 is gone (pid 7 state S)": {Fault: "heal", Phase: "heal", Target: []string{"node 1"}, Proof: "pid 7 state S", Err: "it lists 2 of 3 brokers\nnode 2 is gone"},
	} {
		if got := eventText(&e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
