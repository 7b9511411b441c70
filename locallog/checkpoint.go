package locallog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"strings"

	"ponor/commitlog"
)

// A checkpoint file <end offset>.checkpoint holds what the partition folded of
// all batches below that offset:
//
//	0  version  uint8   1
//	1  crc      uint32  CRC32C of everything after it
//	5  end      int64
//	13 bytes of commitlog.Checkpointer
const (
	checkpointVersion = 1
	checkpointHeader  = 13
	checkpointSuffix  = ".checkpoint"
)

type checkpoint struct {
	end  commitlog.Offset
	data []byte
}

func (c checkpoint) encode() []byte {
	b := make([]byte, checkpointHeader, checkpointHeader+len(c.data))
	b[0] = checkpointVersion
	binary.BigEndian.PutUint64(b[5:], uint64(c.end))
	b = append(b, c.data...)
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], commitlog.Castagnoli))
	return b
}

func decodeCheckpoint(b []byte) (checkpoint, error) {
	switch {
	case len(b) < checkpointHeader:
		return checkpoint{}, fmt.Errorf("%w: checkpoint of %d bytes", commitlog.ErrCorrupt, len(b))
	case b[0] != checkpointVersion:
		return checkpoint{}, fmt.Errorf("%w: checkpoint version %d, only %d is known", commitlog.ErrCorrupt, b[0], checkpointVersion)
	case crc32.Checksum(b[5:], commitlog.Castagnoli) != binary.BigEndian.Uint32(b[1:]):
		return checkpoint{}, fmt.Errorf("%w: checkpoint fails its CRC", commitlog.ErrCorrupt)
	}
	end := int64(binary.BigEndian.Uint64(b[5:]))
	if end < 0 {
		return checkpoint{}, fmt.Errorf("%w: checkpoint ends at %d", commitlog.ErrCorrupt, end)
	}
	return checkpoint{commitlog.Offset(end), b[checkpointHeader:]}, nil
}

// offsetName is Kafka's file name for an offset.
func offsetName(o commitlog.Offset, suffix string) string { return fmt.Sprintf("%020d%s", o, suffix) }

// parseOffsetName is its inverse.
func parseOffsetName(name, suffix string) (commitlog.Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return commitlog.Offset(n), err == nil && n >= 0
}

// readCheckpoint reads the newest checkpoint file; the zero value if there is
// none.
func readCheckpoint(fsys FS, dir string, names []string) (checkpoint, error) {
	newest := commitlog.Offset(-1)
	for _, n := range names {
		if o, ok := parseOffsetName(n, checkpointSuffix); ok {
			newest = max(newest, o)
		}
	}
	if newest < 0 {
		return checkpoint{}, nil
	}
	name := filepath.Join(dir, offsetName(newest, checkpointSuffix))
	b, err := readFile(fsys, name)
	if err == nil {
		var c checkpoint
		if c, err = decodeCheckpoint(b); err == nil {
			return c, nil
		}
	}
	return checkpoint{}, fmt.Errorf("read %s: %w", name, err)
}

// writeCheckpoint makes next the newest checkpoint and removes the one before.
func writeCheckpoint(fsys FS, dir string, next checkpoint, before commitlog.Offset) error {
	name := filepath.Join(dir, offsetName(next.end, checkpointSuffix))
	if err := replaceFile(fsys, name, next.encode()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if before < next.end {
		// One that stays behind is older and does no harm.
		_ = fsys.RemoveAll(filepath.Join(dir, offsetName(before, checkpointSuffix)))
	}
	return nil
}
