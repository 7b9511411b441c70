package model

import "math/bits"

// What a state has room for. Configs stay below: what is left over is used to
// bring a state to rest (liveness).
const (
	streamCount = 2
	maxProcs    = 4 // processes, and incarnations
	maxSlots    = 3 // data slots that a process fills
	storeSlots  = 6 // slots of a WAL in the store, fences included
	maxRecords  = 6
	maxOffsets  = 4
	maxObjects  = 5 // segment and index objects per incarnation
	maxCommands = 8
	sealerCount = 2
	pastImages  = 2
	// window is how many slots a process has in flight at most.
	window = 2

	none = 0xff
)

// imageID and cmdID are indexes into the Model's tables of distinct images and
// commands.
type (
	imageID uint32
	cmdID   uint16
)

// mask is a set of records, by index.
type mask uint8

func (s mask) has(r int) bool { return s>>r&1 != 0 }
func bit(r int) mask          { return 1 << r }

// State is one state of the modelled world. It is comparable: equal states are
// one state.
type State struct {
	img imageID
	// past are the images before, newest first, that a process which is behind
	// may apply next; zeros if the world has nobody Behind.
	past [pastImages]imageID
	proc [maxProcs]process
	cmds [maxCommands]cmdID // submitted and not dead, ascending, zeros last

	records  [maxRecords]record
	nrecords uint8
	nprocs   uint8
	// producerSeq is the sequence that the idempotent producer sends, from 1.
	producerSeq uint8
	acked       mask // records that somebody was told are durable
	fences      uint8
	powerLost   bool

	store [maxProcs][storeSlots]slot
	obj   [maxProcs][maxObjects]object
	seal  [sealerCount]sealing
}

// record is one appended record; ghost state that no process looks at but
// through what it has in memory or has read.
type record struct {
	stream, offset, epoch uint8
	seq                   uint8 // of the idempotent producer; 0: not from it
	wal, slot             uint8 // where it is written; slot is none before issue
}

// process is a broker process that has registered.
type process struct {
	view imageID // the image it has applied
	wal  uint8   // its incarnation
	// stopped: it has met its fence, or seen in its image that it is fenced. Its
	// requests may still be on their way to the store.
	stopped bool
	// down: it lost power with all that it had under way.
	down    bool
	buffer  mask             // records of the slot that is not issued yet
	next    uint8            // next slot to issue
	learned uint8            // slots known durable, a bit each
	slots   [maxSlots]mask   // what was issued
	seen    [maxSlots]mask   // ghost: acked when the slot was issued
	seq     uint8            // cmd_seq of its last command
	noop    bool             // and that was a Noop
	objects uint8            // names it has used
	streams [streamCount]log // what it serves
}

// log is a stream in a process's memory.
type log struct {
	open, frozen bool
	epoch        uint8
	next, conf   uint8 // next offset; below conf all is durable in slot order
	flip         uint8 // cmd_seq of the submitted flip whose outcome is unknown
	openSeq      uint8 // producer state when it was opened
	rec          [maxOffsets]uint8
}

// slot is one object of a WAL.
type slot uint8

const (
	slotEmpty  slot = 0
	slotFence  slot = 1
	slotData   slot = 2 // + the writing process
	slotKind   slot = 0x7f
	slotSynced slot = 0x80
)

func (s slot) fence() bool  { return s&slotKind == slotFence }
func (s slot) data() bool   { return s&slotKind >= slotData }
func (s slot) writer() int  { return int(s&slotKind - slotData) }
func (s slot) synced() bool { return s&slotSynced != 0 }

// object is a segment or index object.
type object struct {
	kind  uint8 // 0: never made
	there bool
	mask  mask  // records it holds, or lists if it is an index
	state uint8 // producer state below its end, stream 0 (its checkpoint)
}

const (
	kindSegment uint8 = 1
	kindIndex   uint8 = 2
)

// sealing is one attempt to seal a WAL.
type sealing struct {
	phase uint8
	by    uint8 // process
	wal   uint8
	at    uint8 // next slot to close; the end once found
	ahead bool  // it has put a fence ahead
}

const (
	sealIdle uint8 = iota
	sealClosing
	sealEnded
	sealSubmitted
)

// prefix is how many slots, from 0 on, are known durable without a gap.
func (p *process) prefix() uint8 { return uint8(bits.TrailingZeros8(^p.learned)) }

// alive says whether the process takes steps of its own.
func (p *process) alive() bool { return !p.stopped && !p.down }

// content is what the data slot of a WAL holds.
func (st *State) content(wal, k uint8) mask {
	s := st.store[wal][k]
	if !s.data() {
		return 0
	}
	return st.proc[s.writer()].slots[k]
}

// recordAt finds the record of a stream at an offset in a set; -1: none.
func (st *State) recordAt(set mask, stream, offset uint8) int {
	for r := range int(st.nrecords) {
		if set.has(r) && st.records[r].stream == stream && st.records[r].offset == offset {
			return r
		}
	}
	return -1
}

// lastSeq is what a process knows of the producer, from what it opened with
// and the records below end.
func (st *State) lastSeq(l *log, end uint8) uint8 {
	last := l.openSeq
	for o := range end {
		if r := l.rec[o]; r != 0 {
			last = max(last, st.records[r-1].seq)
		}
	}
	return last
}

// submit adds a command to those that may be applied.
func (st *State) submit(id cmdID) bool {
	if st.cmds[maxCommands-1] != 0 {
		return false
	}
	at := 0
	for at < maxCommands && st.cmds[at] != 0 && st.cmds[at] < id {
		at++
	}
	copy(st.cmds[at+1:], st.cmds[at:])
	st.cmds[at] = id
	return true
}
