package rpc

import "net"

// Versions of Fetch that the codec knows: 4 is the first with record batches of
// magic 2, 18 the newest of Kafka 4.1 and later.
const (
	FetchMinVersion int16 = 4
	FetchMaxVersion int16 = 18
)

// FetchResponse is what a FetchEncoder encodes. Fields that a version does not
// have are left out.
type FetchResponse struct {
	ThrottleMs int32
	// ErrorCode and SessionID belong to fetch sessions (version 7+, KIP-227).
	ErrorCode int16
	SessionID int32
	Topics    []FetchTopic
	// Nodes are the endpoints of the leaders named in CurrentLeader (version
	// 16+, KIP-951).
	Nodes []NodeEndpoint
}

// FetchTopic is named by Name up to version 12 and by ID from version 13.
type FetchTopic struct {
	Name       string
	ID         [16]byte
	Partitions []FetchPartition
}

// FetchPartition is the answer for one partition.
type FetchPartition struct {
	Index            int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64 // version 5+
	// Aborted are the aborted transactions within Records. Nil is sent as null,
	// which is what a read_uncommitted fetch gets.
	Aborted []AbortedTransaction
	// PreferredReadReplica is -1 for none (version 11+, KIP-392).
	PreferredReadReplica int32
	// DivergingEpoch, CurrentLeader and SnapshotID are tagged fields; nil leaves
	// them out (version 12+, KIP-595, KIP-951, KIP-630).
	DivergingEpoch *EpochEnd
	CurrentLeader  *LeaderEpoch
	SnapshotID     *EpochEnd
	// Records are whole batches in any cut, RecordBytes their summed length.
	// They are referenced, not copied.
	Records     [][]byte
	RecordBytes int
}

// AbortedTransaction says from where a consumer must skip a producer's records
// until its abort marker.
type AbortedTransaction struct {
	ProducerID  int64
	FirstOffset int64
}

// EpochEnd is a leader epoch and the offset where it ends.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// EncodeFetch encodes a response with an encoder of its own.
func EncodeFetch(version int16, r *FetchResponse) net.Buffers {
	var e FetchEncoder
	return e.Encode(version, r)
}

// FetchEncoder encodes Fetch responses. Reusing one allocates nothing for
// responses that are no larger than before.
type FetchEncoder struct {
	buf  []byte
	cuts []cut
	out  net.Buffers
}

// cut marks that a partition's records belong at a position of the buffer.
type cut struct {
	at      int
	records [][]byte
}

// Encode returns the body of a Fetch response of a version from
// FetchMinVersion to FetchMaxVersion: runs of header bytes from one buffer of
// the encoder, and between them the records of r. It is valid until the next
// Encode.
func (e *FetchEncoder) Encode(version int16, r *FetchResponse) net.Buffers {
	e.cuts = e.cuts[:0]
	flexible := version >= 12
	b := appendInt32(e.buf[:0], r.ThrottleMs)
	if version >= 7 {
		b = appendInt16(b, r.ErrorCode)
		b = appendInt32(b, r.SessionID)
	}
	b = appendLen(b, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			b = append(b, t.ID[:]...)
		} else {
			b = appendString(b, t.Name, flexible)
		}
		b = appendLen(b, len(t.Partitions), flexible)
		for j := range t.Partitions {
			b = e.appendPartition(b, version, &t.Partitions[j])
		}
		if flexible {
			b = append(b, 0)
		}
	}
	switch {
	case !flexible:
	case version >= 16 && len(r.Nodes) > 0:
		b = appendNodes(append(b, 1), r.Nodes)
	default:
		b = append(b, 0)
	}
	e.buf = b
	return e.weave()
}

// Reset drops the references to records and keeps the memory.
func (e *FetchEncoder) Reset() {
	clear(e.cuts[:cap(e.cuts)])
	clear(e.out[:cap(e.out)])
}

func (e *FetchEncoder) appendPartition(b []byte, version int16, p *FetchPartition) []byte {
	flexible := version >= 12
	b = appendInt32(b, p.Index)
	b = appendInt16(b, p.ErrorCode)
	b = appendInt64(b, p.HighWatermark)
	b = appendInt64(b, p.LastStableOffset)
	if version >= 5 {
		b = appendInt64(b, p.LogStartOffset)
	}
	if p.Aborted == nil {
		b = appendLen(b, -1, flexible)
	} else {
		b = appendLen(b, len(p.Aborted), flexible)
	}
	for _, a := range p.Aborted {
		b = appendInt64(b, a.ProducerID)
		b = appendInt64(b, a.FirstOffset)
		if flexible {
			b = append(b, 0)
		}
	}
	if version >= 11 {
		b = appendInt32(b, p.PreferredReadReplica)
	}
	// Never null: an empty record set has length 0, as in Kafka.
	b = appendLen(b, p.RecordBytes, flexible)
	if p.RecordBytes > 0 {
		e.cuts = append(e.cuts, cut{at: len(b), records: p.Records})
	}
	if flexible {
		b = appendFetchTags(b, p)
	}
	return b
}

func appendFetchTags(b []byte, p *FetchPartition) []byte {
	at := len(b)
	b = append(b, 0)
	if d := p.DivergingEpoch; d != nil {
		b[at]++
		b = append(b, 0, 4+8+1)
		b = appendInt32(b, d.Epoch)
		b = appendInt64(b, d.EndOffset)
		b = append(b, 0)
	}
	if p.CurrentLeader != nil {
		b[at]++
		b = appendLeader(b, 1, p.CurrentLeader)
	}
	if s := p.SnapshotID; s != nil {
		b[at]++
		b = append(b, 2, 8+4+1)
		b = appendInt64(b, s.EndOffset)
		b = appendInt32(b, s.Epoch)
		b = append(b, 0)
	}
	return b
}

// weave puts the records between the runs of header bytes. It runs last because
// the buffer may move while it grows.
func (e *FetchEncoder) weave() net.Buffers {
	out, from := e.out[:0], 0
	for _, c := range e.cuts {
		out = append(out, e.buf[from:c.at:c.at])
		for _, r := range c.records {
			if len(r) > 0 {
				out = append(out, r)
			}
		}
		from = c.at
	}
	if from < len(e.buf) {
		out = append(out, e.buf[from:])
	}
	e.out = out
	return out
}
