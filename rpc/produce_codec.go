package rpc

import (
	"errors"
	"fmt"
	"unsafe"
)

// Versions of Produce that the codec knows: 3 is the first with record batches
// of magic 2, 13 names topics by id (KIP-516).
const (
	ProduceMinVersion int16 = 3
	ProduceMaxVersion int16 = 13
)

// ProduceRequest is a decoded Produce request whose records still lie in the
// frame. It may be decoded into again and again; with requests of the same
// shape that allocates nothing.
type ProduceRequest struct {
	// TransactionalID is nil for null.
	TransactionalID *string
	// Acks is 0, 1 or -1 (all) in a valid request; other values arrive as sent.
	Acks int16
	// TimeoutMs is how long the client waits for a reply.
	TimeoutMs int32
	Topics    []ProduceTopic

	partitions []ProducePartition // backing of all Topics' Partitions
	txnID      string             // backing of TransactionalID
}

// ProduceTopic has a Name up to version 12 and an ID from version 13.
type ProduceTopic struct {
	Name       string
	ID         [16]byte
	Partitions []ProducePartition
}

// ProducePartition is what is produced to one partition.
type ProducePartition struct {
	Index int32
	// Records aliases the frame; nil if null.
	Records []byte
}

// ProduceResponse is what AppendProduceResponse encodes. Fields that a version
// does not have are left out.
type ProduceResponse struct {
	Topics []ProduceResponseTopic
	// ThrottleMs is the quota delay that the connection is muted for.
	ThrottleMs int32
	// Nodes are the endpoints of the leaders named in CurrentLeader (version
	// 10+, KIP-951).
	Nodes []NodeEndpoint
}

// ProduceResponseTopic echoes the topic as the request named it.
type ProduceResponseTopic struct {
	Name       string
	ID         [16]byte
	Partitions []ProduceResponsePartition
}

// ProduceResponsePartition is the outcome for one partition.
type ProduceResponsePartition struct {
	Index      int32
	ErrorCode  int16
	BaseOffset int64
	// LogAppendTime is -1 unless the topic stamps records.
	LogAppendTime int64
	// LogStartOffset is -1 if unknown (version 5+).
	LogStartOffset int64
	// RecordErrors are the records for which a batch was refused (version 8+,
	// KIP-467).
	RecordErrors []RecordError
	// ErrorMessage explains ErrorCode; nil for null (version 8+).
	ErrorMessage *string
	// CurrentLeader is sent with NOT_LEADER_OR_FOLLOWER; nil leaves it out
	// (version 10+, KIP-951).
	CurrentLeader *LeaderEpoch
}

// RecordError names a bad record by its index within the batch.
type RecordError struct {
	BatchIndex int32
	Message    *string
}

// LeaderEpoch is a partition's leader as this broker knows it; -1 is unknown.
type LeaderEpoch struct {
	LeaderID int32
	Epoch    int32
}

// NodeEndpoint is where a broker can be reached.
type NodeEndpoint struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// DecodeProduce decodes into a new ProduceRequest; see Decode.
func DecodeProduce(version int16, raw []byte) (*ProduceRequest, error) {
	r := new(ProduceRequest)
	if err := r.Decode(version, raw); err != nil {
		return nil, err
	}
	return r, nil
}

// Bounds of the smallest topic and partition on the wire and of their decoded
// forms, for the check that a frame does not decode into far more than itself.
const (
	produceTopicBytes     = int(unsafe.Sizeof(ProduceTopic{}))
	producePartitionBytes = int(unsafe.Sizeof(ProducePartition{}))
)

// Decode replaces r by the request in raw, the body of a Produce request of a
// version from ProduceMinVersion to ProduceMaxVersion. Records alias raw and are
// valid as long as it is. The decoded form takes at most twice the bytes of raw
// and a few KiB: a request of mostly empty partitions is refused. After an error r
// is empty.
func (r *ProduceRequest) Decode(version int16, raw []byte) error {
	if version < ProduceMinVersion || version > ProduceMaxVersion {
		r.Reset()
		return fmt.Errorf("decode produce: version %d is not one of %d to %d", version, ProduceMinVersion, ProduceMaxVersion)
	}
	topics, partitions, err := countProduce(version, raw)
	if err == nil && topics*produceTopicBytes+partitions*producePartitionBytes > 2*len(raw)+4<<10 {
		err = errSparse
	}
	if err != nil {
		r.Reset()
		return fmt.Errorf("decode produce: %w", err)
	}
	r.grow(topics, partitions)
	r.read(version, raw)
	return nil
}

// Reset drops all references to the last frame and keeps the memory.
func (r *ProduceRequest) Reset() {
	clear(r.partitions[:cap(r.partitions)])
	r.partitions = r.partitions[:0]
	for i := range r.Topics {
		r.Topics[i].Partitions = nil
	}
	r.Topics = r.Topics[:0]
	r.TransactionalID, r.Acks, r.TimeoutMs = nil, 0, 0
}

var errSparse = errors.New("too many topics and partitions for the bytes of the request")

// countProduce walks the request without keeping anything and checks it whole.
func countProduce(version int16, raw []byte) (topics, partitions int, err error) {
	d := reader{b: raw}
	flexible := version >= 9
	d.string(flexible)
	d.take(2 + 4)
	topics = max(d.array(flexible, 2), 0)
	for range topics {
		if version >= 13 {
			d.take(16)
		} else {
			d.string(flexible)
		}
		n := max(d.array(flexible, 5), 0)
		if partitions += n; partitions > maxArrayElements {
			return 0, 0, errSparse
		}
		for range n {
			d.take(4)
			d.bytes(flexible)
			if flexible {
				d.tags()
			}
		}
		if flexible {
			d.tags()
		}
		if d.err != nil {
			break
		}
	}
	if flexible {
		d.tags()
	}
	return topics, partitions, d.err
}

// grow makes room for exactly what was counted. Topics keep their names, so that
// read can recognise one that did not change.
func (r *ProduceRequest) grow(topics, partitions int) {
	if cap(r.Topics) < topics {
		r.Topics = append(make([]ProduceTopic, 0, topics), r.Topics[:cap(r.Topics)]...)
	}
	r.Topics = r.Topics[:topics]
	if cap(r.partitions) < partitions {
		r.partitions = make([]ProducePartition, partitions)
	}
	clear(r.partitions[:cap(r.partitions)])
	r.partitions = r.partitions[:partitions]
}

// read fills r from a request that countProduce accepted.
func (r *ProduceRequest) read(version int16, raw []byte) {
	d := reader{b: raw}
	flexible := version >= 9
	r.TransactionalID = nil
	if id := d.string(flexible); id != nil {
		if string(id) != r.txnID {
			r.txnID = string(id)
		}
		r.TransactionalID = &r.txnID
	}
	r.Acks, r.TimeoutMs = d.int16(), d.int32()
	d.array(flexible, 0)
	rest := r.partitions
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			t.Name, t.ID = "", [16]byte(d.take(16))
		} else {
			t.ID = [16]byte{}
			if name := d.string(flexible); string(name) != t.Name {
				t.Name = string(name)
			}
		}
		n := max(d.array(flexible, 0), 0)
		t.Partitions, rest = rest[:n:n], rest[n:]
		for j := range t.Partitions {
			t.Partitions[j] = ProducePartition{Index: d.int32(), Records: d.bytes(flexible)}
			if flexible {
				d.tags()
			}
		}
		if flexible {
			d.tags()
		}
	}
}

// AppendProduceResponse appends the body of a Produce response to dst.
func AppendProduceResponse(dst []byte, version int16, r *ProduceResponse) []byte {
	flexible := version >= 9
	dst = appendLen(dst, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendString(dst, t.Name, flexible)
		}
		dst = appendLen(dst, len(t.Partitions), flexible)
		for j := range t.Partitions {
			dst = appendProducePartition(dst, version, &t.Partitions[j])
		}
		if flexible {
			dst = append(dst, 0)
		}
	}
	dst = appendInt32(dst, r.ThrottleMs)
	switch {
	case !flexible:
	case version >= 10 && len(r.Nodes) > 0:
		dst = appendNodes(append(dst, 1), r.Nodes)
	default:
		dst = append(dst, 0)
	}
	return dst
}

func appendProducePartition(dst []byte, version int16, p *ProduceResponsePartition) []byte {
	flexible := version >= 9
	dst = appendInt32(dst, p.Index)
	dst = appendInt16(dst, p.ErrorCode)
	dst = appendInt64(dst, p.BaseOffset)
	dst = appendInt64(dst, p.LogAppendTime)
	if version >= 5 {
		dst = appendInt64(dst, p.LogStartOffset)
	}
	if version >= 8 {
		dst = appendLen(dst, len(p.RecordErrors), flexible)
		for _, e := range p.RecordErrors {
			dst = appendInt32(dst, e.BatchIndex)
			dst = appendNullableString(dst, e.Message, flexible)
			if flexible {
				dst = append(dst, 0)
			}
		}
		dst = appendNullableString(dst, p.ErrorMessage, flexible)
	}
	switch {
	case !flexible:
	case version >= 10 && p.CurrentLeader != nil:
		dst = appendLeader(append(dst, 1), 0, p.CurrentLeader)
	default:
		dst = append(dst, 0)
	}
	return dst
}
