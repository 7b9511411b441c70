package check_test

import (
	"fmt"
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// shapes are the kinds of runs that the model makes.
var shapes = []options{
	{keys: 1, clients: 4, ops: 200, idempotent: true},
	{keys: 3, clients: 6, ops: 600, idempotent: true},
	{keys: 4, clients: 8, ops: 800, idempotent: false},
	{keys: 3, clients: 6, ops: 600, idempotent: true, deletes: true},
	{keys: 5, clients: 9, ops: 800, idempotent: true, grouped: true},
	{keys: 2, clients: 6, ops: 500, idempotent: true, retained: true},
	{keys: 2, clients: 6, ops: 500, idempotent: true, compacted: true},
	{keys: 3, clients: 8, ops: 500, idempotent: false, retained: true, deletes: true, grouped: true},
	{keys: 2, clients: 12, ops: 600, idempotent: false, grouped: true, deletes: true},
}

// Histories of a correct cluster have no anomaly, and nothing is unknown. Every
// check that clients' histories can feed looked at some of them.
func TestCorrectHistoriesAreValid(t *testing.T) {
	looked := map[string]int64{}
	for n, o := range shapes {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("shape %d seed %d", n, seed), func(t *testing.T) {
				h := generate(seed, o)
				if seed%2 == 1 {
					h.Header.Nemesis = []string{"kill"}
					h.Events = []history.Event{
						{At: 10 * ms, End: 12 * ms, Fault: "kill", Phase: "start", Proof: "pid 1 is gone"},
						{At: 60 * ms, End: 70 * ms, Fault: "kill", Phase: "stop"}, {At: 80 * ms, End: 90 * ms, Fault: "heal", Phase: "heal"},
					}
				}
				for _, r := range check.All(h, nil).Results {
					looked[r.ID] += r.Checked
					if r.Verdict == check.Invalid || r.Verdict == check.Unknown && !r.Optional {
						t.Errorf("%s %s: %s, %s %+v", r.ID, r.Name, r.Verdict, r.Note, r.Worst)
					}
				}
			})
		}
	}
	for _, id := range ids() {
		// L6 is of transactions, L25, M and S of what is inside, G7 of clients that
		// commit by themselves, M5, M7 and M9 of topics.
		if inside := id[0] == 'S' || id[0] == 'M' && id != "M6" || id == "L6" || id == "L25" || id == "G7"; !inside && looked[id] == 0 {
			t.Errorf("%s looked at nothing", id)
		}
	}
}
