package sim_test

import (
	"testing"
	"time"

	"ponor/jepsen/sim"
)

// story tells a history; each verb is one thing that happened.
type story struct {
	*sim.History
	log []sim.Poll
}

var (
	tp   = sim.TP{Topic: "t"}
	idem = sim.Producer{ID: 1, Idempotent: true}
)

func (s *story) acked(offset int64) sim.Record {
	r := s.Send(idem, tp)
	s.Ack(r, offset)
	return r
}

func (s *story) has(offset int64, r sim.Record) {
	s.log = append(s.log, sim.Poll{TP: tp, Offset: offset, Record: r})
}

func (s *story) saw(offset int64, r sim.Record) {
	s.Poll(sim.Poll{Consumer: 7, TP: tp, Offset: offset, Record: r})
}

// TestCheckFindsEachAnomaly gives the checker a history per rule that breaks
// that rule, and one that breaks none.
func TestCheckFindsEachAnomaly(t *testing.T) {
	cases := map[string]func(*story){
		"": func(s *story) {
			a, b := s.acked(0), s.acked(1)
			c := s.Send(idem, tp) // unknown outcome, took effect
			s.Fail(c)
			s.saw(0, a)
			s.saw(1, b)
			s.has(0, a)
			s.has(1, b)
			s.has(2, c)
			s.SawEnd(sim.End{TP: tp, Floor: s.AskEnd(tp), Offset: 2})
			s.SawMark(sim.Mark{TP: tp, Asked: 5 * time.Second, Offset: 1}) // nobody knew of the other 10 s before
			s.SawMark(sim.Mark{TP: tp, Asked: time.Minute, Offset: 2})
			s.Poll(sim.Poll{Consumer: sim.Asker, TP: tp, Offset: 1, Record: b})
			s.Poll(sim.Poll{Consumer: sim.Asker, TP: tp, Offset: 0, Record: a})
			s.Demand(sim.Service{TP: tp, Begin: time.Minute, End: time.Minute + 3*time.Second})
		},
		"lost":     func(s *story) { s.has(0, s.acked(0)); s.acked(1) },
		"conflict": func(s *story) { a, b := s.acked(0), s.acked(1); s.has(0, a); s.has(1, s.Send(idem, tp)); s.saw(1, b) },
		"phantom":  func(s *story) { s.has(0, 99) },
		"damaged": func(s *story) {
			s.log = append(s.log, sim.Poll{TP: tp, Offset: 0, Record: s.acked(0), Damage: "flipped"})
		},
		"duplicate": func(s *story) { a := s.acked(0); s.has(0, a); s.has(1, a) },
		"reordered": func(s *story) { a, b := s.Send(idem, tp), s.Send(idem, tp); s.has(0, b); s.has(1, a) },
		"gap":       func(s *story) { s.has(0, s.acked(0)); s.has(2, s.acked(2)) },
		"skipped": func(s *story) {
			for i := range int64(3) {
				r := s.acked(i)
				s.has(i, r)
				if i != 1 {
					s.saw(i, r)
				}
			}
		},
		"realtime": func(s *story) { b := s.acked(1); a := s.acked(0); s.has(0, a); s.has(1, b) },
		"regress": func(s *story) {
			s.has(0, s.acked(0))
			s.SawEnd(sim.End{TP: tp, Floor: s.AskEnd(tp), Offset: 0})
		},
		"undeleted": func(s *story) { s.has(0, s.acked(0)); s.AskTrim(tp, 1); s.Trimmed(tp, 1) },
		"unread":    func(s *story) { s.has(0, s.acked(0)); s.saw(1, s.Send(idem, tp)) },
		"unavailable": func(s *story) {
			other := sim.TP{Topic: "other"}
			s.Ack(s.Send(idem, other), 0)
		},
		"stale": func(s *story) {
			s.has(0, s.acked(0))
			s.SawMark(sim.Mark{TP: tp, Asked: time.Minute, Offset: 0})
		},
		"unserved": func(s *story) {
			s.has(0, s.acked(0))
			s.Demand(sim.Service{TP: tp, Begin: time.Minute, End: 2 * time.Minute})
		},
		"noted": func(s *story) { s.Note("images differ") },
	}
	for rule, tell := range cases {
		t.Run("rule "+rule, func(t *testing.T) {
			s := &story{History: sim.NewHistory()}
			tell(s)
			s.Final(tp, 0, s.log)
			found := sim.Check(s.History)
			if rule == "" && len(found) > 0 {
				t.Fatalf("a good history is said to break %v", found)
			}
			for _, v := range found {
				if v.Rule == rule {
					return
				}
			}
			if rule != "" {
				t.Fatalf("not found; found %v", found)
			}
		})
	}
}
