package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"ponor/commitlog"
	"ponor/metadata"
)

// HeaderBytes is the length of a slot's header, of its footer and of a fence.
const HeaderBytes = 128

const (
	magic       = "PONORWAL"
	version     = 1
	maxCluster  = 31
	headerCheck = HeaderBytes - 4
)

// Kind says what a slot object is.
type Kind uint8

// Kinds of slot objects; the numbers are part of the format.
const (
	Data  Kind = 1
	Fence Kind = 2
)

// ErrUnsupported is wrapped by decoders that met a version or kind of a newer
// binary: the bytes are intact, this binary cannot read them.
var ErrUnsupported = errors.New("format not supported by this version")

// WriteID tells one writer's object from another's under the same key.
type WriteID [16]byte

// Header opens every slot object.
type Header struct {
	Kind Kind
	// Lane is reserved for parallel WALs of one incarnation, 0 for now.
	Lane uint8
	// Window is the writer's limit of slots in flight: slot n was started only
	// when all slots up to n-Window were durable. 0 in a fence.
	Window      uint8
	ClusterID   string
	Generation  uint64
	Incarnation metadata.Incarnation // whose WAL it is
	Seq         uint64
	Author      metadata.Incarnation // who wrote the object
	WriteID     WriteID
	// DurableBelow: all slots below it were known durable when this one was closed.
	DurableBelow uint64
	// Size is the whole object's in bytes.
	Size uint64

	indexLen uint32
	indexCRC uint32
}

// EncodeHeader is the encoded header: of a fence, the whole object.
func EncodeHeader(h Header) []byte { return appendHeader(nil, &h) }

// appendHeader encodes h at the end of dst.
func appendHeader(dst []byte, h *Header) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, version, byte(h.Kind), h.Lane, h.Window)
	var id [1 + maxCluster]byte
	id[0] = byte(copy(id[1:], h.ClusterID))
	dst = append(dst, id[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.Generation)
	dst = appendIncarnation(dst, h.Incarnation)
	dst = binary.BigEndian.AppendUint64(dst, h.Seq)
	dst = appendIncarnation(dst, h.Author)
	dst = append(dst, h.WriteID[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.DurableBelow)
	dst = binary.BigEndian.AppendUint64(dst, h.Size)
	dst = binary.BigEndian.AppendUint32(dst, h.indexLen)
	dst = binary.BigEndian.AppendUint32(dst, h.indexCRC)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], commitlog.Castagnoli))
}

func appendIncarnation(dst []byte, i metadata.Incarnation) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(i.Broker))
	return binary.BigEndian.AppendUint64(dst, i.Epoch)
}

// DecodeHeader reads a header from the start of b. Errors wrap
// commitlog.ErrCorrupt or ErrUnsupported.
func DecodeHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < HeaderBytes {
		return h, fmt.Errorf("%w: %d bytes are too few for a WAL header", commitlog.ErrCorrupt, len(b))
	}
	b = b[:HeaderBytes]
	if string(b[:8]) != magic {
		return h, fmt.Errorf("%w: no WAL slot starts with %x", commitlog.ErrCorrupt, b[:8])
	}
	if got, want := crc32.Checksum(b[:headerCheck], commitlog.Castagnoli), binary.BigEndian.Uint32(b[headerCheck:]); got != want {
		return h, fmt.Errorf("%w: WAL header has CRC %08x, its bytes %08x", commitlog.ErrCorrupt, want, got)
	}
	if b[8] != version {
		return h, fmt.Errorf("%w: WAL slot of version %d", ErrUnsupported, b[8])
	}
	h.Kind, h.Lane, h.Window = Kind(b[9]), b[10], b[11]
	if h.Kind != Data && h.Kind != Fence {
		return h, fmt.Errorf("%w: WAL slot of kind %d", ErrUnsupported, h.Kind)
	}
	n := b[12]
	if n > maxCluster {
		return h, fmt.Errorf("%w: cluster id of %d bytes in a WAL header", commitlog.ErrCorrupt, n)
	}
	h.ClusterID = string(b[13 : 13+n])
	h.Generation = binary.BigEndian.Uint64(b[44:])
	h.Incarnation = incarnationAt(b[52:])
	h.Seq = binary.BigEndian.Uint64(b[64:])
	h.Author = incarnationAt(b[72:])
	copy(h.WriteID[:], b[84:])
	h.DurableBelow = binary.BigEndian.Uint64(b[100:])
	h.Size = binary.BigEndian.Uint64(b[108:])
	h.indexLen = binary.BigEndian.Uint32(b[116:])
	h.indexCRC = binary.BigEndian.Uint32(b[120:])
	if min := uint64(h.indexLen) + 2*HeaderBytes; h.Kind == Data && h.Size < min {
		return h, fmt.Errorf("%w: WAL slot of %d bytes claims %d", commitlog.ErrCorrupt, h.Size, min)
	}
	return h, nil
}

func incarnationAt(b []byte) metadata.Incarnation {
	return metadata.Incarnation{Broker: metadata.BrokerID(int32(binary.BigEndian.Uint32(b))), Epoch: binary.BigEndian.Uint64(b[4:])}
}
