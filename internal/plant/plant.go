// Package plant names bugs that are put into the product to prove that the
// correctness tests find them. They exist only in a binary built with the tag
// plant, one at a time, chosen by the environment variable PONOR_PLANT; in every
// other binary On is false at compile time and nothing of them is left.
//
// docs/jepsen.md, "Planted bugs", has the table of who finds which.
package plant

// Bug is a planted bug. The numbers follow the table.
type Bug string

// Bugs.
const (
	AckEarly        Bug = "P1"  // a slot is acknowledged, and written 200 ms later
	SkipFence       Bug = "P2"  // a writer takes a fence for its own slot
	NoProof         Bug = "P3"  // an owner answers without proof that it still is one
	ForgetProducers Bug = "P4"  // what is known of producers is lost on a move
	OffsetZero      Bug = "P8"  // a batch whose outcome is unknown is answered with success at offset 0
	SweepFences     Bug = "P9"  // the sweep takes fences for garbage
	SweepPending    Bug = "P10" // ... and objects that are about to be referenced
	OwnIsForeign    Bug = "P11" // a writer takes its own slot for a foreign one
	SealEarly       Bug = "P12" // a takeover counts one slot too few
	AnswerEarly     Bug = "P16" // a coordinator answers before its records are durable
	AnyGeneration   Bug = "P17" // a coordinator takes commits of any generation
	TornPut         Bug = "P18" // some slots are stored without their end
	StaleMemory     Bug = "P19" // a stream that comes back is read from what memory had of it
	MapOrder        Bug = "P20" // a command is applied in an order that nodes do not share
	EmptyOnError    Bug = "P22" // a fetch that fails answers with nothing and no error
)
