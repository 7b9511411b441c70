package check_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// ids of all checks but L16, which only measures.
func ids() []string {
	var list []string
	for _, c := range []struct {
		letter string
		n      int
	}{{"L", 27}, {"G", 7}, {"M", 10}, {"S", 12}, {"V", 6}} {
		for i := 1; i <= c.n; i++ {
			if id := fmt.Sprintf("%s%d", c.letter, i); id != "L16" {
				list = append(list, id)
			}
		}
	}
	return list
}

func read(t *testing.T, path string) (*history.History, *check.White) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		t.Fatal(path, err)
	}
	data, err := os.ReadFile(strings.TrimSuffix(path, ".jsonl") + ".white.json")
	if os.IsNotExist(err) {
		return h, nil
	}
	w := &check.White{}
	if err := json.Unmarshal(data, w); err != nil {
		t.Fatal(path, err)
	}
	return h, w
}

// verdicts are the ids that are invalid, that tolerate something, and that are
// unknown and keep a run from being valid.
func verdicts(s check.Summary) (invalid, tolerated, unknown string) {
	var out [3][]string
	for _, r := range s.Results {
		switch {
		case r.Verdict == check.Invalid:
			out[0] = append(out[0], r.ID)
		case r.Verdict == check.Unknown && !r.Optional:
			out[2] = append(out[2], r.ID)
		case r.Count > 0:
			out[1] = append(out[1], r.ID)
		}
	}
	return strings.Join(out[0], " "), strings.Join(out[1], " "), strings.Join(out[2], " ")
}

// Every golden history is judged as its header says: a bad one is flagged by
// exactly the checks named there, a good one by none. Each check has both.
func TestGoldenHistories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	good, bad := map[string]bool{}, map[string]bool{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(name, func(t *testing.T) {
			h, w := read(t, path)
			s := check.All(h, w)
			want := h.Header.Settings
			invalid, tolerated, unknown := verdicts(s)
			if invalid != want["invalid"] || tolerated != want["tolerated"] || unknown != want["unknown"] {
				t.Errorf("invalid %q, tolerated %q, unknown %q; want %q", invalid, tolerated, unknown, want)
				for _, r := range s.Results {
					if r.Count > 0 || r.Verdict != check.Valid {
						t.Logf("%s %s %s: %s %+v", r.ID, r.Name, r.Verdict, r.Note, r.Worst)
					}
				}
			}
			verdict := check.Valid
			if want["invalid"] != "" {
				verdict = check.Invalid
			} else if want["unknown"] != "" {
				verdict = check.Unknown
			}
			if s.Verdict != verdict {
				t.Errorf("the run is %s, want %s", s.Verdict, verdict)
			}
			id, _, _ := strings.Cut(name, "-")
			if strings.HasSuffix(name, "-good") {
				good[id] = true
				if want["invalid"]+want["unknown"] != "" {
					t.Errorf("%s is no good history: %v", name, want)
				}
			} else if strings.Contains(" "+want["invalid"]+" "+want["tolerated"]+" "+want["unknown"]+" ", " "+id+" ") {
				bad[id] = true
			} else {
				t.Errorf("%s is not flagged by %s: %v", name, id, want)
			}
			if again := check.All(h, w); !reflect.DeepEqual(again, s) {
				t.Error("judged another way when judged again")
			}
		})
	}
	for _, id := range ids() {
		if !good[id] || !bad[id] {
			t.Errorf("%s has a good history: %v, a bad one: %v", id, good[id], bad[id])
		}
	}
}
