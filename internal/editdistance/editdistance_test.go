package editdistance_test

import (
	"testing"

	"ponor/internal/editdistance"
)

func TestDistanceCountsInsertedRemovedAndReplacedBytes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"advertize", "advertise", 1}, {"nodeid", "node-id", 1}} {
		if got := editdistance.Of(c.a, c.b); got != c.want {
			t.Errorf("%q and %q are %d apart, want %d", c.a, c.b, got, c.want)
		}
	}
}
