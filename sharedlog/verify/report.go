package verify

import (
	"fmt"
	"strings"

	"ponor/commitlog"
	"ponor/metadata"
)

// Kind is what is wrong.
type Kind string

// The kinds of problems.
const (
	// Missing: an extent refers to an object that is not there.
	Missing Kind = "missing object"
	// Damaged: bytes do not match their checksums, or are no valid object.
	Damaged Kind = "damaged object"
	// Mismatch: the bytes are whole, but not those that the extent describes.
	Mismatch Kind = "mismatch"
	// Gap: a slot is missing from a WAL that is still needed.
	Gap Kind = "WAL gap"
	// Discontinuous: the records of a stream in a WAL do not continue where its
	// committed ones end.
	Discontinuous Kind = "discontinuous WAL"
	// NoFence: the fence of a sealed WAL is not there.
	NoFence Kind = "missing fence"
	// EarlyFence: the WAL of a living incarnation has a fence.
	EarlyFence Kind = "fence in a live WAL"
	// Stray: no object of this cluster's metadata.
	Stray Kind = "unknown object"
	// Beyond: an extent refers to a slot at or above the fence.
	Beyond Kind = "reference past a fence"
)

// advice says what to do about each kind.
var advice = map[Kind]string{
	Missing:       "get the object back from a copy or older version of the store; without it these records are lost",
	Damaged:       "replace the object by a sound copy; until then reads of these records fail, and nothing wrong is served",
	Mismatch:      "the metadata is not of this store's time, or software erred: keep both as they are and compare with a backup",
	Gap:           "get the slot back from a copy of the store before the WAL is sealed; acknowledged records may be in it",
	Discontinuous: "keep store and metadata as they are and compare with a backup; sealing this WAL will stop here",
	NoFence:       "stop the broker of that incarnation if it still runs, and put the fence back from a copy of the store",
	EarlyFence:    "if the metadata is the newest, somebody else fenced this broker: find out who uses the store",
	Stray:         "if the metadata is the newest, no broker will ever use or delete it: find out what wrote it, then remove it by hand",
	Beyond:        "keep store and metadata as they are: software erred",
}

// Problem is one thing that is wrong, and where.
type Problem struct {
	Kind Kind `json:"kind"`
	// Key of the object in the store.
	Key string `json:"key"`
	// Position in the object, bytes.
	Position int64 `json:"position"`
	// Stream and Partition that are hit first, 0 and "" if none is; Streams is
	// how many.
	Stream    commitlog.StreamID `json:"stream,omitempty"`
	Partition string             `json:"partition,omitempty"`
	Streams   int                `json:"streams,omitempty"`
	// Base and End delimit the offsets hit, of the first stream.
	Base   commitlog.Offset `json:"base,omitempty"`
	End    commitlog.Offset `json:"end,omitempty"`
	Detail string           `json:"detail"`
	Advice string           `json:"advice"`
}

// String is one line: what, where, and what to do.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Kind, p.Key)
	if p.Position > 0 {
		fmt.Fprintf(&b, " at byte %d", p.Position)
	}
	if p.Partition != "" {
		fmt.Fprintf(&b, ", %s (stream %d) offsets %d to %d", p.Partition, p.Stream, p.Base, p.End)
	}
	if p.Streams > 1 {
		fmt.Fprintf(&b, " and %d more streams", p.Streams-1)
	}
	fmt.Fprintf(&b, ": %s; %s", p.Detail, p.Advice)
	return b.String()
}

// Class groups objects of one fate.
type Class struct {
	Name    string `json:"class"`
	Reason  string `json:"reason"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// The names of classes.
const (
	ClassReferenced = "referenced"
	ClassFence      = "fence"
	ClassLive       = "live WAL"
	ClassPending    = "pending"
	ClassGarbage    = "garbage"
	ClassDamaged    = "damaged"
	ClassMissing    = "missing"
	ClassUnknown    = "unknown"
)

// fate is a place in the list of classes.
type fate int

const (
	fateReferenced fate = iota
	fateFence
	fateLive
	fateUnresolved
	fatePending
	fateTrimmed
	fateBeyond
	fatePacked
	fateLeft
	fateDamaged
	fateMissing
	fateUnknown
	fates
)

// classes has name and reason of every fate.
func classes() []Class {
	list := [fates]Class{
		fateReferenced: {Name: ClassReferenced, Reason: "records and indexes that the metadata refers to"},
		fateFence:      {Name: ClassFence, Reason: "ends a sealed WAL, kept for ever"},
		fateLive:       {Name: ClassLive, Reason: "slots that are not packed yet"},
		fateUnresolved: {Name: ClassLive, Reason: "slots behind a fence or a slot that is not there (yet), never acknowledged"},
		fatePending:    {Name: ClassPending, Reason: "of a living broker, not referenced yet or any more; it sweeps its own"},
		fateTrimmed:    {Name: ClassGarbage, Reason: "WAL slot below the trim"},
		fateBeyond:     {Name: ClassGarbage, Reason: "WAL slot past the fence of a sealed WAL"},
		fatePacked:     {Name: ClassGarbage, Reason: "slot of a sealed WAL whose records were packed or deleted"},
		fateLeft:       {Name: ClassGarbage, Reason: "segment or index of a dead broker that nothing refers to"},
		fateDamaged:    {Name: ClassDamaged, Reason: "see the problems"},
		fateMissing:    {Name: ClassMissing, Reason: "referred to and not there"},
		fateUnknown:    {Name: ClassUnknown, Reason: "not of this cluster's metadata"},
	}
	return list[:]
}

// Report is what was found.
type Report struct {
	Cluster    string         `json:"cluster"`
	Generation uint64         `json:"generation"`
	Index      metadata.Index `json:"index"` // of the first image
	Streams    int            `json:"streams"`
	// Records is how many offsets were read and found sound, in extents and live
	// WALs, Bytes how many bytes of the store were read for it.
	Records int64   `json:"records"`
	Bytes   int64   `json:"bytes_read"`
	Classes []Class `json:"classes"`
	// Problems is their number; the first MaxProblems are in List.
	Problems int       `json:"problems"`
	List     []Problem `json:"list"`
	// Unsteady is how many streams and WALs changed faster than they could be
	// read, over and over. They are not proven sound.
	Unsteady int `json:"unsteady"`
}

// MaxProblems bounds Report.List. Config.Problem gets all.
const MaxProblems = 1000

// Sound says whether everything was checked and is as it must be.
func (r *Report) Sound() bool { return r.Problems == 0 && r.Unsteady == 0 }

// Class is the sum of all classes of a name.
func (r *Report) Class(name string) Class {
	sum := Class{Name: name}
	for _, c := range r.Classes {
		if c.Name == name {
			sum.Objects += c.Objects
			sum.Bytes += c.Bytes
		}
	}
	return sum
}

// Garbage is an object that nothing refers to and nothing ever will.
type Garbage struct {
	Key    string `json:"key"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}

// Progress is how far a run has come.
type Progress struct {
	Step    string
	Objects int64 // read or listed in this step
	Bytes   int64 // read from the store so far
}
