package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
)

// blockSize is how many bytes of lines are decoded at a time, by each of as many
// goroutines as there are processors.
const blockSize = 1 << 20

// block are some whole lines and what they say.
type block struct {
	text []byte // of some lines, and of a part of the next one
	next int    // where that begins
	done chan struct{}
	said
}

// said is what lines say.
type said struct {
	lines   int // decoded
	header  *Header
	ops     []Op
	events  []Event
	samples []Sample
	err     error // of the line after them
}

func (s *said) reset() {
	clear(s.ops)
	*s = said{ops: s.ops[:0]}
}

// Read reads a whole history. A last line that was cut off is an error: what
// came before it is returned with it. It takes little memory beside the history
// itself.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	if s, ok := r.(io.ReadSeeker); ok {
		n, err := countLines(s)
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		h.Ops = make([]Op, 0, n)
	}
	workers := runtime.GOMAXPROCS(0)
	blocks := 2 * workers
	free, work, read := make(chan *block, blocks), make(chan *block, blocks), make(chan *block, blocks)
	for range blocks {
		free <- &block{}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	var broken error // once read is closed
	wg.Go(func() {
		defer close(read)
		defer close(work)
		broken = cut(r, free, stop, func(b *block) {
			b.done = make(chan struct{})
			work <- b
			read <- b
		})
	})
	for range workers {
		wg.Go(func() {
			d := newDecoder()
			for b := range work {
				d.lines(b.text[:b.next], &b.said)
				close(b.done)
			}
		})
	}
	line := 1
	for b := range read {
		<-b.done
		if err := h.add(line, &b.said); err != nil {
			if line == 1 && h.Header.Version == 0 {
				return nil, err
			}
			return h, err
		}
		line += b.lines
		b.reset()
		free <- b
	}
	switch {
	case broken != nil:
		return h, fmt.Errorf("history, line %d: %w", line, broken)
	case line == 1:
		return nil, errors.New("the history is empty")
	}
	h.Ops = slices.Clip(h.Ops)
	return h, nil
}

// countLines says how many lines a file has from where it stands, or one less.
func countLines(f io.ReadSeeker) (int, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	lines := 0
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			_, err = f.Seek(at, io.SeekStart)
			return lines, err
		}
		if err != nil {
			return 0, err
		}
	}
}

// cut reads blocks of whole lines, each into one that is free.
func cut(r io.Reader, free <-chan *block, stop <-chan struct{}, put func(*block)) error {
	var rest []byte
	for {
		var b *block
		select {
		case b = <-free:
		case <-stop:
			return nil
		}
		b.text = append(b.text[:0], rest...)
		err := b.fill(r)
		if b.next > 0 {
			rest = append(rest[:0], b.text[b.next:]...)
			put(b)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// fill reads until there is a whole line and at least a block, or to the end.
func (b *block) fill(r io.Reader) error {
	b.next = 0
	for {
		from := len(b.text)
		b.text = slices.Grow(b.text, blockSize)
		n, err := io.ReadFull(r, b.text[from:from+blockSize])
		b.text = b.text[:from+n]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			b.next = len(b.text)
			return io.EOF
		}
		if err != nil {
			return err
		}
		if i := bytes.LastIndexByte(b.text[from:], '\n'); i >= 0 {
			b.next = from + i + 1
			return nil
		}
	}
}

// add appends what lines say, the first of which has a number.
func (h *History) add(first int, s *said) error {
	if first == 1 && s.lines == 0 && s.err != nil {
		return fmt.Errorf("not a history: %w", s.err)
	}
	if first == 1 && s.lines > 0 {
		switch {
		case s.header == nil:
			return errors.New("not a history: the first line is no header")
		case s.header.Version != FormatVersion:
			return fmt.Errorf("the history has format %d, this build reads %d", s.header.Version, FormatVersion)
		}
		h.Header = *s.header
	} else if s.header != nil {
		return fmt.Errorf("history, line %d: a second header", first)
	}
	for i := range s.ops {
		if at := int64(len(h.Ops)); s.ops[i].Index != at {
			return fmt.Errorf("history: op %d is the %dth", s.ops[i].Index, at)
		}
		h.Ops = append(h.Ops, s.ops[i])
	}
	h.Events, h.Samples = append(h.Events, s.events...), append(h.Samples, s.samples...)
	if s.err != nil {
		return fmt.Errorf("history, line %d: %w", first+s.lines, s.err)
	}
	return nil
}
