package rpc

import "encoding/binary"

// The functions below append Kafka's primitive types to b.

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendUvarint(b []byte, v int) []byte { return binary.AppendUvarint(b, uint64(uint32(v))) }

// appendLen appends an array or bytes length; -1 is null.
func appendLen(b []byte, n int, flexible bool) []byte {
	if flexible {
		return appendUvarint(b, n+1)
	}
	return appendInt32(b, int32(n))
}

func appendString(b []byte, s string, flexible bool) []byte {
	if flexible {
		b = appendUvarint(b, len(s)+1)
	} else {
		b = appendInt16(b, int16(len(s)))
	}
	return append(b, s...)
}

func appendNullableString(b []byte, s *string, flexible bool) []byte {
	switch {
	case s != nil:
		return appendString(b, *s, flexible)
	case flexible:
		return append(b, 0)
	}
	return appendInt16(b, -1)
}

// appendNodes appends tag 0 of Produce and Fetch responses: the endpoints of
// current leaders (KIP-951). The length goes before the value, so the value is
// measured first.
func appendNodes(b []byte, nodes []NodeEndpoint) []byte {
	n := uvarintLen(len(nodes) + 1)
	for _, v := range nodes {
		n += 4 + uvarintLen(len(v.Host)+1) + len(v.Host) + 4 + 1 + 1
		if v.Rack != nil {
			n += uvarintLen(len(*v.Rack)+1) + len(*v.Rack) - 1
		}
	}
	b = appendUvarint(append(b, 0), n)
	b = appendLen(b, len(nodes), true)
	for _, v := range nodes {
		b = appendInt32(b, v.ID)
		b = appendString(b, v.Host, true)
		b = appendInt32(b, v.Port)
		b = appendNullableString(b, v.Rack, true)
		b = append(b, 0)
	}
	return b
}

// appendLeader appends a tagged current leader.
func appendLeader(b []byte, tag byte, l *LeaderEpoch) []byte {
	b = append(b, tag, 4+4+1)
	b = appendInt32(b, l.LeaderID)
	b = appendInt32(b, l.Epoch)
	return append(b, 0)
}

func uvarintLen(v int) int {
	n := 1
	for u := uint32(v); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
