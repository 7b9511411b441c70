package assignor

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
)

// Uniform is the assignor "uniform".
func Uniform(topics []Topic, members []Member) [][]Partition {
	u := newUniform(topics, members)
	u.keep()
	u.fill()
	u.balance()
	u.localise()
	return u.result()
}

// nobody owns a partition that is not assigned yet.
const nobody = -1

// uniform is one run of the assignor. Members and topics are numbered; topics in the
// order of their ids, members in that of theirs.
type uniform struct {
	topics  []Topic
	members []Member
	place   []int // in the caller's order, of each member
	// readers are who subscribes to a topic, reads what a member subscribes to.
	readers, reads [][]int
	// owner of each partition of each topic.
	owner [][]int
	count []int // partitions of each member
	// same says that all subscribe to the same topics; then no member may have more
	// than each, plus one as long as extra is not used up.
	same        bool
	each, extra int
	racks       bool // some member's rack is known
	// holds is, while balance runs, how many partitions of a topic a member has.
	holds []map[int]int
}

func newUniform(topics []Topic, members []Member) *uniform {
	u := &uniform{topics: sorted(topics), count: make([]int, len(members)), same: true}
	u.place = make([]int, len(members))
	for i := range u.place {
		u.place[i] = i
	}
	slices.SortFunc(u.place, func(a, b int) int { return cmp.Compare(members[a].ID, members[b].ID) })
	number := make(map[[16]byte]int, len(topics))
	total := 0
	for i, t := range u.topics {
		number[t.ID] = i
		owners := make([]int, t.Partitions)
		for p := range owners {
			owners[p] = nobody
		}
		u.owner = append(u.owner, owners)
	}
	u.readers = make([][]int, len(topics))
	for m, at := range u.place {
		member := members[at]
		u.members = append(u.members, member)
		u.racks = u.racks || member.Rack != ""
		var reads []int
		for _, id := range member.Topics {
			if t, ok := number[id]; ok {
				reads = append(reads, t)
				u.readers[t] = append(u.readers[t], m)
			}
		}
		slices.Sort(reads)
		u.reads = append(u.reads, reads)
		u.same = u.same && slices.Equal(reads, u.reads[0])
	}
	for t, readers := range u.readers {
		if len(readers) > 0 {
			total += len(u.owner[t])
		}
	}
	if len(members) > 0 {
		u.each, u.extra = total/len(members), total%len(members)
	}
	return u
}

// local says whether the member is in a rack that has a replica.
func (u *uniform) local(m, t, p int) bool {
	rack := u.members[m].Rack
	racks := u.topics[t].Racks
	return rack != "" && p < len(racks) && slices.Contains(racks[p], rack)
}

// room says whether the member may have one more: always, if members differ in what
// they read, since balance puts that right.
func (u *uniform) room(m int) bool {
	return !u.same || u.count[m] < u.each || u.count[m] == u.each && u.extra > 0
}

func (u *uniform) give(m, t, p int) {
	if u.same && u.count[m] == u.each {
		u.extra--
	}
	u.owner[t][p] = m
	u.count[m]++
}

// move changes the owner where the numbers come out even.
func (u *uniform) move(m, t, p int) {
	u.count[u.owner[t][p]]--
	u.owner[t][p] = m
	u.count[m]++
}

// keep gives members what they own and may keep (A3), local partitions first.
func (u *uniform) keep() {
	number := make(map[[16]byte]int, len(u.topics))
	for i, t := range u.topics {
		number[t.ID] = i
	}
	for m, member := range u.members {
		valid := make([]Partition, 0, len(member.Owned))
		for _, p := range member.Owned {
			if t, ok := number[p.Topic]; ok && u.subscribes(m, t) && int(p.Number) < len(u.owner[t]) {
				valid = append(valid, p)
			}
		}
		slices.SortFunc(valid, func(a, b Partition) int {
			aLocal, bLocal := u.local(m, number[a.Topic], int(a.Number)), u.local(m, number[b.Topic], int(b.Number))
			switch {
			case aLocal && !bLocal:
				return -1
			case bLocal && !aLocal:
				return 1
			default:
				return Compare(a, b)
			}
		})
		for _, p := range valid {
			if t := number[p.Topic]; u.owner[t][p.Number] == nobody && u.room(m) {
				u.give(m, t, int(p.Number))
			}
		}
	}
}

// fill gives away what nobody has: in a first pass what can be local where all read
// the same, then the rest.
func (u *uniform) fill() {
	if u.racks && u.same {
		u.fillPass(true)
	}
	u.fillPass(false)
}

func (u *uniform) fillPass(localOnly bool) {
	for t := range u.topics {
		if len(u.readers[t]) == 0 {
			continue
		}
		var queues []*queue // of this topic's readers
		for p, owner := range u.owner[t] {
			if owner != nobody {
				continue
			}
			if queues == nil {
				queues = u.queues(t)
			}
			if q := u.pick(t, p, queues, localOnly); q != nil {
				u.give(q.first(), t, p)
				heap.Fix(q, 0)
			}
		}
	}
}

// pick is the queue whose first has room and fewest partitions, of several with as few
// a local one; nil if nobody has room.
func (u *uniform) pick(t, p int, queues []*queue, localOnly bool) *queue {
	var best *queue
	bestLocal := false
	for _, q := range queues {
		m := q.first()
		local := u.racks && u.local(m, t, p)
		switch {
		case !u.room(m) || localOnly && !local:
		case best == nil, u.count[m] < u.count[best.first()]:
			best, bestLocal = q, local
		case u.count[m] > u.count[best.first()] || bestLocal && !local:
		case local != bestLocal || m < best.first():
			best, bestLocal = q, local
		}
	}
	return best
}

// balance moves partitions from members that have more to members that have at
// least two less, along chains of members if need be (A2). Members who read the same
// are balanced by their quota.
func (u *uniform) balance() {
	if u.same {
		return
	}
	u.holds = make([]map[int]int, len(u.members))
	for m := range u.holds {
		u.holds[m] = make(map[int]int)
	}
	for t, owners := range u.owner {
		for _, m := range owners {
			if m != nobody {
				u.holds[m][t]++
			}
		}
	}
	// A chain may make room for a member that was looked at before.
	for again := true; again; {
		again = false
		for from := range u.members {
			for u.relieve(from) {
				again = true
			}
		}
	}
}

// step is how a search came to a member: by taking a partition of a topic from
// another.
type step struct{ from, topic int }

// relieve looks for a chain from a member to one that has at least two less and
// moves one partition on along it.
func (u *uniform) relieve(from int) bool {
	came := map[int]step{from: {nobody, nobody}}
	seen := make([]bool, len(u.topics))
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		for _, t := range u.reads[m] {
			if seen[t] || u.holds[m][t] == 0 {
				continue
			}
			seen[t] = true
			for _, to := range u.readers[t] {
				if _, ok := came[to]; ok {
					continue
				}
				came[to] = step{m, t}
				if u.count[to] <= u.count[from]-2 {
					u.shift(to, came)
					return true
				}
				queue = append(queue, to)
			}
		}
	}
	return false
}

// shift moves one partition along each step that led to a member, the last first.
func (u *uniform) shift(to int, came map[int]step) {
	for s := came[to]; s.from != nobody; to, s = s.from, came[s.from] {
		best := nobody
		for p, owner := range u.owner[s.topic] {
			if owner == s.from && (best == nobody || u.local(to, s.topic, p) && !u.local(to, s.topic, best)) {
				best = p
			}
		}
		u.move(to, s.topic, best)
		u.holds[s.from][s.topic]--
		u.holds[to][s.topic]++
	}
}

func (u *uniform) result() [][]Partition {
	out := make([][]Partition, len(u.members))
	for t, owners := range u.owner {
		for p, m := range owners {
			if m != nobody {
				at := u.place[m]
				out[at] = append(out[at], Partition{u.topics[t].ID, int32(p)})
			}
		}
	}
	return out
}

// Compare orders partitions by topic and number.
func Compare(a, b Partition) int {
	if a.Topic == b.Topic { // mostly
		return cmp.Compare(a.Number, b.Number)
	}
	return bytes.Compare(a.Topic[:], b.Topic[:])
}
