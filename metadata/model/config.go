package model

// Feature switches on steps.
type Feature uint32

// What a world may have in it, beside appends, PUTs and images.
const (
	Plain     Feature = 1 << iota // records without a producer on stream 0
	TwoStream                     // records on stream 1
	Producer                      // the idempotent producer, with retries
	Pipelined                     // it has two records in flight
	Flips                         // the owner gives streams away
	Packs                         // segment objects, and commits of them
	Adopts                        // commits of WAL slots as they are
	Trims                         // log starts move
	Repacks                       // WAL extents are replaced by segments
	Sweeps                        // slots and objects are deleted
	Fences                        // the controller fences, sealers seal
	Nameless                      // fences that name nobody
	Ahead                         // sealers fence ahead
	Directory                     // unsynced names, power loss
	Behind                        // processes apply images one by one, or skip some
	Impatient                     // a process packs before earlier commands are settled
)

// Config bounds a world. Every count is small; states grow exponentially in
// each.
type Config struct {
	Name     string
	Features Feature
	// Brokers registered at the start, by broker id; the first owns stream 0.
	Brokers []int32
	// SecondOwner is the index of the broker that owns stream 1 at the start.
	SecondOwner int
	// Restarts are broker ids that may register again, once each.
	Restarts []int32
	// Records, Slots, Offsets, Objects, Commands: at most so many appends in
	// all, slots per WAL, offsets per stream, objects and commands per process.
	Records, Slots, Offsets, Objects, Commands int
	// FenceLimit is how many Fence commands there are, Epochs the highest epoch.
	FenceLimit, Epochs int
	// OneSealer leaves out the second sealer.
	OneSealer bool
	// StateLimit ends an exploration early, 0: none. DepthLimit alike.
	StateLimit, DepthLimit int
	// Sample: every so many states one is brought to rest (liveness); 0: none.
	Sample int
}

func (c *Config) on(f Feature) bool { return c.Features&f != 0 }

// incarnations is how many there may be.
func (c *Config) incarnations() int { return len(c.Brokers) + len(c.Restarts) }
