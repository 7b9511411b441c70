package model

// Worlds are the bounded worlds that are exhausted with two incarnations. Each
// leaves out what has no bearing on its subject; together they have every step.
// With small they are bounded so that all take seconds.
func Worlds(small bool) []Config {
	base := Config{Brokers: []int32{1, 2}, Records: 3, Slots: 3, Offsets: 3, Objects: 2, Commands: 3, FenceLimit: 2, Epochs: 4, Sample: 50, StateLimit: 12_000_000}
	if small {
		base.Records, base.Slots, base.Commands, base.FenceLimit, base.StateLimit = 2, 2, 2, 1, 80_000
	}
	in := func(name string, f Feature, change func(*Config)) Config {
		c := base
		c.Name, c.Features = name, f
		if change != nil && !small {
			change(&c)
		}
		return c
	}
	restart := in("restart", Producer|Fences|Packs|Sweeps, func(c *Config) { c.FenceLimit = 1 })
	restart.Brokers, restart.Restarts = []int32{1}, []int32{1}
	return []Config{
		in("takeover", Producer|Pipelined|Fences|Nameless|Ahead, nil),
		in("streams", TwoStream|Producer|Fences|Flips, func(c *Config) { c.Records, c.Slots, c.Commands, c.FenceLimit = 2, 2, 2, 1 }),
		in("two packs", TwoStream|Plain|Flips|Packs|Adopts, func(c *Config) { c.Records, c.Slots = 2, 2 }),
		in("move", Producer|Flips|Fences, func(c *Config) { c.Slots, c.FenceLimit = 2, 1 }),
		in("to and fro", Plain|Flips, func(c *Config) { c.Commands = 4 }),
		in("behind", Producer|Flips|Fences|Behind, func(c *Config) { c.Records, c.Slots, c.FenceLimit = 2, 2, 1 }),
		in("pack", Producer|Packs|Adopts|Sweeps|Fences, nil),
		in("repack", Plain|Flips|Repacks|Sweeps, nil),
		in("trim", Producer|Plain|Packs|Trims|Flips, func(c *Config) { c.Slots = 2 }),
		in("power", Producer|Directory|Fences|Packs, nil),
		restart,
	}
}

// WalkWorlds have three incarnations and everything in them, for random walks.
func WalkWorlds() []Config {
	all := Plain | TwoStream | Producer | Pipelined | Flips | Packs | Adopts | Trims | Repacks | Sweeps | Fences | Nameless | Ahead | Behind
	base := Config{
		Brokers: []int32{1, 2}, SecondOwner: 1, Restarts: []int32{1}, Records: maxRecords, Slots: maxSlots, Offsets: maxOffsets,
		Objects: 3, Commands: 6, FenceLimit: 4, Epochs: 6, Features: all, Sample: 50, Name: "walk restart",
	}
	three := base
	three.Name, three.Brokers, three.Restarts = "walk three", []int32{1, 2, 3}, nil
	power := base
	power.Name, power.Features = "walk power", all|Directory
	return []Config{base, three, power}
}
