package metadata

import (
	"encoding/base64"
	"fmt"
	"strings"

	"ponor/commitlog"
)

// TopicID is a topic's UUID (KIP-516).
type TopicID [16]byte

// IsZero says whether id means no topic.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String is Kafka's form, 22 characters of unpadded base64url.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads Kafka's form.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("parse topic id %q: not 22 characters of base64url", s)
	}
	copy(id[:], b)
	return id, nil
}

// Topic is a topic, also one that is being deleted.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions int32 // how many; they are numbered from 0
	Internal   bool  // a coordinator's, as __consumer_offsets
	// Deleting: the topic is deleted for clients, but its name is not free
	// until every owner is known to have stopped (del-1).
	Deleting bool
}

// MaxTopicName is the longest topic name in bytes, as in Kafka.
const MaxTopicName = 249

// ValidateTopicName says in what way a name is not a legal topic name.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("topic name cannot be %q", name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("topic name is %d characters long, the most is %d", len(name), MaxTopicName)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name %q has a character other than ASCII letters, digits, '.', '_' and '-'", name)
		}
	}
	return nil
}

// collisionKey is equal for names that Kafka does not let exist together,
// because their metric names would be the same: a.b_c and a_b.c.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Extent is where a run of a stream's records lies. Base offset and epoch are
// authoritative: a reader patches batch headers from them.
type Extent struct {
	Object   string           // name below its generation's prefix, see ObjectName
	Position int64            // of the run in the object, bytes
	Length   int64            // bytes
	Base     commitlog.Offset // first offset
	End      commitlog.Offset // exclusive
	Epoch    commitlog.Epoch  // leader epoch of the records; only of direct extents
	// Indirect: Position and Length delimit a section of an index object that
	// lists the real extents of [Base, End).
	Indirect     bool
	MaxTimestamp int64 // milliseconds since the epoch
	Bytes        int64 // bytes of records, of all it stands for if Indirect
}

// EpochStart says at which offset a leader epoch began.
type EpochStart struct {
	Epoch commitlog.Epoch
	Start commitlog.Offset
}

// MaxHistory is how many epochs the image keeps per partition. Older ones are
// in the log's checkpoints.
const MaxHistory = 8

// TargetExtents is how many direct extents a stream should keep in the image.
// Its owner moves older ones into an index object with ReplaceExtents; Apply
// does not insist.
const TargetExtents = 8

// Partition is one partition and its stream.
type Partition struct {
	Topic     TopicID
	TopicName string
	Number    int32
	// Deleting is the topic's flag.
	Deleting bool
	// gone: the owner has closed it for good (del-1).
	gone bool
	// Replicas is the wanted list verbatim, the first being the preferred
	// leader, plus the owner at the end if it is not in that list. Shared
	// slices: do not change.
	Replicas, Adding, Removing []BrokerID
	// Owner is who serves the partition, or shall, at Epoch. It may be a dead
	// incarnation while no other could be named.
	Owner  Incarnation
	Epoch  commitlog.Epoch // leader epoch; never goes back (epoch-1)
	Stream commitlog.StreamID
	// Start <= End; End is the committed end: what lies beyond is in the WAL of
	// the owner or of Unsealed. Neither moves back (ext-2).
	Start, End commitlog.Offset
	// Extents are gap-free and end at End; the first begins at or below Start
	// (ext-1). Some may lie below Start altogether: the newest one always
	// stays, and older ones until the owner has committed after it.
	Extents []Extent
	// Unsealed is the WAL that must be sealed before the owner may open the
	// stream (slot-4). There is never more than one: an owner opens only what
	// is sealed, so only the last one that could open holds records beyond End.
	Unsealed []Incarnation
	// History has the newest epochs that could write, oldest first, with the
	// committed end at which each began. The current epoch is missing while
	// Unsealed is not empty, because its start is not known yet.
	History []EpochStart
}

// Openable says whether the owner may open the stream (slot-4).
func (p *Partition) Openable() bool { return len(p.Unsealed) == 0 }

// ID is the partition's name towards a log store.
func (p *Partition) ID() commitlog.ID {
	return commitlog.ID{Topic: p.TopicName, TopicID: p.Topic, Partition: p.Number, Stream: p.Stream}
}

// String is Kafka's form, topic-partition.
func (p *Partition) String() string { return fmt.Sprintf("%s-%d", p.TopicName, p.Number) }
