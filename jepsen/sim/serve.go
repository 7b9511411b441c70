package sim

import (
	"sort"
	"time"
)

// maxStale is how old the truth in an answer to a fetch may be (ans-2).
const maxStale = 10 * time.Second

// marks checks high watermarks against what was acknowledged maxStale before
// they were asked for.
func (c *check) marks() {
	type point struct {
		at    time.Duration
		floor int64
	}
	floors := map[TP][]point{}
	for _, a := range c.h.mu.acks { // in order of time
		f := floors[a.TP]
		if n := len(f); n == 0 || f[n-1].floor <= a.Offset {
			floors[a.TP] = append(f, point{a.At, a.Offset + 1})
		}
	}
	for _, m := range c.h.mu.marks {
		f, before := floors[m.TP], m.Asked-maxStale
		n := sort.Search(len(f), func(i int) bool { return f[i].at > before })
		if n > 0 && m.Offset < f[n-1].floor {
			c.fail("stale", m.TP, "asked at %v the high watermark was %d; %d was acknowledged at %v", m.Asked, m.Offset, f[n-1].floor-1, f[n-1].at)
		}
	}
}

// gapOfService is how long a partition that must be served may be silent.
const gapOfService = 4 * time.Second

// served checks the times in which partitions must have been served.
func (c *check) served() {
	for _, s := range c.h.mu.served {
		taken, given := s.Begin, s.Begin
		hole := func(what string, last *time.Duration, at time.Duration) {
			if at < s.Begin {
				return
			}
			if at = min(at, s.End); at-*last > gapOfService {
				c.fail("unserved", s.TP, "it %s no record from %v to %v, though its owner lived", what, *last, at)
			}
			*last = max(*last, at)
		}
		for _, a := range c.h.mu.acks {
			if a.TP == s.TP {
				hole("took", &taken, a.At)
			}
		}
		hole("took", &taken, s.End)
		for _, p := range c.h.mu.polls {
			if p.TP == s.TP && p.Consumer == 1 {
				hole("gave", &given, p.At)
			}
		}
		hole("gave", &given, s.End)
	}
}
