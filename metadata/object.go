package metadata

import (
	"fmt"
	"strconv"
	"strings"
)

// ObjectKind is the first part of an object's name.
type ObjectKind string

// The kinds of objects.
const (
	// WALSlot is one slot of an incarnation's WAL: wal/3-17/0/<seq>.
	WALSlot ObjectKind = "wal"
	// SegmentObject holds packed runs of streams: seg/3-17/<counter>.
	SegmentObject ObjectKind = "seg"
	// IndexObject lists extents: idx/3-17/<counter>.
	IndexObject ObjectKind = "idx"
)

// maxObjectName bounds a name before it is looked at, in bytes.
const maxObjectName = 128

// ObjectName is the name of an object below its generation's prefix. It says
// who made it (obj-2); that is all the image needs to judge it.
type ObjectName struct {
	Kind    ObjectKind
	Creator Incarnation
	Number  uint64 // slot number, or the creator's counter
}

// String is the name, numbers padded to 20 digits so that names list in order.
// A WAL has one lane, 0, for now.
func (n ObjectName) String() string {
	if n.Kind == WALSlot {
		return fmt.Sprintf("%s/%s/0/%020d", n.Kind, n.Creator, n.Number)
	}
	return fmt.Sprintf("%s/%s/%020d", n.Kind, n.Creator, n.Number)
}

// ParseObjectName reads what String writes and nothing else, so that an object
// has one name only and its references are counted in one place.
func ParseObjectName(s string) (ObjectName, error) {
	n, err := parseObjectName(s)
	if err != nil {
		return ObjectName{}, fmt.Errorf("parse object name %q: %w", s, err)
	}
	return n, nil
}

func parseObjectName(s string) (ObjectName, error) {
	if len(s) > maxObjectName {
		return ObjectName{}, fmt.Errorf("longer than %d bytes", maxObjectName)
	}
	part := strings.Split(s, "/")
	n := ObjectName{Kind: ObjectKind(part[0])}
	want := 3
	switch n.Kind {
	case WALSlot:
		want = 4
	case SegmentObject, IndexObject:
	default:
		return ObjectName{}, fmt.Errorf("kind is none of wal, seg, idx")
	}
	if len(part) != want {
		return ObjectName{}, fmt.Errorf("has %d parts instead of %d", len(part), want)
	}
	var err error
	if n.Creator, err = ParseIncarnation(part[1]); err != nil {
		return ObjectName{}, err
	}
	if n.Number, err = strconv.ParseUint(part[want-1], 10, 64); err != nil {
		return ObjectName{}, fmt.Errorf("%q is not a number", part[want-1])
	}
	if n.String() != s {
		return ObjectName{}, fmt.Errorf("is not in canonical form %q", n.String())
	}
	return n, nil
}

// Verdict is what the image says about an object that a listing found.
type Verdict uint8

// The verdicts on an object. Only Unreferenced lets a sweeper delete, and only
// after it has also read every index object: what an index object lists is not
// in the image.
const (
	// Unknown: no name of ours, or of an incarnation that this image does not
	// know. Never delete; report.
	Unknown Verdict = iota
	// Referenced: an extent points at it.
	Referenced
	// Pending: nothing points at it, but something may yet: its creator lives
	// (which may sweep its own after a barrier), or it is a slot that recovery
	// still needs.
	Pending
	// Fence: the slot that holds the fence of a sealed WAL. Never delete (slot-3).
	Fence
	// Unreferenced: no extent points at it and none ever will (obj-1, obj-2).
	// Stable: a later image says the same.
	Unreferenced
	// Alarm: an extent points at or above the fence of a sealed WAL, where
	// nothing was ever acknowledged. Never delete; report loudly.
	Alarm
)

// String is the verdict in lower case.
func (v Verdict) String() string {
	names := [...]string{"unknown", "referenced", "pending", "fence", "unreferenced", "alarm"}
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Judge says whether an object may be deleted (obj-1, obj-2). The caller must
// have listed the object before it fetched the image through a read barrier.
func (img *Image) Judge(object string) Verdict {
	n, err := ParseObjectName(object)
	if err != nil {
		return Unknown
	}
	w, ok := img.WAL(n.Creator)
	if !ok {
		return Unknown
	}
	referenced := img.References(object) > 0
	if n.Kind != WALSlot {
		switch {
		case referenced:
			return Referenced
		case w.State == Active:
			return Pending
		default:
			return Unreferenced
		}
	}
	switch {
	case w.State == Sealed && n.Number >= w.SealedEnd && referenced:
		return Alarm
	case w.State == Sealed && n.Number == w.SealedEnd:
		return Fence
	case referenced:
		return Referenced
	case w.State == Sealed || n.Number < w.Trim:
		return Unreferenced
	default:
		return Pending
	}
}
