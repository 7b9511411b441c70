package wal

import (
	"encoding/binary"
)

// EncodeIndex encodes an index section: own is the slot's, repeated are those of
// the slots just before it.
func EncodeIndex(own Index, repeated []Index) []byte {
	b := appendChunks(nil, own.Chunks)
	b = binary.AppendUvarint(b, uint64(len(repeated)))
	for _, r := range repeated {
		sub := appendChunks(nil, r.Chunks)
		b = append(binary.AppendUvarint(b, uint64(len(sub))), sub...)
	}
	return b
}

// DecodeIndex decodes an index section as that of an object of fitting size.
func DecodeIndex(h Header, b []byte) (Index, []Index, error) {
	d := &decoder{b: b}
	end := int64(HeaderBytes)
	if chunks := d.chunks(maxInt63); len(chunks) > 0 {
		end = chunks[len(chunks)-1].Pos + chunks[len(chunks)-1].Len
	}
	h.indexLen, h.Size = uint32(len(b)), uint64(end)+HeaderBytes+uint64(len(b))
	return decodeIndex(&h, b)
}
