package check_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// planter damages a correct history at a random place.
type planter struct {
	rng *rand.Rand
	h   *history.History
}

// pick draws one of the ops that suit, nil if none does.
func (p *planter) pick(suits func(o *history.Op) bool) *history.Op {
	var list []int
	for i := range p.h.Ops {
		if suits(&p.h.Ops[i]) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &p.h.Ops[list[p.rng.IntN(len(list))]]
}

// acked draws a record that was acknowledged and read at the end.
func (p *planter) acked() (history.Sent, *history.Op) {
	o := p.pick(func(o *history.Op) bool { return o.F == history.Send && o.Type == history.OK })
	return o.Sends[p.rng.IntN(len(o.Sends))], o
}

// polls changes what every op polled.
func (p *planter) polls(change func(o *history.Op, list []history.Polled) []history.Polled) {
	for i := range p.h.Ops {
		o := &p.h.Ops[i]
		o.Polls = change(o, slices.Clone(o.Polls))
	}
}

// hide takes a value out of what was polled by ops that suit.
func (p *planter) hide(v history.Value, suits func(o *history.Op) bool) {
	p.polls(func(o *history.Op, list []history.Polled) []history.Polled {
		if !suits(o) {
			return list
		}
		return slices.DeleteFunc(list, func(r history.Polled) bool { return r.Value == v })
	})
}

func any1(*history.Op) bool { return true }

func final(o *history.Op) bool { return o.Phase == history.Final }

func load(o *history.Op) bool {
	return o.Phase == "" && o.F == history.Poll && o.Type == history.OK && o.Spec == ""
}

// end is the highest offset read of a key.
func (p *planter) end(k history.Key) int64 {
	most := int64(-1)
	for i := range p.h.Ops {
		for _, r := range p.h.Ops[i].Polls {
			if r.Key == k {
				most = max(most, r.Offset)
			}
		}
	}
	return most
}

// reader draws a poll of a process that goes on to read a key, with the next
// poll of it that has some of the key.
func (p *planter) reader() (first, second *history.Op, k history.Key) {
	first = p.pick(func(o *history.Op) bool {
		if !load(o) || len(o.Polls) < 1 {
			return false
		}
		return p.next(o, o.Polls[len(o.Polls)-1].Key) != nil
	})
	if first == nil {
		return nil, nil, 0
	}
	k = first.Polls[len(first.Polls)-1].Key
	return first, p.next(first, k), k
}

func (p *planter) next(o *history.Op, k history.Key) *history.Op {
	for i := int(o.Index) + 1; i < len(p.h.Ops); i++ {
		n := &p.h.Ops[i]
		if n.Process != o.Process {
			continue
		}
		if n.F == history.Assign || n.F == history.Crash || n.F == history.Poll && n.Type != history.OK {
			return nil
		}
		if n.Spec == "" && slices.ContainsFunc(n.Polls, func(r history.Polled) bool { return r.Key == k }) {
			return n
		}
	}
	return nil
}

// plants are faults of a cluster, by the check that must find each. One that
// finds no place for itself is false.
var plants = map[string]func(p *planter) bool{
	"L1": func(p *planter) bool {
		s, _ := p.acked()
		o := p.pick(func(o *history.Op) bool {
			return slices.ContainsFunc(o.Polls, func(r history.Polled) bool { return r.Value == s.Value })
		})
		other := p.pick(func(o *history.Op) bool {
			return o.F == history.Send && o.Type == history.OK && o.Sends[0].Key == s.Key && o.Sends[0].Value != s.Value
		})
		if other == nil {
			return false
		}
		i := slices.IndexFunc(o.Polls, func(r history.Polled) bool { return r.Value == s.Value })
		o.Polls[i].Value = other.Sends[0].Value
		return true
	},
	"L2": func(p *planter) bool {
		s, _ := p.acked()
		o := &p.h.Ops[len(p.h.Ops)-1]
		o.Polls = append(o.Polls, history.Polled{Key: s.Key, Value: s.Value, Offset: p.end(s.Key) + 1})
		return true
	},
	"L3": func(p *planter) bool {
		s, _ := p.acked()
		if s.Offset == p.end(s.Key) {
			return false
		}
		p.hide(s.Value, any1)
		return true
	},
	"L4": func(p *planter) bool {
		s, _ := p.acked()
		p.hide(s.Value, any1)
		return true
	},
	"L5": func(p *planter) bool {
		_, o := p.acked()
		o.Type = history.Fail
		return true
	},
	"L7": func(p *planter) bool {
		first, _, k := p.reader()
		if first == nil {
			return false
		}
		// Its last record of the key goes, if it has one before it.
		i := len(first.Polls) - 1
		if i == 0 || first.Polls[i-1].Key != k {
			return false
		}
		first.Polls = first.Polls[:i]
		return true
	},
	"L8": func(p *planter) bool {
		first, second, k := p.reader()
		if first == nil {
			return false
		}
		i := slices.IndexFunc(second.Polls, func(r history.Polled) bool { return r.Key == k })
		second.Polls = slices.Insert(slices.Clone(second.Polls), i, first.Polls[len(first.Polls)-1])
		return true
	},
	"L9": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return load(o) && len(o.Polls) > 2 && o.Polls[0].Key == o.Polls[2].Key })
		if o == nil {
			return false
		}
		o.Polls = slices.Delete(slices.Clone(o.Polls), 1, 2)
		return true
	},
	"L10": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return load(o) && len(o.Polls) > 1 && o.Polls[0].Key == o.Polls[1].Key })
		if o == nil {
			return false
		}
		o.Polls[0], o.Polls[1] = o.Polls[1], o.Polls[0]
		return true
	},
	"L11": func(p *planter) bool {
		_, o := p.acked()
		k := o.Sends[0].Key
		for i := int(o.Index) + 1; i < len(p.h.Ops); i++ {
			n := &p.h.Ops[i]
			if n.Process == o.Process && n.Type == history.OK && len(n.Sends) > 0 && n.Sends[0].Key == k {
				o.Sends[0].Offset, n.Sends[0].Offset = n.Sends[0].Offset, o.Sends[0].Offset
				return true
			}
		}
		return false
	},
	"L12": func(p *planter) bool {
		_, o := p.acked()
		if len(o.Sends) < 2 || o.Sends[0].Key != o.Sends[1].Key {
			return false
		}
		o.Sends[0].Offset, o.Sends[1].Offset = o.Sends[1].Offset, o.Sends[0].Offset
		return true
	},
	"L18": func(p *planter) bool {
		_, o := p.acked()
		later := p.pick(func(n *history.Op) bool {
			return n.F == history.Send && n.Type == history.OK && n.Invoked > o.Completed && n.Sends[0].Key == o.Sends[0].Key
		})
		if later == nil {
			return false
		}
		later.Sends[0].Offset = o.Sends[0].Offset
		return true
	},
	"L19": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return len(o.Polls) > 0 })
		r := &o.Polls[p.rng.IntN(len(o.Polls))]
		switch p.rng.IntN(3) {
		case 0:
			r.Value = 1 << 40
		case 1:
			r.Damage = "CRC"
		default:
			r.Value = 0
		}
		return true
	},
	"L20": func(p *planter) bool {
		// The end of a log that was read is gone at the end.
		k := history.Key(p.rng.IntN(len(p.h.Header.Keys)))
		most := int64(-1)
		for i := range p.h.Ops {
			if o := &p.h.Ops[i]; o.Phase == "" {
				for _, r := range o.Polls {
					if r.Key == k {
						most = max(most, r.Offset)
					}
				}
			}
		}
		if most < 1 {
			return false
		}
		p.polls(func(o *history.Op, list []history.Polled) []history.Polled {
			if !final(o) {
				return list
			}
			return slices.DeleteFunc(list, func(r history.Polled) bool { return r.Key == k && r.Offset >= most })
		})
		return true
	},
	"L21": func(p *planter) bool {
		_, o := p.acked()
		if o.Sends[0].Offset == 0 {
			return false
		}
		for i := range o.Sends {
			o.Sends[i].Offset = int64(i)
		}
		return true
	},
	"L22": func(p *planter) bool {
		// A part of a batch of unknown outcome is not there.
		o := p.pick(func(o *history.Op) bool {
			return o.F == history.Send && o.Type == history.Info && len(o.Sends) > 1 && o.Sends[0].Key == o.Sends[1].Key && o.Sends[0].Offset < 0 &&
				p.read(o.Sends[0].Value) && p.read(o.Sends[1].Value)
		})
		if o == nil {
			return false
		}
		p.hide(o.Sends[p.rng.IntN(2)].Value, any1)
		return true
	},
	"L23": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool {
			return o.F == history.ListOffsets && o.Spec == "latest" && o.Offsets[0].Offset > 0 && p.known(o)
		})
		if o == nil {
			return false
		}
		o.Offsets[0].Offset = 0
		return true
	},
	"L24": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return o.F == history.ListOffsets && o.Spec == "latest" })
		if o == nil {
			return false
		}
		o.Offsets[0].Offset = p.end(o.Offsets[0].Key) + 5
		return true
	},
	"G1": func(p *planter) bool {
		// A member is given what another one holds.
		o := p.pick(func(o *history.Op) bool {
			n := len(o.Rebalance)
			return n > 0 && o.Rebalance[n-1].Kind == "assigned" && len(o.Rebalance[n-1].Keys) > 0
		})
		if o == nil {
			return false
		}
		e := o.Rebalance[len(o.Rebalance)-1]
		e.At++
		other := p.pick(func(n *history.Op) bool {
			return n.F == history.Poll && n.Group != "" && n.Process != o.Process && n.Gen == e.Gen && len(n.Rebalance) == 0
		})
		if other == nil {
			return false
		}
		other.Rebalance = []history.Rebalance{e}
		return true
	},
	"G3": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return o.F == history.Commit && o.Type == history.OK && o.Gen > 1 })
		if o == nil {
			return false
		}
		z := p.pick(func(n *history.Op) bool {
			return n.F == history.FetchCommitted && n.Invoked > o.Completed && n.Process != o.Process &&
				!slices.ContainsFunc(p.h.Ops[:n.Index], func(b history.Op) bool {
					return b.F == history.Commit && b.Process == n.Process && b.Gen >= o.Gen
				})
		})
		if z == nil {
			return false
		}
		z.F, z.Gen, z.Offsets = history.Commit, o.Gen-1, o.Offsets[:1]
		return true
	},
	"G4": func(p *planter) bool {
		o := p.pick(func(o *history.Op) bool { return o.F == history.FetchCommitted && o.Offsets[0].Offset > 0 })
		if o == nil {
			return false
		}
		o.Offsets = slices.Clone(o.Offsets)
		o.Offsets[0].Offset = -1
		return true
	},
	"V4": func(p *planter) bool {
		p.h.Events = append(p.h.Events, history.Event{At: 1, End: 2, Fault: "kill", Phase: "start"})
		return true
	},
	"V5": func(p *planter) bool {
		p.h.Ops = slices.DeleteFunc(p.h.Ops, func(o history.Op) bool { return final(&o) })
		return true
	},
}

// read says that a value was polled by anybody.
func (p *planter) read(v history.Value) bool {
	return slices.ContainsFunc(p.h.Ops, func(o history.Op) bool {
		return slices.ContainsFunc(o.Polls, func(r history.Polled) bool { return r.Value == v })
	})
}

// known says that something of the key was acknowledged before an op.
func (p *planter) known(o *history.Op) bool {
	return slices.ContainsFunc(p.h.Ops, func(s history.Op) bool {
		return s.Type == history.OK && s.Completed < o.Invoked && slices.ContainsFunc(s.Sends, func(s history.Sent) bool { return s.Key == o.Offsets[0].Key })
	})
}

// Every kind of anomaly that is put into a correct history at a random place is
// found by its check.
func TestPlantedAnomaliesAreFound(t *testing.T) {
	for _, id := range ids() {
		plant := plants[id]
		if plant == nil {
			continue
		}
		t.Run(id, func(t *testing.T) {
			planted := 0
			for seed := uint64(0); seed < 60 && planted < 6; seed++ {
				o := shapes[1]
				if id[0] == 'G' {
					o = shapes[4]
				}
				p := &planter{rng: rand.New(rand.NewPCG(seed, 2)), h: generate(seed, o)}
				if !plant(p) {
					continue
				}
				planted++
				s := check.All(p.h, nil)
				i := slices.IndexFunc(s.Results, func(r check.Result) bool { return r.ID == id })
				if i < 0 || s.Results[i].Verdict == check.Valid || id[0] != 'V' && s.Results[i].Verdict != check.Invalid {
					t.Errorf("seed %d: not found: %s", seed, found(s))
				}
			}
			if planted == 0 {
				t.Error("it found no place in any history")
			}
		})
	}
}

// Whatever a history says, it is judged.
func TestNoHistoryStopsTheChecks(t *testing.T) {
	for seed := range uint64(90) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := generate(seed, shapes[seed%uint64(len(shapes))])
		number := func() int64 { return []int64{-1, 0, 1, 7, 1 << 40, 1<<63 - 1, -1 << 63}[rng.IntN(7)] }
		for range 1 + rng.IntN(30) {
			o := &h.Ops[rng.IntN(len(h.Ops))]
			switch rng.IntN(9) {
			case 0:
				o.Type = []history.Outcome{history.OK, history.Fail, history.Info}[rng.IntN(3)]
			case 1:
				o.Process = int32(rng.IntN(5))
			case 2:
				o.F = []history.Func{history.Assign, history.Subscribe, history.Send, history.Poll, history.ListOffsets, history.Commit, history.DeleteRecords, history.Leave}[rng.IntN(8)]
			case 3:
				o.Invoked = number()
			case 4:
				o.Gen, o.Group = int32(number()), "g"
			case 5:
				for i := range o.Sends {
					o.Sends[i].Offset = number()
				}
			case 6:
				for i := range o.Polls {
					o.Polls[i].Offset = number()
				}
			case 7:
				for i := range o.Offsets {
					o.Offsets[i].Offset, o.Offsets[i].Asked = number(), number()
				}
			default:
				o.Phase, o.Spec = history.Final, "all"
			}
		}
		if s := check.All(h, nil); s.Verdict == "" {
			t.Error(s)
		}
	}
}

func found(s check.Summary) string {
	invalid, tolerated, unknown := verdicts(s)
	return fmt.Sprintf("invalid %q, tolerated %q, unknown %q", invalid, tolerated, unknown)
}
