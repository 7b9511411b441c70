package check_test

import (
	"fmt"
	"testing"

	"ponor/jepsen/check"
)

// shapes are the kinds of runs that the model makes.
var shapes = []options{
	{keys: 1, clients: 4, ops: 200, idempotent: true},
	{keys: 3, clients: 6, ops: 600, idempotent: true},
	{keys: 4, clients: 8, ops: 800, idempotent: false},
	{keys: 3, clients: 6, ops: 600, idempotent: true, deletes: true},
	{keys: 5, clients: 9, ops: 800, idempotent: true, grouped: true},
	{keys: 2, clients: 12, ops: 600, idempotent: false, grouped: true, deletes: true},
}

// Histories of a correct cluster have no anomaly, and nothing is unknown.
func TestCorrectHistoriesAreValid(t *testing.T) {
	for n, o := range shapes {
		for seed := range uint64(15) {
			t.Run(fmt.Sprintf("shape %d seed %d", n, seed), func(t *testing.T) {
				h := generate(seed, o)
				s := check.All(h, nil)
				for _, r := range s.Results {
					if r.Verdict == check.Invalid || r.Verdict == check.Unknown && !r.Optional {
						t.Errorf("%s %s: %s, %s %+v", r.ID, r.Name, r.Verdict, r.Note, r.Worst)
					}
				}
				if t.Failed() {
					t.Log(s.Why)
				}
			})
		}
	}
}
