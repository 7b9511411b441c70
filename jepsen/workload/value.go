package workload

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/history"
)

// A record's value is
//
//	magic "PNJ1", run u64, value u64, key u32, process u32, counter u32, time ms i64, filler, CRC-32C u32
//
// in big endian; the CRC covers all before it. The record's key is the value, its
// timestamp the time, and it has one header, "run". So that whatever is damaged,
// swapped or another run's is seen.
const (
	valueMagic  = "PNJ1"
	valueHeader = 4 + 8 + 8 + 4 + 4 + 4 + 8
	valueLeast  = valueHeader + 4
	headerRun   = "run"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// origin is what a record says about where it comes from.
type origin struct {
	run     uint64
	value   history.Value
	key     history.Key
	process int32
	counter int32
	at      time.Time
}

// record makes a record with filler bytes that no codec shortens.
func record(o origin, topic string, partition int32, filler int) *kgo.Record {
	b := make([]byte, valueHeader+filler+4)
	copy(b, valueMagic)
	binary.BigEndian.PutUint64(b[4:], o.run)
	binary.BigEndian.PutUint64(b[12:], uint64(o.value))
	binary.BigEndian.PutUint32(b[20:], uint32(o.key))
	binary.BigEndian.PutUint32(b[24:], uint32(o.process))
	binary.BigEndian.PutUint32(b[28:], uint32(o.counter))
	binary.BigEndian.PutUint64(b[32:], uint64(o.at.UnixMilli()))
	fill := rand.NewPCG(o.run, uint64(o.value))
	for i := valueHeader; i < len(b)-4; i += 8 {
		var chunk [8]byte
		binary.BigEndian.PutUint64(chunk[:], fill.Uint64())
		copy(b[i:len(b)-4], chunk[:])
	}
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return &kgo.Record{
		Topic: topic, Partition: partition, Key: binary.BigEndian.AppendUint64(nil, uint64(o.value)), Value: b,
		Timestamp: time.UnixMilli(o.at.UnixMilli()), Headers: []kgo.RecordHeader{{Key: headerRun, Value: b[4:12]}},
	}
}

// parse reads a record back. Damage is how it differs from what is sent under
// its value, empty if it does not; a value that cannot be read is 0.
func parse(run uint64, key history.Key, r *kgo.Record) (o origin, damage string) {
	b := r.Value
	if len(b) < valueLeast || string(b[:4]) != valueMagic {
		return o, fmt.Sprintf("no value of any run: %d bytes", len(b))
	}
	if got, want := crc32.Checksum(b[:len(b)-4], castagnoli), binary.BigEndian.Uint32(b[len(b)-4:]); got != want {
		return o, fmt.Sprintf("CRC %08x of %d bytes, not %08x", got, len(b), want)
	}
	o = origin{
		run: binary.BigEndian.Uint64(b[4:]), value: history.Value(binary.BigEndian.Uint64(b[12:])),
		key: history.Key(binary.BigEndian.Uint32(b[20:])), process: int32(binary.BigEndian.Uint32(b[24:])),
		counter: int32(binary.BigEndian.Uint32(b[28:])), at: time.UnixMilli(int64(binary.BigEndian.Uint64(b[32:]))),
	}
	switch {
	case o.run != run:
		return origin{}, fmt.Sprintf("a value of run %x", o.run)
	case o.key != key:
		damage = fmt.Sprintf("sent to key %d", o.key)
	case len(r.Key) != 8 || binary.BigEndian.Uint64(r.Key) != uint64(o.value):
		damage = fmt.Sprintf("record key %x", r.Key)
	case len(r.Headers) != 1 || r.Headers[0].Key != headerRun || string(r.Headers[0].Value) != string(b[4:12]):
		damage = fmt.Sprintf("headers %v", r.Headers)
	case !r.Timestamp.Equal(o.at):
		damage = fmt.Sprintf("timestamp %v, not %v", r.Timestamp.UTC(), o.at.UTC())
	}
	return o, damage
}
