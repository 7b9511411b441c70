package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"time"
)

// TP is a topic's partition. A topic that is made anew under its old name gets
// another Life.
type TP struct {
	Topic     string
	Life      int
	Partition int32
}

// String is topic/partition, with the topic's life if it is not the first.
func (tp TP) String() string {
	if tp.Life > 0 {
		return fmt.Sprintf("%s#%d/%d", tp.Topic, tp.Life, tp.Partition)
	}
	return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition)
}

// Record is the number of a record, unique in a run; 0 is none.
type Record uint64

// Producer says how records of one client may appear in a log.
type Producer struct {
	ID int
	// Idempotent: exactly once and in the order sent. Others may appear more
	// than once, if the client tried again.
	Idempotent bool
}

// Send is one record handed to a client.
type Send struct {
	Record   Record
	Producer Producer
	TP       TP
	// Floor is the first offset that was free for all the world could know when
	// the record was sent: one above the highest acknowledged one.
	Floor int64
}

// Ack is a success: the record is at that offset for ever.
type Ack struct {
	Record Record
	TP     TP
	Offset int64
	At     time.Duration // since the run began
}

// Poll is one record that a consumer was given.
type Poll struct {
	Consumer int
	TP       TP
	Offset   int64
	Record   Record
	// Damage says what is wrong with the record's bytes, empty if nothing is.
	Damage string
	At     time.Duration // since the run began
}

// Mark is the high watermark in an answer to a fetch.
type Mark struct {
	TP     TP
	Asked  time.Duration // since the run began
	Offset int64
}

// Service is a time in which a partition must have taken and given records: who
// owned it lived, and reached clients and store.
type Service struct {
	TP         TP
	Begin, End time.Duration // since the run began
}

// End is an answer to "what is the end of this partition".
type End struct {
	TP TP
	// Floor is the highest of: offsets acknowledged, plus one, and ends answered,
	// both before the question was asked.
	Floor, Offset int64
}

// History is what the clients of a run saw. Its methods may be called from many
// goroutines; Check wants them to be done.
type History struct {
	begin time.Time
	mu    struct {
		sync.Mutex
		next   Record
		sends  map[Record]Send
		order  map[TP][]Record // records in the order they were sent
		acks   []Ack
		failed int // sends without a success
		polls  []Poll
		ends   []End
		marks  []Mark
		served []Service
		floor  map[TP]int64
		seen   map[TP]int64 // highest end answered
		trims  map[TP]int64 // highest offset up to which deletion was asked for
		trim   map[TP]int64 // ... and confirmed
		final  map[TP][]Poll
		starts map[TP]int64 // log start at the final read
		gone   map[TP]bool  // deleted as a whole
		notes  []string     // violations that somebody saw directly
	}
}

// NewHistory returns an empty one.
func NewHistory() *History {
	h := &History{begin: time.Now()}
	h.mu.sends, h.mu.order = map[Record]Send{}, map[TP][]Record{}
	h.mu.floor, h.mu.seen, h.mu.trims, h.mu.trim = map[TP]int64{}, map[TP]int64{}, map[TP]int64{}, map[TP]int64{}
	h.mu.gone = map[TP]bool{}
	h.mu.final, h.mu.starts = map[TP][]Poll{}, map[TP]int64{}
	return h
}

// Send notes that a record is about to be handed to a client, and names it.
func (h *History) Send(p Producer, tp TP) Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.next++
	r := h.mu.next
	h.mu.sends[r] = Send{Record: r, Producer: p, TP: tp, Floor: h.mu.floor[tp]}
	h.mu.order[tp] = append(h.mu.order[tp], r)
	return r
}

// Ack notes a success.
func (h *History) Ack(r Record, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tp := h.mu.sends[r].TP
	h.mu.acks = append(h.mu.acks, Ack{Record: r, TP: tp, Offset: offset, At: h.Now()})
	h.mu.floor[tp] = max(h.mu.floor[tp], offset+1)
}

// Fail notes that a client gave up: nobody knows whether the record is there.
func (h *History) Fail(Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.failed++
}

// Poll notes a record that a consumer was given.
func (h *History) Poll(p Poll) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.At = h.Now()
	h.mu.polls = append(h.mu.polls, p)
}

// Now is the time since the run began.
func (h *History) Now() time.Duration { return time.Since(h.begin) }

// SawMark notes an answer to a fetch.
func (h *History) SawMark(m Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.marks = append(h.mu.marks, m)
}

// Demand notes that a partition must have been served.
func (h *History) Demand(s Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.served = append(h.mu.served, s)
}

// AskEnd begins a question for the end; the floor goes into SawEnd.
func (h *History) AskEnd(tp TP) (floor int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.mu.floor[tp], h.mu.seen[tp])
}

// SawEnd notes the answer.
func (h *History) SawEnd(e End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.ends = append(h.mu.ends, e)
	h.mu.seen[e.TP] = max(h.mu.seen[e.TP], e.Offset)
}

// AskTrim notes that records below offset may vanish from now on; Trimmed that
// they must have.
func (h *History) AskTrim(tp TP, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.trims[tp] = max(h.mu.trims[tp], offset)
}

// Expires notes that all records of a partition may vanish, oldest first.
func (h *History) Expires(tp TP) { h.AskTrim(tp, math.MaxInt64) }

// Trimmed notes a confirmed deletion.
func (h *History) Trimmed(tp TP, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.trim[tp] = max(h.mu.trim[tp], start)
}

// Drop notes that a partition may be deleted as a whole from now on.
func (h *History) Drop(tp TP) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.gone[tp] = true
}

// Final notes a record of the last read of a partition, which began at start.
func (h *History) Final(tp TP, start int64, log []Poll) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.final[tp], h.mu.starts[tp] = log, start
}

// Note records a violation that was seen directly.
func (h *History) Note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.notes = append(h.mu.notes, fmt.Sprintf(format, args...))
}

// Acked is how many records were acknowledged so far, Failed how many the
// clients gave up.
func (h *History) Acked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.acks)
}

// Failed is how many sends ended without a success.
func (h *History) Failed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failed
}

// Unresolved is how many sends have no outcome yet.
func (h *History) Unresolved() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.sends) - len(h.mu.acks) - h.mu.failed
}

// Floor is one above the highest acknowledged offset.
func (h *History) Floor(tp TP) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.floor[tp]
}

// bodyHeader is the record number and the checksum before a body's filling.
const bodyHeader = 12

// body makes a record's value: its number and filling that shows damage.
func body(r Record) []byte {
	b := make([]byte, bodyHeader+20+int(r%200))
	binary.BigEndian.PutUint64(b, uint64(r))
	for i := bodyHeader; i < len(b); i++ {
		b[i] = byte(uint64(r) + uint64(i)*7)
	}
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[bodyHeader:])^crc32.ChecksumIEEE(b[:8]))
	return b
}

// parseBody is the reverse; damage says what is wrong with it.
func parseBody(b []byte) (r Record, damage string) {
	if len(b) < bodyHeader {
		return 0, fmt.Sprintf("%d bytes are no record", len(b))
	}
	r = Record(binary.BigEndian.Uint64(b))
	if binary.BigEndian.Uint32(b[8:]) != crc32.ChecksumIEEE(b[bodyHeader:])^crc32.ChecksumIEEE(b[:8]) {
		return r, fmt.Sprintf("checksum of %d bytes is wrong", len(b))
	}
	return r, ""
}
