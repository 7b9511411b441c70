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
	for line, want := range map[string]string{
		"run -w bank":                  "needs transactions",
		"run -w meteor":                "unknown workload",
		"run -n meteor":                "unknown nemesis",
		"run -n kill,none":             "no other fault",
		"run --time -1s":               "are positive",
		"run --interval 0s":            "are positive",
		"run --op-timeout -1s":         "are positive",
		"run --final-timeout 0s":       "are positive",
		"run --kill-cmd true":          "for a cluster that",
		"run --nodes 1 -n halves":      "fault halves needs --nodes 2 or more",
		"run --nodes 2 -n kill,bridge": "fault bridge needs --nodes 3 or more",
		"run -n pause-kill --kill-cmd true --start-cmd true -b 127.0.0.1:1": "fault pause-kill needs --pause-cmd",
		"run --nodes 5 --bootstrap 127.0.0.1:1":                             "of the run's own",
		"run -n kill --bootstrap 127.0.0.1:1":                               "fault kill needs --kill-cmd",
		"run -n kill-all --kill-cmd true -b 127.0.0.1:1":                    "fault kill-all needs --start-cmd",
		"run -n restart --start-cmd true -b 127.0.0.1:1":                    "fault restart needs --stop-cmd",
		"run -n pause --pause-cmd true -b 127.0.0.1:1":                      "fault pause needs --resume-cmd",
		"run --client meteor":                                               "unknown client",
		"run --client kgo --client-cmd true":                                "do not go together",
		"run --client java -w register":                                     "franz-go alone",
		"run --client-cmd true -w verify":                                   "franz-go alone",
		"run --meteor":                                                      "unknown flag",
		"run extra":                                                         "one argument too many",
		"check nothing":                                                     "no such file",
		"check":                                                             "FILE|DIR is missing",
		"check --meteor":                                                    "unknown flag",
		"list extra":                                                        "one argument too many",
		"list --meteor":                                                     "unknown flag",
		"meteor":                                                            "has no command",
		"--meteor":                                                          "unknown flag",
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"jepsen"}, strings.Fields(line)...), nil, &out, &errOut)
		if code != exitNotRun {
			t.Errorf("%s exits with %d", line, code)
		}
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("%s says %q, want %q", line, errOut.String(), want)
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
