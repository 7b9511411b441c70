// Package assignor shares out the partitions of topics among the members of a
// consumer group on the server's side (KIP-848). It is pure, and deterministic: the
// same input has the same result.
//
// What both assignors promise:
//
//	A1  Every partition of every topic that somebody subscribes to is given to
//	    exactly one member, and that one subscribes to the topic.
//
// Uniform, in this order:
//
//	A2  Balance: no partition could be moved, nor a chain of partitions, so that the
//	    difference of two members becomes smaller. Where all subscribe to the same
//	    topics this means that no member has two more than another.
//	A3  Stickiness: a member keeps what it owns as far as balance lets it; an
//	    assignment that is balanced already, and whose racks cannot be bettered,
//	    stays.
//	A4  Racks: within balance, a partition goes to a member in a rack that has a
//	    replica of it, and two members swap if more partitions are local after it.
//
// Range gives each member a run of neighbours of every topic, the same run of topics
// that have as many partitions and the same subscribers, so that joins find their
// partitions together (A5). Racks and what members own do not count: either would
// tear the runs apart.
package assignor

// Partition is one partition of a topic.
type Partition struct {
	Topic  [16]byte
	Number int32
}

// Topic is what an assignor knows of a topic.
type Topic struct {
	ID [16]byte
	// Partitions are numbered from 0.
	Partitions int32
	// Racks are the racks of the replicas of each partition; nil if not known.
	Racks [][]string
}

// Member is what an assignor knows of a member.
type Member struct {
	ID string
	// Instance is a static member's instance id, "" for others.
	Instance string
	// Rack is where it runs, "" for not known.
	Rack string
	// Topics are the ids of what it subscribes to, each once. Those that are not
	// among the topics are left out.
	Topics [][16]byte
	// Owned is what it was assigned last.
	Owned []Partition
}

// Assign shares out the topics' partitions. The result has a list for each member,
// in the order of the members.
type Assign func(topics []Topic, members []Member) [][]Partition

// Named are the assignors by the name that clients and configs give them; false if
// there is none of that name.
func Named(name string) (Assign, bool) {
	switch name {
	case "uniform":
		return Uniform, true
	case "range":
		return Range, true
	default:
		return nil, false
	}
}
