package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog/segment"
)

// segmentDump is what a segment or index object says of itself.
type segmentDump struct {
	Creator  string           `json:"creator"`
	Counter  uint64           `json:"counter"`
	Size     int              `json:"size_bytes"`
	Sections []segmentSection `json:"sections"`
	Damages  damages          `json:"damages,omitempty"`
}

// segmentSection is a range of one stream. Positions and lengths are in bytes,
// ends exclusive.
type segmentSection struct {
	Stream   commitlog.StreamID `json:"stream"`
	Base     commitlog.Offset   `json:"base"`
	End      commitlog.Offset   `json:"end"`
	From     commitlog.Offset   `json:"from"`
	Position int64              `json:"position"`
	Length   int64              `json:"length"`
	// State is none, checkpoint or deltas.
	State      string         `json:"state"`
	Checkpoint int            `json:"checkpoint_bytes"`
	Deltas     int            `json:"deltas"`
	Entries    []segmentEntry `json:"entries"`
}

// segmentEntry is a run in this object (Object is empty) or an extent elsewhere.
type segmentEntry struct {
	Object       string           `json:"object,omitempty"`
	Indirect     bool             `json:"indirect"`
	Base         commitlog.Offset `json:"base"`
	End          commitlog.Offset `json:"end"`
	Epoch        commitlog.Epoch  `json:"epoch"`
	Position     int64            `json:"position"`
	Length       int64            `json:"length"`
	RecordBytes  int64            `json:"record_bytes"`
	MaxTimestamp int64            `json:"max_timestamp_ms"`
	Blocks       int              `json:"blocks"`
	// Bytes says whether a run of this object matches its checksums; elsewhere
	// is "elsewhere".
	Bytes string `json:"bytes"`
}

// dumpSegment decodes a whole object. Runs and checkpoints that are damaged can
// be shown; a damaged header, trailer, directory or section is an error.
func dumpSegment(b []byte) (dumped, error) {
	name, err := segmentName(b)
	if err != nil {
		return nil, err
	}
	size := int64(len(b))
	t, err := segment.DecodeTrailer(b[size-segment.TrailerBytes:], size)
	if err != nil {
		return nil, fmt.Errorf("trailer at byte %d: %w", size-segment.TrailerBytes, err)
	}
	list, err := segment.DecodeDirectory(b[t.Directory:t.Directory+t.DirLength], t)
	if err != nil {
		return nil, fmt.Errorf("directory at byte %d: %w", t.Directory, err)
	}
	d := &segmentDump{Creator: name.Creator.String(), Counter: name.Counter, Size: len(b), Sections: []segmentSection{}}
	for _, l := range list {
		s, err := segment.DecodeSection(b[l.Position : l.Position+l.Length])
		if err == nil && (s.Stream != l.Stream || s.Base != l.Base) {
			err = fmt.Errorf("%w: it is of stream %d from offset %d", segment.ErrFormat, s.Stream, s.Base)
		}
		if err != nil {
			return nil, fmt.Errorf("section of stream %d from offset %d, at byte %d: %w", l.Stream, l.Base, l.Position, err)
		}
		d.addSection(b[:t.Sections], l, s)
	}
	return d, nil
}

// segmentName reads and checks the header: it must be what a builder writes for
// the name in it.
func segmentName(b []byte) (segment.Name, error) {
	if len(b) < segment.HeaderBytes+segment.TrailerBytes {
		return segment.Name{}, fmt.Errorf("%w: object of %d bytes", segment.ErrFormat, len(b))
	}
	n := segment.Name{
		Creator: metadata.Incarnation{Broker: metadata.BrokerID(binary.BigEndian.Uint32(b[8:])), Epoch: binary.BigEndian.Uint64(b[12:])},
		Counter: binary.BigEndian.Uint64(b[20:]),
	}
	body, _ := segment.NewBuilder(n).Finish()
	if want := body.Parts[0]; !bytes.Equal(b[:len(want)], want) {
		return n, fmt.Errorf("header at byte 0: %w: magic, version or CRC is wrong", segment.ErrFormat)
	}
	return n, nil
}

// addSection shows a section and checks the bodies it has in this object, which
// end with bodies.
func (d *segmentDump) addSection(bodies []byte, l segment.Located, s *segment.Section) {
	out := segmentSection{
		Stream: s.Stream, Base: s.Base, End: s.End, From: s.From, Position: l.Position, Length: l.Length,
		State: "none", Checkpoint: len(s.State.Checkpoint), Deltas: len(s.State.Deltas), Entries: []segmentEntry{},
	}
	switch s.State.Kind {
	case segment.StateCheckpoint:
		out.State = "checkpoint"
		if _, err := partition.DecodeState(s.State.Checkpoint); err != nil {
			d.Damages.add("checkpoint of stream %d, section at byte %d: %v", s.Stream, l.Position, err)
		}
	case segment.StateDeltas:
		out.State = "deltas"
	case segment.StateNone:
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		row := segmentEntry{
			Object: e.Object, Indirect: e.Indirect, Base: e.Base, End: e.End, Epoch: e.Epoch, Position: e.Position,
			Length: e.Length, RecordBytes: e.Bytes, MaxTimestamp: e.MaxTimestamp, Blocks: len(e.Blocks), Bytes: "elsewhere",
		}
		if e.Object == "" && !e.Indirect {
			err := checkRun(bodies, e)
			if err != nil {
				d.Damages.add("run of stream %d, offsets %d to %d, at byte %d: %v", s.Stream, e.Base, e.End, e.Position, err)
			}
			row.Bytes = okText(err == nil)
		}
		out.Entries = append(out.Entries, row)
	}
	d.Sections = append(d.Sections, out)
}

// checkRun checks a run's bytes against the CRCs of its blocks, or of its
// batches where it has no blocks.
func checkRun(bodies []byte, e *segment.Entry) error {
	if e.Position < segment.HeaderBytes || e.Position > int64(len(bodies))-e.Length {
		return fmt.Errorf("%d bytes lie outside the bodies, which end at byte %d", e.Length, len(bodies))
	}
	run := bodies[e.Position : e.Position+e.Length]
	if len(e.Blocks) == 0 {
		_, err := segment.ScanRun(e.Extent, bytes.Clone(run)) // it patches what it scans
		return err
	}
	for _, bl := range e.Blocks {
		if got := crc32.Checksum(run[bl.Position:bl.Position+bl.Length], commitlog.Castagnoli); got != bl.CRC {
			at := e.Position + bl.Position
			return fmt.Errorf("block from offset %d, bytes %d to %d: CRC is %08x, its bytes have %08x", bl.Base, at, at+bl.Length, bl.CRC, got)
		}
	}
	return nil
}

func (d *segmentDump) damage() error { return d.Damages.damage() }

func (d *segmentDump) print(p *printer) {
	p.row("creator", d.Creator)
	p.row("counter", d.Counter)
	p.row("size", fmt.Sprintf("%d bytes", d.Size))
	p.row("sections", len(d.Sections))
	for _, s := range d.Sections {
		p.line("")
		state := s.State
		switch s.State {
		case "checkpoint":
			state = fmt.Sprintf("checkpoint of %d bytes", s.Checkpoint)
		case "deltas":
			state = fmt.Sprintf("%d deltas", s.Deltas)
		}
		p.line("stream %d: offsets %d to %d, section of %d bytes at %d, state: %s", s.Stream, s.From, s.End, s.Length, s.Position, state)
		if len(s.Entries) == 0 {
			continue
		}
		p.row("BASE", "END", "EPOCH", "POSITION", "LENGTH", "MAX TIMESTAMP", "BLOCKS", "BYTES", "OBJECT")
		for _, e := range s.Entries {
			where := e.Object
			if where == "" {
				where = "this"
			}
			if e.Indirect {
				where += " (index)"
			}
			p.row(e.Base, e.End, e.Epoch, e.Position, e.Length, millisText(e.MaxTimestamp), e.Blocks, e.Bytes, where)
		}
	}
}
