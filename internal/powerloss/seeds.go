package powerloss

import "flag"

// The flags of every test binary that cuts the power. This package is for tests
// only.
var (
	seeds = flag.Int("powerloss.seeds", 0, "how many power cuts (histories of a local log) each test tries; 0 is its own few")
	seed  = flag.Uint64("powerloss.seed", 1, "the first seed")
)

// Seeds are the first seed and the number of seeds that the flags ask for; few
// is the number without them.
func Seeds(few int) (first uint64, n int) {
	if *seeds > 0 {
		few = *seeds
	}
	return *seed, few
}
