package model

import (
	"fmt"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

type cmdKind uint8

const (
	cmdNone cmdKind = iota
	cmdFence
	cmdRegister
	cmdNoop
	cmdFlip
	cmdCommit
	cmdReplace
	cmdTrim
	cmdSealed
)

// command is a submitted command, small enough to be compared. Incarnations
// are numbered in the order of registration.
type command struct {
	kind   cmdKind
	from   uint8 // incarnation
	seq    uint8
	wal    uint8 // of Fence and Sealed
	target uint8 // incarnation; broker id of Register
	trim   uint8 // of Commit; the end of Sealed
	// per stream, if part has its bit:
	part      uint8
	epoch     [streamCount]uint8
	base, end [streamCount]uint8 // start of Trim is in base
	// The data are in one object (number + 1), or, if 0, in WAL slots: tail has
	// the offset after the stream's chunk in each slot, 0 for no chunk.
	object uint8
	tail   [streamCount][maxSlots]uint8
}

func (c *command) has(s int) bool { return c.part>>s&1 != 0 }

// message is the command in the product's form. names are the incarnations.
func (c *command) message(info *imageInfo) *metadatapb.Command {
	pb := &metadatapb.Command{}
	if c.kind != cmdFence && c.kind != cmdRegister {
		pb.From, pb.CmdSeq = info.wal[c.from].inc.Proto(), uint64(c.seq)
	}
	switch c.kind {
	case cmdFence:
		pb.Body = &metadatapb.Command_Fence{Fence: c.fence(info)}
	case cmdRegister:
		nonce := make([]byte, metadata.NonceBytes)
		nonce[0], nonce[1] = c.target, c.seq
		pb.Body = &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{Broker: int32(c.target), Nonce: nonce}}
	case cmdNoop:
		pb.Body = &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}
	case cmdFlip:
		f := &metadatapb.Flip{}
		for s := range streamCount {
			if c.has(s) {
				f.Streams = append(f.Streams, &metadatapb.FlipStream{
					Stream: uint64(s + 1), Epoch: int32(c.epoch[s]), End: int64(c.end[s]),
					Tail: c.extents(s, info), Target: info.wal[c.target].inc.Proto(),
				})
			}
		}
		pb.Body = &metadatapb.Command_Flip{Flip: f}
	case cmdCommit:
		m := &metadatapb.CommitExtents{Trim: uint64(c.trim)}
		for s := range streamCount {
			if c.has(s) {
				m.Streams = append(m.Streams, &metadatapb.StreamExtents{Stream: uint64(s + 1), Epoch: int32(c.epoch[s]), Extents: c.extents(s, info)})
			}
		}
		pb.Body = &metadatapb.Command_CommitExtents{CommitExtents: m}
	default:
		c.ownBody(pb, info)
	}
	return pb
}

func (c *command) ownBody(pb *metadatapb.Command, info *imageInfo) {
	switch c.kind {
	case cmdReplace, cmdTrim:
		s := 0
		if c.has(1) {
			s = 1
		}
		if c.kind == cmdTrim {
			pb.Body = &metadatapb.Command_TrimStreams{TrimStreams: &metadatapb.TrimStreams{Streams: []*metadatapb.StreamStart{
				{Stream: uint64(s + 1), Epoch: int32(c.epoch[s]), Start: int64(c.base[s])},
			}}}
			return
		}
		pb.Body = &metadatapb.Command_ReplaceExtents{ReplaceExtents: &metadatapb.ReplaceExtents{
			Stream: uint64(s + 1), Epoch: int32(c.epoch[s]), Base: int64(c.base[s]), End: int64(c.end[s]), Extents: c.extents(s, info),
		}}
	case cmdSealed:
		m := &metadatapb.Sealed{Incarnation: info.wal[c.wal].inc.Proto(), End: uint64(c.trim)}
		for s := range streamCount {
			if c.has(s) {
				m.Streams = append(m.Streams, &metadatapb.SealedStream{
					Stream: uint64(s + 1), Base: int64(c.base[s]), End: int64(c.end[s]), Extent: c.extents(s, info)[0],
				})
			}
		}
		pb.Body = &metadatapb.Command_Sealed{Sealed: m}
	default:
		panic(fmt.Sprintf("command of kind %d", c.kind))
	}
}

func (c *command) fence(info *imageInfo) *metadatapb.Fence {
	f := &metadatapb.Fence{Incarnation: info.wal[c.wal].inc.Proto()}
	if c.target == none {
		return f
	}
	f.Sealer = info.wal[c.target].inc.Proto()
	for s := range streamCount {
		f.Assignments = append(f.Assignments, &metadatapb.Assignment{
			TopicId: modelTopic[:], Partition: int32(s), Owner: info.wal[c.target].inc.Proto(),
		})
	}
	return f
}

// extents are where the records of [base, end) of a stream lie.
func (c *command) extents(s int, info *imageInfo) []*metadatapb.Extent {
	extent := func(kind metadata.ObjectKind, number uint64, base, end uint8) *metadatapb.Extent {
		name := metadata.ObjectName{Kind: kind, Creator: info.wal[c.from].inc, Number: number}
		return &metadatapb.Extent{
			Object: name.String(), Position: int64(s), Length: 1, Base: int64(base), End: int64(end),
			Epoch: int32(c.epoch[s]), Indirect: kind == metadata.IndexObject, Bytes: 1,
		}
	}
	if c.object > 0 {
		kind := metadata.SegmentObject
		if c.kind == cmdSealed {
			kind = metadata.IndexObject
		}
		return []*metadatapb.Extent{extent(kind, uint64(c.object-1), c.base[s], c.end[s])}
	}
	var list []*metadatapb.Extent
	at := c.base[s]
	for k, end := range c.tail[s] {
		if end > 0 {
			list = append(list, extent(metadata.WALSlot, uint64(k), at, end))
			at = end
		}
	}
	return list
}

// String is the command for traces.
func (c *command) String() string {
	who := fmt.Sprintf("#%d of P%d", c.seq, c.from)
	switch c.kind {
	case cmdFence:
		if c.target == none {
			return fmt.Sprintf("Fence W%d, name nobody", c.wal)
		}
		return fmt.Sprintf("Fence W%d, name P%d", c.wal, c.target)
	case cmdRegister:
		return fmt.Sprintf("Register broker %d", c.target)
	case cmdNoop:
		return "Noop " + who
	case cmdFlip:
		return fmt.Sprintf("Flip %s: %s to P%d", who, c.ranges(), c.target)
	case cmdCommit:
		return fmt.Sprintf("Commit %s: %s, trim %d", who, c.ranges(), c.trim)
	case cmdReplace:
		return fmt.Sprintf("Replace %s: %s", who, c.ranges())
	case cmdTrim:
		return fmt.Sprintf("Trim %s: %s", who, c.ranges())
	case cmdSealed:
		return fmt.Sprintf("Sealed %s: W%d at %d with %s", who, c.wal, c.trim, c.ranges())
	default:
		return "none"
	}
}

func (c *command) ranges() string {
	out := ""
	for s := range streamCount {
		if c.has(s) {
			out += fmt.Sprintf("[s%d@%d %d-%d]", s, c.epoch[s], c.base[s], c.end[s])
		}
	}
	if c.object > 0 {
		out += fmt.Sprintf(" in object %d", c.object-1)
	}
	return out
}
