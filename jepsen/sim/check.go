package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Violation is one broken promise of the cluster.
type Violation struct {
	// Rule is the short name of the promise, see Check.
	Rule string
	TP   TP
	Text string
}

// String is the violation in one line.
func (v Violation) String() string {
	if v.TP == (TP{}) {
		return fmt.Sprintf("%s: %s", v.Rule, v.Text)
	}
	return fmt.Sprintf("%s: %s: %s", v.Rule, v.TP, v.Text)
}

// maxPerRule bounds how many violations of one rule and partition are told.
const maxPerRule = 5

// Check proves the promises to clients over a history whose partitions were all
// read to the end at the end. The rules:
//
//	lost        an acknowledged record is at its offset at the end, unless it
//	            was deleted by an administrator
//	conflict    an offset has one record, whoever says so: acknowledgement,
//	            consumer, final read
//	phantom     every record seen was sent to this partition
//	damaged     a record's bytes are those that were sent
//	duplicate   a record of an idempotent producer appears once
//	reordered   records of an idempotent producer appear in the order sent
//	gap         offsets of the final log are contiguous
//	skipped     a consumer sees every offset in turn
//	realtime    a record sent after another was acknowledged is behind it
//	regress     the end never goes back, nor below what was acknowledged
//	undeleted   what was deleted and confirmed is not read again
//	unread      a consumer saw what the final log does not have
//	unavailable a partition with acknowledged records can be read at the end
//	stale       the high watermark in an answer to a fetch was true at most 10 s
//	            before it was asked for
//	unserved    a partition whose owner lived took and gave records while there
//	            was no metadata quorum
//	noted       somebody saw it directly
//	alarm       no node logs an error, but that it was fenced (not by Check)
func Check(h *History) []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &check{h: h, counts: map[string]int{}}
	for _, n := range h.mu.notes {
		c.fail("noted", TP{}, "%s", n)
	}
	c.partitions()
	c.consumers()
	c.ends()
	c.marks()
	c.served()
	return c.found
}

type check struct {
	h      *History
	found  []Violation
	counts map[string]int
}

func (c *check) fail(rule string, tp TP, format string, args ...any) {
	key := rule + tp.String()
	if c.counts[key]++; c.counts[key] > maxPerRule {
		return
	}
	c.found = append(c.found, Violation{Rule: rule, TP: tp, Text: fmt.Sprintf(format, args...)})
}

// holder is who first said what an offset holds.
type holder struct {
	record Record
	who    string
}

// partitions checks every final log against acknowledgements and polls.
func (c *check) partitions() {
	m := &c.h.mu
	acks, polls := map[TP][]Ack{}, map[TP][]Poll{}
	for _, a := range m.acks {
		acks[a.TP] = append(acks[a.TP], a)
	}
	for _, p := range m.polls {
		polls[p.TP] = append(polls[p.TP], p)
	}
	all := map[TP]bool{}
	for tp := range m.final {
		all[tp] = true
	}
	for tp := range acks {
		all[tp] = !m.gone[tp]
	}
	maps.DeleteFunc(all, func(_ TP, wanted bool) bool { return !wanted })
	for _, tp := range slices.SortedFunc(maps.Keys(all), compareTP) {
		if _, read := m.final[tp]; !read {
			if len(acks[tp]) > 0 {
				c.fail("unavailable", tp, "%d acknowledged records, and the partition could not be read at the end", len(acks[tp]))
			}
			continue
		}
		c.partition(tp, m.final[tp], acks[tp], polls[tp])
	}
}

func compareTP(a, b TP) int { return strings.Compare(a.String(), b.String()) }

func (c *check) partition(tp TP, log []Poll, acks []Ack, polls []Poll) {
	at := map[int64]holder{}
	say := func(offset int64, r Record, who string) {
		if old, ok := at[offset]; ok && old.record != r {
			c.fail("conflict", tp, "offset %d holds record %d says %s, and record %d says %s", offset, old.record, old.who, r, who)
			return
		}
		at[offset] = holder{r, who}
	}
	next := c.h.mu.starts[tp]
	if trimmed := c.h.mu.trim[tp]; next < trimmed {
		c.fail("undeleted", tp, "the log begins at %d, deletion up to %d was confirmed", next, trimmed)
	}
	for _, r := range log {
		if r.Offset != next {
			c.fail("gap", tp, "offset %d follows %d in the final log", r.Offset, next-1)
		}
		next = r.Offset + 1
		say(r.Offset, r.Record, "the final log")
		c.origin(tp, r)
	}
	for _, p := range polls {
		say(p.Offset, p.Record, fmt.Sprintf("consumer %d", p.Consumer))
		c.origin(tp, p)
		if p.Offset >= next {
			c.fail("unread", tp, "consumer %d saw record %d at offset %d, the final log ends at %d", p.Consumer, p.Record, p.Offset, next)
		}
	}
	for _, a := range acks {
		say(a.Offset, a.Record, "its acknowledgement")
		if s := c.h.mu.sends[a.Record]; a.Offset < s.Floor {
			c.fail("realtime", tp, "record %d got offset %d, though offset %d had been acknowledged before it was sent", a.Record, a.Offset, s.Floor-1)
		}
		deleted := a.Offset < c.h.mu.trims[tp]
		if a.Offset >= next || a.Offset < c.h.mu.starts[tp] && !deleted {
			c.fail("lost", tp, "record %d was acknowledged at offset %d; the final log has [%d, %d)", a.Record, a.Offset, c.h.mu.starts[tp], next)
		}
	}
	c.producers(tp, at)
}

// origin checks that a record seen in a partition was sent there, undamaged.
func (c *check) origin(tp TP, p Poll) {
	s, sent := c.h.mu.sends[p.Record]
	switch {
	case p.Damage != "":
		c.fail("damaged", tp, "offset %d: %s", p.Offset, p.Damage)
	case !sent:
		c.fail("phantom", tp, "offset %d holds record %d, which nobody sent", p.Offset, p.Record)
	case s.TP != tp:
		c.fail("phantom", tp, "offset %d holds record %d, which was sent to %s", p.Offset, p.Record, s.TP)
	}
}

// producers checks each idempotent producer's records in a log: once, in order.
func (c *check) producers(tp TP, at map[int64]holder) {
	last := map[int]Record{}
	where := map[Record]int64{}
	for _, o := range slices.Sorted(maps.Keys(at)) {
		r := at[o].record
		p := c.h.mu.sends[r].Producer
		if !p.Idempotent {
			continue
		}
		if first, ok := where[r]; ok {
			c.fail("duplicate", tp, "record %d is at offset %d and at %d", r, first, o)
			continue
		}
		where[r] = o
		if last[p.ID] > r {
			c.fail("reordered", tp, "record %d at offset %d is behind record %d of the same producer", r, o, last[p.ID])
		}
		last[p.ID] = max(last[p.ID], r)
	}
}

// consumers checks that each of them saw every offset in turn.
func (c *check) consumers() {
	type key struct {
		consumer int
		tp       TP
	}
	next := map[key]int64{}
	for _, p := range c.h.mu.polls {
		if p.Consumer == Asker {
			continue
		}
		k := key{p.Consumer, p.TP}
		want, begun := next[k]
		if begun && p.Offset != want {
			// What was deleted meanwhile may be missing.
			if p.Offset < want || p.Offset > c.h.mu.trims[p.TP] {
				c.fail("skipped", p.TP, "consumer %d saw offset %d after %d", p.Consumer, p.Offset, want-1)
			}
		}
		next[k] = p.Offset + 1
	}
}

// ends checks answers about the end of a partition.
func (c *check) ends() {
	for _, e := range c.h.mu.ends {
		if e.Offset < e.Floor {
			c.fail("regress", e.TP, "end is %d, it was at least %d before the question", e.Offset, e.Floor)
		}
	}
}
