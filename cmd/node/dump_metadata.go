package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"ponor/metadata"
)

// metadataDump is a snapshot in the JSON form of its protobuf message.
type metadataDump struct{ json.RawMessage }

// dumpMetadata decodes a metadata snapshot, checks it as a node does that loads
// it, and, where Raft's meta.json lies beside it, against the size and CRC there:
// the snapshot itself has none.
func dumpMetadata(from string, b []byte) (dumped, error) {
	if !strings.Contains(from, "://") {
		if err := checkSnapshotMeta(filepath.Join(filepath.Dir(from), "meta.json"), b); err != nil {
			return nil, err
		}
	}
	img, err := metadata.DecodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(metadata.Snapshot(img))
	if err != nil {
		return nil, fmt.Errorf("encode snapshot as JSON: %w", err)
	}
	return metadataDump{text}, nil
}

// checkSnapshotMeta compares a snapshot with Raft's note about it, if there is
// one.
func checkSnapshotMeta(path string, b []byte) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var meta struct {
		Size int64
		CRC  []byte // CRC-64, ECMA
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if meta.Size != int64(len(b)) {
		return fmt.Errorf("snapshot has %d bytes, %s says %d", len(b), path, meta.Size)
	}
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = h.Write(b)
	if got := h.Sum(nil); !bytes.Equal(got, meta.CRC) {
		return fmt.Errorf("snapshot's CRC is %x, %s says %x", got, path, meta.CRC)
	}
	return nil
}

// print shows the same JSON to people: the message's names are its explanation.
func (m metadataDump) print(p *printer) {
	var out bytes.Buffer
	if err := json.Indent(&out, m.RawMessage, "", "  "); err != nil {
		out.Write(m.RawMessage)
	}
	p.line("%s", out.Bytes())
}

func (metadataDump) damage() error { return nil }
