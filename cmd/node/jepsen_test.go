package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/jepsen/history"
)

// What cannot be run exits with 3 and says what to write, and leaves nothing
// behind.
func TestJepsenRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"needs transactions":      {"run", "-w", "bank"},
		"unknown workload":        {"run", "-w", "meteor"},
		"unknown nemesis":         {"run", "-n", "meteor"},
		"are positive":            {"run", "--time", "-1s"},
		"for a cluster that":      {"run", "--kill-cmd", "true"},
		"of the run's own":        {"run", "--nodes", "5", "--bootstrap", "127.0.0.1:1"},
		"unknown flag":            {"run", "--meteor"},
		"no such file":            {"check", "nothing"},
		"not a flag but argument": {"run", "extra"},
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"jepsen"}, args...), nil, &out, &errOut)
		if strings.HasPrefix(want, "not a flag") {
			want = "one argument too many"
			if code != exitUsage && code != exitNotRun {
				t.Errorf("%v exits with %d", args, code)
			}
		} else if code != exitNotRun {
			t.Errorf("%v exits with %d", args, code)
		}
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("%v says %q, want %q", args, errOut.String(), want)
		}
	}
	if list, err := os.ReadDir("."); err != nil || len(list) > 0 {
		t.Errorf("left %v, %v", list, err)
	}
}

// An old history is judged again, and the exit code says how.
func TestJepsenCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(value history.Value) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, "history.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := history.NewWriter(f, history.Header{Keys: []history.Partition{{Topic: "t"}}, Idempotent: true, Floor: 1})
		w.Op(&history.Op{Process: 1, F: history.Send, Invoked: 1, Completed: 2, Type: history.OK, Sends: []history.Sent{{Value: 1}}})
		w.Op(&history.Op{Process: 2, F: history.Assign, Phase: history.Final, Keys: []history.Key{0}, Seek: true, Invoked: 3, Completed: 4, Type: history.OK})
		w.Op(&history.Op{Process: 2, F: history.Poll, Phase: history.Final, Polls: []history.Polled{{Value: value}}, Invoked: 5, Completed: 6, Type: history.OK})
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want int, text string) {
		t.Helper()
		var out, errOut bytes.Buffer
		code := run([]string{"jepsen", "check", dir}, nil, &out, &errOut)
		if code != want || !strings.Contains(out.String(), text) {
			t.Errorf("exits with %d, says %s%s", code, out.String(), errOut.String())
		}
		for _, file := range []string{"results.json", "report.html"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
	}
	write(2) // that nobody sent, where another was acknowledged
	check(exitError, "INVALID: ")
	write(1)
	var out bytes.Buffer
	if code := run([]string{"jepsen", "check", dir}, nil, &out, &out); code == exitError || code == exitNotRun {
		t.Errorf("a good history exits with %d: %s", code, out.String())
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"a,b": "a,b", "": "''", "ssh b kill": "'ssh b kill'", "it's": `'it'\''s'`} {
		if got := shellQuote(in); got != want {
			t.Errorf("%q is quoted as %s, want %s", in, got, want)
		}
	}
}
