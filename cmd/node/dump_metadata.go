package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"ponor/controller"
	"ponor/metadata"
)

// metadataDump is a snapshot in the JSON form of its protobuf message.
type metadataDump struct{ json.RawMessage }

// dumpMetadata decodes a metadata snapshot, checks it as a node does that loads
// it, and, where Raft's meta.json lies beside it, against the size and CRC there:
// the snapshot itself has none.
func dumpMetadata(from string, b []byte) (dumped, error) {
	if controller.IsBackup(b) {
		backup, err := controller.ReadBackup(b)
		if err != nil {
			return nil, err
		}
		return imageDump(backup.Image)
	}
	if !strings.Contains(from, "://") {
		if err := controller.CheckSnapshotMeta(filepath.Join(filepath.Dir(from), "meta.json"), b); err != nil {
			return nil, err
		}
	}
	img, err := metadata.DecodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	return imageDump(img)
}

func imageDump(img *metadata.Image) (dumped, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(metadata.Snapshot(img))
	if err != nil {
		return nil, fmt.Errorf("encode snapshot as JSON: %w", err)
	}
	return metadataDump{text}, nil
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
