package assignor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ponor/coordinator/group/assignor"
)

// world is a random input.
type world struct {
	topics  []assignor.Topic
	members []assignor.Member
}

var zones = []string{"a", "b", "c"}

func topicID(n int) [16]byte { return [16]byte{0: byte(n), 15: 1} }

func newWorld(r *rand.Rand, same, racks bool) *world {
	w := &world{}
	for t := range 1 + r.IntN(6) {
		topic := assignor.Topic{ID: topicID(t), Partitions: int32(r.IntN(12))}
		for range topic.Partitions {
			if racks {
				topic.Racks = append(topic.Racks, []string{zones[r.IntN(3)]})
			}
		}
		w.topics = append(w.topics, topic)
	}
	for m := range 1 + r.IntN(8) {
		w.join(r, m, same, racks)
	}
	return w
}

func (w *world) join(r *rand.Rand, number int, same, racks bool) {
	member := assignor.Member{ID: fmt.Sprintf("member-%02d", number)}
	if racks && r.IntN(4) > 0 {
		member.Rack = zones[r.IntN(3)]
	}
	for _, t := range w.topics {
		if same || r.IntN(2) == 0 {
			member.Topics = append(member.Topics, t.ID)
		}
	}
	w.members = append(w.members, member)
}

func (w *world) keep(out [][]assignor.Partition) {
	for i := range w.members {
		w.members[i].Owned = out[i]
	}
}

// owners checks A1 and returns who has what.
func (w *world) owners(t *testing.T, out [][]assignor.Partition) map[assignor.Partition]int {
	t.Helper()
	owners := make(map[assignor.Partition]int)
	for m, list := range out {
		for _, p := range list {
			if other, twice := owners[p]; twice {
				t.Fatalf("A1: %v is given to %d and %d", p, other, m)
			}
			if !slices.Contains(w.members[m].Topics, p.Topic) {
				t.Fatalf("A1: %v is given to %d, who does not subscribe to it", p, m)
			}
			owners[p] = m
		}
	}
	for _, topic := range w.topics {
		if !slices.ContainsFunc(w.members, func(m assignor.Member) bool { return slices.Contains(m.Topics, topic.ID) }) {
			continue
		}
		for n := range topic.Partitions {
			if _, ok := owners[assignor.Partition{Topic: topic.ID, Number: n}]; !ok {
				t.Fatalf("A1: nobody has %v-%d", topic.ID[0], n)
			}
		}
	}
	return owners
}

// balanced checks A2 the slow way: no chain of moves from any member leads to one
// that has two less.
func (w *world) balanced(t *testing.T, out [][]assignor.Partition) {
	t.Helper()
	for from := range out {
		reached := map[int]bool{from: true}
		for grew := true; grew; {
			grew = false
			for m := range reached {
				for _, p := range out[m] {
					for to := range w.members {
						if !reached[to] && slices.Contains(w.members[to].Topics, p.Topic) {
							reached[to], grew = true, true
						}
					}
				}
			}
		}
		for to := range reached {
			if len(out[to]) <= len(out[from])-2 {
				t.Fatalf("A2: member %d has %d, member %d %d, and something could be moved", from, len(out[from]), to, len(out[to]))
			}
		}
	}
}

func (w *world) local(m int, p assignor.Partition) bool {
	for _, topic := range w.topics {
		if topic.ID == p.Topic && topic.Racks != nil {
			return w.members[m].Rack != "" && slices.Contains(topic.Racks[p.Number], w.members[m].Rack)
		}
	}
	return false
}

// localised checks A4: no two members could swap for the better.
func (w *world) localised(t *testing.T, out [][]assignor.Partition) {
	t.Helper()
	value := func(m int, p assignor.Partition) int {
		if w.local(m, p) {
			return 1
		}
		return 0
	}
	for m := range out {
		for n := range out {
			for _, p := range out[m] {
				for _, q := range out[n] {
					if slices.Contains(w.members[n].Topics, p.Topic) && slices.Contains(w.members[m].Topics, q.Topic) &&
						value(n, p)+value(m, q) > value(m, p)+value(n, q) {
						t.Fatalf("A4: members %d and %d should swap %v and %v", m, n, p, q)
					}
				}
			}
		}
	}
}

func moved(before, after map[assignor.Partition]int) int {
	n := 0
	for p, m := range before {
		if now, ok := after[p]; ok && now != m {
			n++
		}
	}
	return n
}

func TestUniformKeepsItsPromises(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		same, racks := r.IntN(2) == 0, r.IntN(2) == 0
		t.Run(fmt.Sprintf("seed %d same %v racks %v", seed, same, racks), func(t *testing.T) {
			w := newWorld(r, same, racks)
			var before map[assignor.Partition]int
			for step := range 6 {
				out := assignor.Uniform(w.topics, w.members)
				owners := w.owners(t, out)
				w.balanced(t, out)
				w.localised(t, out)
				w.keep(out)
				before = owners
				if again := moved(before, w.owners(t, assignor.Uniform(w.topics, w.members))); again != 0 {
					t.Fatalf("A3: %d partitions move though nothing changed", again)
				}
				switch r.IntN(3) {
				case 0:
					w.join(r, 50+step, same, racks)
				case 1:
					if len(w.members) > 1 {
						w.members = slices.Delete(w.members, 0, 1)
					}
				default:
					topic := &w.topics[r.IntN(len(w.topics))]
					topic.Partitions++
					if racks {
						topic.Racks = append(topic.Racks, []string{zones[r.IntN(3)]})
					}
				}
			}
		})
	}
}

// TestUniformMovesNoMoreThanItMust has members come and go where all read the same
// and racks are unknown: then only what a new member is due, or what one that left
// had, may move.
func TestUniformMovesNoMoreThanItMust(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(r, true, false)
		out := assignor.Uniform(w.topics, w.members)
		before := w.owners(t, out)
		w.keep(out)
		w.join(r, 99, true, false)
		out = assignor.Uniform(w.topics, w.members)
		due := len(out[len(out)-1])
		if n := moved(before, w.owners(t, out)); n != due {
			t.Fatalf("seed %d: %d partitions moved for a member that got %d", seed, n, due)
		}
		w.keep(out)
		before = w.owners(t, out)
		left := r.IntN(len(w.members))
		w.members = slices.Delete(w.members, left, left+1)
		if len(w.members) == 0 {
			continue
		}
		n := 0
		for p, m := range w.owners(t, assignor.Uniform(w.topics, w.members)) {
			old := before[p]
			if old > left {
				old--
			} else if old == left {
				continue
			}
			if old != m {
				n++
			}
		}
		if n != 0 {
			t.Fatalf("seed %d: %d partitions of others moved when a member left", seed, n)
		}
	}
}

func TestUniformIsWhollyLocalWhereThatIsPossible(t *testing.T) {
	topic := assignor.Topic{ID: topicID(1), Partitions: 30}
	for p := range 30 {
		topic.Racks = append(topic.Racks, []string{zones[p%3]})
	}
	var members []assignor.Member
	for m := range 6 {
		// What they own is the worst there is.
		member := assignor.Member{ID: fmt.Sprint(m), Rack: zones[m%3], Topics: [][16]byte{topic.ID}}
		for p := range int32(30) {
			if int(p+1)%6 == m {
				member.Owned = append(member.Owned, assignor.Partition{Topic: topic.ID, Number: p})
			}
		}
		members = append(members, member)
	}
	w := &world{topics: []assignor.Topic{topic}, members: members}
	for p, m := range w.owners(t, assignor.Uniform(w.topics, w.members)) {
		if !w.local(m, p) {
			t.Errorf("A4: %v is not local to member %d", p, m)
		}
	}
}

func TestRangeGivesRunsThatJoin(t *testing.T) {
	topics := []assignor.Topic{{ID: topicID(1), Partitions: 7}, {ID: topicID(2), Partitions: 7}}
	ids := [][16]byte{topicID(1), topicID(2)}
	members := []assignor.Member{{ID: "b", Topics: ids}, {ID: "a", Topics: ids}, {ID: "zz", Instance: "static", Topics: ids}}
	w := &world{topics, members}
	out := assignor.Range(topics, members)
	w.owners(t, out)
	for m, want := range [][]int32{{5, 6}, {3, 4}, {0, 1, 2}} {
		for i, topic := range topics {
			var got []int32
			for _, p := range out[m] {
				if p.Topic == topic.ID {
					got = append(got, p.Number)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("A5: member %d has %v of topic %d, want %v", m, got, i, want)
			}
		}
	}
}

func TestRangeKeepsItsPromises(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(r, r.IntN(2) == 0, false)
		w.owners(t, assignor.Range(w.topics, w.members))
	}
}

func TestNamed(t *testing.T) {
	for name, want := range map[string]bool{"uniform": true, "range": true, "": false, "Uniform": false} {
		if _, ok := assignor.Named(name); ok != want {
			t.Errorf("Named(%q) = %v, want %v", name, ok, want)
		}
	}
}

func BenchmarkUniform(b *testing.B) {
	for _, racks := range []bool{false, true} {
		b.Run(fmt.Sprintf("1000 members 10000 partitions racks %v", racks), func(b *testing.B) {
			topic := assignor.Topic{ID: topicID(1), Partitions: 10000}
			for p := range 10000 {
				topic.Racks = append(topic.Racks, []string{zones[p%3]})
			}
			var members []assignor.Member
			for m := range 1000 {
				member := assignor.Member{ID: fmt.Sprintf("%04d", m), Topics: [][16]byte{topic.ID}}
				if racks {
					member.Rack = zones[m%3]
				}
				members = append(members, member)
			}
			for b.Loop() {
				assignor.Uniform([]assignor.Topic{topic}, members)
			}
		})
	}
}
