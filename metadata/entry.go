package metadata

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"ponor/metadata/metadatapb"
)

// EntryVersion is the format version of entries that this release writes and
// the newest that it reads.
const EntryVersion = 1

// MaxEntryBytes is the most DecodeEntry looks at. Proposers keep entries far
// smaller, 256 KiB, so that a slow disk or link never stalls elections.
const MaxEntryBytes = 16 << 20

// NewEntry wraps commands, to be applied in order, in the current format.
func NewEntry(commands ...*metadatapb.Command) *metadatapb.Entry {
	return &metadatapb.Entry{Version: EntryVersion, Commands: commands}
}

// EncodeEntry is NewEntry as bytes for the Raft log.
func EncodeEntry(commands ...*metadatapb.Command) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(NewEntry(commands...))
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return b, nil
}

// DecodeEntry reads a Raft log entry. An error means that this release cannot
// know what the entry does; the node must stop applying.
func DecodeEntry(b []byte) (*metadatapb.Entry, error) {
	if len(b) > MaxEntryBytes {
		return nil, fmt.Errorf("decode entry: %d bytes, the most is %d", len(b), MaxEntryBytes)
	}
	e := new(metadatapb.Entry)
	if err := proto.Unmarshal(b, e); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	if e.GetVersion() != EntryVersion {
		return nil, fmt.Errorf("decode entry: version %d, this release knows %d; upgrade the node", e.GetVersion(), EntryVersion)
	}
	for i, c := range e.GetCommands() {
		if c.GetBody() == nil {
			return nil, fmt.Errorf("decode entry: command %d is of a kind this release does not know; upgrade the node", i)
		}
	}
	return e, nil
}
