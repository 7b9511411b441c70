package locallog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"ponor/commitlog"
)

// epochStart is a line of Kafka's leader-epoch-checkpoint.
type epochStart struct {
	epoch commitlog.Epoch
	start commitlog.Offset
}

const (
	epochsName   = "leader-epoch-checkpoint"
	metadataName = "partition.metadata"
)

// readEpochs reads leader-epoch-checkpoint: version 0, a count, and a line
// "epoch start-offset" each, both growing. A missing file is empty.
func readEpochs(fsys FS, name string) ([]epochStart, error) {
	b, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []epochStart
	if err == nil {
		out, err = decodeEpochs(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return out, nil
}

func decodeEpochs(b []byte) ([]epochStart, error) {
	lines, err := checkpointLines(b, 2)
	if err != nil {
		return nil, err
	}
	var out []epochStart
	for _, l := range lines {
		e, eerr := strconv.ParseInt(l[0], 10, 32)
		o, oerr := strconv.ParseInt(l[1], 10, 64)
		next := epochStart{commitlog.Epoch(e), commitlog.Offset(o)}
		if eerr != nil || oerr != nil || e < 0 || o < 0 {
			return nil, fmt.Errorf("%w: line %q", commitlog.ErrCorrupt, strings.Join(l, " "))
		}
		if n := len(out); n > 0 && (next.epoch <= out[n-1].epoch || next.start < out[n-1].start) {
			return nil, fmt.Errorf("%w: epoch %d at %d follows epoch %d at %d", commitlog.ErrCorrupt, next.epoch, next.start, out[n-1].epoch, out[n-1].start)
		}
		out = append(out, next)
	}
	return out, nil
}

func encodeEpochs(all []epochStart) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(all))
	for _, e := range all {
		b = fmt.Appendf(b, "%d %d\n", e.epoch, e.start)
	}
	return b
}

// beginEpoch notes that a leader at epoch begins at end, as Kafka does when a
// leader starts: epochs that wrote nothing below it vanish. The last line is
// always the newest owner, so that the file is the fence too.
func beginEpoch(all []epochStart, epoch commitlog.Epoch, end commitlog.Offset) []epochStart {
	if n := len(all); n > 0 && all[n-1].epoch == epoch && all[n-1].start <= end {
		return all
	}
	kept := slices.Clone(all)
	for len(kept) > 0 && (kept[len(kept)-1].start >= end || kept[len(kept)-1].epoch >= epoch) {
		kept = kept[:len(kept)-1]
	}
	return append(kept, epochStart{epoch, end})
}

// trimEpochs drops epochs that ended at or below start.
func trimEpochs(all []epochStart, start commitlog.Offset) []epochStart {
	for len(all) > 1 && all[1].start <= start {
		all = all[1:]
	}
	return all
}

// readTopicID reads partition.metadata. known is false if there is none, which
// is so only for a directory that never held a log.
func readTopicID(fsys FS, name string) (id string, known bool, err error) {
	b, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err == nil {
		id, err = decodeTopicID(b)
	}
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", name, err)
	}
	return id, true, nil
}

func encodeTopicID(id string) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", id)
}

func decodeTopicID(b []byte) (string, error) {
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if fields["version"] != "0" || fields["topic_id"] == "" {
		return "", fmt.Errorf("%w: not version 0 with a topic_id", commitlog.ErrCorrupt)
	}
	return fields["topic_id"], nil
}
