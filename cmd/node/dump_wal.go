package main

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/sharedlog/wal"
)

// walDump is what a slot object says of itself.
type walDump struct {
	Kind         string     `json:"kind"`
	Cluster      string     `json:"cluster"`
	Generation   uint64     `json:"generation"`
	Incarnation  string     `json:"incarnation"`
	Seq          uint64     `json:"seq"`
	Author       string     `json:"author"`
	WriteID      string     `json:"write_id"`
	DurableBelow uint64     `json:"durable_below"`
	Window       uint8      `json:"window"`
	Size         uint64     `json:"size_bytes"`
	Chunks       []walChunk `json:"chunks"`
	// Repeated is how many indexes of the slots before it carries.
	Repeated int     `json:"repeated_indexes"`
	Damages  damages `json:"damages,omitempty"`
}

// walChunk is one stream's batches in a slot; positions and lengths are in
// bytes, the end is exclusive.
type walChunk struct {
	Stream       commitlog.StreamID `json:"stream"`
	Epoch        commitlog.Epoch    `json:"epoch"`
	Base         commitlog.Offset   `json:"base"`
	End          commitlog.Offset   `json:"end"`
	Position     int64              `json:"position"`
	Length       int64              `json:"length"`
	MaxTimestamp int64              `json:"max_timestamp_ms"`
	CRC          string             `json:"crc32c"`
	Matches      bool               `json:"crc_matches"`
}

// dumpWAL decodes a whole slot object. A chunk whose bytes do not match its CRC
// is damage that can be shown; a damaged header or index is an error.
func dumpWAL(b []byte) (dumped, error) {
	front, err := wal.DecodeHeader(b)
	if err != nil {
		return nil, fmt.Errorf("header at byte 0: %w", err)
	}
	h, own, repeated, err := wal.DecodeSlot(b, int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("index and footer at the end, byte %d: %w", len(b), err)
	}
	if front != h {
		return nil, fmt.Errorf("%w: header at byte 0 and footer at byte %d differ", commitlog.ErrCorrupt, len(b)-wal.HeaderBytes)
	}
	d := &walDump{
		Kind: "data", Cluster: h.ClusterID, Generation: h.Generation, Incarnation: h.Incarnation.String(), Seq: h.Seq,
		Author: h.Author.String(), WriteID: hex.EncodeToString(h.WriteID[:]), DurableBelow: h.DurableBelow,
		Window: h.Window, Size: h.Size, Chunks: []walChunk{}, Repeated: len(repeated),
	}
	if h.Kind == wal.Fence {
		d.Kind = "fence"
	}
	for _, c := range own.Chunks {
		if c.Pos < 0 || c.Len < 0 || c.Pos > int64(len(b))-c.Len {
			return nil, fmt.Errorf("%w: chunk of stream %d at %d, %d bytes, lies outside the object", commitlog.ErrCorrupt, c.Stream, c.Pos, c.Len)
		}
		sum := crc32.Checksum(b[c.Pos:c.Pos+c.Len], commitlog.Castagnoli)
		if sum != c.CRC32C {
			d.Damages.add("chunk of stream %d, offsets %d to %d, bytes %d to %d: CRC is %08x, its bytes have %08x",
				c.Stream, c.Base, c.End, c.Pos, c.Pos+c.Len, c.CRC32C, sum)
		}
		d.Chunks = append(d.Chunks, walChunk{
			Stream: c.Stream, Epoch: c.Epoch, Base: c.Base, End: c.End, Position: c.Pos, Length: c.Len,
			MaxTimestamp: c.MaxTimestamp, CRC: fmt.Sprintf("%08x", c.CRC32C), Matches: sum == c.CRC32C,
		})
	}
	return d, nil
}

func (d *walDump) damage() error { return d.Damages.damage() }

func (d *walDump) print(p *printer) {
	kind := d.Kind
	if kind == "fence" {
		kind = "fence by " + d.Author
	}
	p.row("kind", kind)
	p.row("cluster", d.Cluster)
	p.row("generation", d.Generation)
	p.row("incarnation", d.Incarnation)
	p.row("seq", d.Seq)
	p.row("write id", d.WriteID)
	p.row("durable below", d.DurableBelow)
	p.row("window", d.Window)
	p.row("size", fmt.Sprintf("%d bytes", d.Size))
	if d.Kind == "fence" {
		return
	}
	p.row("repeated indexes", d.Repeated)
	p.row("chunks", len(d.Chunks))
	if len(d.Chunks) == 0 {
		return
	}
	p.line("")
	p.row("STREAM", "EPOCH", "BASE", "END", "POSITION", "LENGTH", "MAX TIMESTAMP", "CRC32C", "BYTES")
	for _, c := range d.Chunks {
		p.row(c.Stream, c.Epoch, c.Base, c.End, c.Position, c.Length, millisText(c.MaxTimestamp), c.CRC, okText(c.Matches))
	}
}
