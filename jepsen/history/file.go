package history

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
)

// line is one line of a file; exactly one field is set.
type line struct {
	Header *Header `json:"header,omitempty"`
	Op     *Op     `json:"op,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
}

// Writer writes a history as it happens. It may be used by many at once.
type Writer struct {
	mu  sync.Mutex
	buf *bufio.Writer
	enc *json.Encoder
	ops int64
	err error
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) *Writer {
	h.Version = FormatVersion
	buf := bufio.NewWriterSize(w, 1<<20)
	out := &Writer{buf: buf, enc: json.NewEncoder(buf)}
	out.err = out.enc.Encode(line{Header: &h})
	return out
}

func (w *Writer) put(l line) {
	if w.err == nil {
		w.err = w.enc.Encode(l)
	}
}

// Op numbers an operation and writes it.
func (w *Writer) Op(o *Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.Index = w.ops
	w.ops++
	w.put(line{Op: o})
}

// Event writes what a nemesis did.
func (w *Writer) Event(e *Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(line{Event: e})
}

// Sample writes the state of the cluster.
func (w *Writer) Sample(s *Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(line{Sample: s})
}

// Flush hands what was written to the underlying writer, and returns the first
// error of all writes.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}
