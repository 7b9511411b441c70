package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
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

// Read reads a whole history. A last line that was cut off is an error: what
// came before it is returned with it.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for n := 1; ; n++ {
		var l line
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF) && n > 1:
			return h, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the history is empty")
		case err != nil && n == 1:
			return nil, fmt.Errorf("not a history: %w", err)
		case err != nil:
			return h, fmt.Errorf("history, line %d: %w", n, err)
		case n == 1 && l.Header == nil:
			return nil, errors.New("not a history: the first line is no header")
		case n == 1 && l.Header.Version != FormatVersion:
			return nil, fmt.Errorf("the history has format %d, this build reads %d", l.Header.Version, FormatVersion)
		case l.Header != nil && n > 1:
			return h, fmt.Errorf("history, line %d: a second header", n)
		case l.Header != nil:
			h.Header = *l.Header
		case l.Op != nil:
			if l.Op.Index != int64(len(h.Ops)) {
				return h, fmt.Errorf("history, line %d: op %d is the %dth", n, l.Op.Index, len(h.Ops))
			}
			h.Ops = append(h.Ops, *l.Op)
		case l.Event != nil:
			h.Events = append(h.Events, *l.Event)
		case l.Sample != nil:
			h.Samples = append(h.Samples, *l.Sample)
		}
	}
}
