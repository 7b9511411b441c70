package main

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/crc64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

const dumpPrefix = "c1/1"

var (
	dumpOwner  = metadata.Incarnation{Broker: 3, Epoch: 17}
	dumpSealer = metadata.Incarnation{Broker: 1, Epoch: 18}
)

// writeWAL writes slot 0 with two streams and seals behind it, and returns the
// store's directory.
func writeWAL(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	b, err := dir.New(root, dir.Options{Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := context.WithoutCancel(t.Context())
	w, err := wal.New(wal.Config{Bucket: b, Prefix: dumpPrefix, ClusterID: "c1", Generation: 1, Incarnation: dumpOwner})
	if err != nil {
		t.Fatal(err)
	}
	var slot *commitlog.Slot
	for stream := range commitlog.StreamID(2) { // before Run, so that both get into one slot
		if _, slot, err = w.Append(7+stream, 5, 100, kbatch.Values(1_700_000_000_000, "alpha", "beta").Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	<-slot.Done()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	<-ran
	_, err = wal.Seal(ctx, wal.SealConfig{Bucket: b, Prefix: dumpPrefix, ClusterID: "c1", Generation: 1, Incarnation: dumpOwner, By: dumpSealer})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestDumpWALShowsHeaderAndChunks(t *testing.T) {
	root := writeWAL(t)
	key := wal.SlotKey(dumpPrefix, dumpOwner, 0)
	for _, from := range []string{filepath.Join(root, key), "dir://" + root + "#" + key} {
		code, out, errOut := ponor(t, "dump", "wal", from)
		got := strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"kind data", "cluster c1", "generation 1", "incarnation 3-17", "seq 0", "durable below 0", "repeated indexes 0", "chunks 2", "7 5 100 102 128", "8 5 100 102", "2023-11-14T22:13:20.000Z", "matches"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", from, want, out)
			}
		}
		if code != exitOK || errOut != "" {
			t.Errorf("%s: exit %d, %s", from, code, errOut)
		}
	}
	code, out, _ := ponor(t, "dump", "wal", filepath.Join(root, key), "--format", "json")
	var got walDump
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if len(got.Chunks) != 2 || got.Chunks[1].Stream != 8 || !got.Chunks[1].Matches || got.Author != "3-17" {
		t.Errorf("found %+v", got)
	}
	code, out, _ = ponor(t, "dump", "wal", filepath.Join(root, wal.SlotKey(dumpPrefix, dumpOwner, 1)))
	if code != exitOK || !strings.Contains(out, "fence by 1-18") {
		t.Errorf("exit %d, fence shown as\n%s", code, out)
	}
}

// Any flipped byte of any object makes the command fail.
func TestDumpFailsForEveryFlippedByte(t *testing.T) {
	root := writeWAL(t)
	for _, c := range []struct {
		kind string
		path string
	}{
		{"wal", filepath.Join(root, wal.SlotKey(dumpPrefix, dumpOwner, 0))},
		{"wal", filepath.Join(root, wal.SlotKey(dumpPrefix, dumpOwner, 1))},
		{"segment", writeSegment(t)},
		{"index", writeIndex(t)},
		{"metadata", writeSnapshot(t)},
	} {
		good, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		bad := filepath.Join(filepath.Dir(c.path), "bad") // beside meta.json
		for i := range good {
			b := bytes.Clone(good)
			b[i] ^= 0x10
			if err := os.WriteFile(bad, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if code, _, errOut := ponor(t, "dump", c.kind, bad); code != exitError || !strings.Contains(errOut, bad) {
				t.Fatalf("%s: byte %d of %d flipped: exit %d, %s", c.kind, i, len(good), code, errOut)
			}
		}
	}
}

func TestDumpSaysWhatIsDamagedAndShowsTheRest(t *testing.T) {
	path := filepath.Join(writeWAL(t), wal.SlotKey(dumpPrefix, dumpOwner, 0))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[wal.HeaderBytes+70] ^= 1
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, b, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := ponor(t, "dump", "wal", bad)
	if code != exitError || !strings.Contains(out, "DAMAGED") || !strings.Contains(out, "matches") ||
		!strings.Contains(errOut, "chunk of stream 7, offsets 100 to 102, bytes 128 to ") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	code, out, _ = ponor(t, "dump", "wal", bad, "--format", "json")
	var got walDump
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitError || len(got.Damages) != 1 || got.Chunks[0].Matches {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

func writeObject(t *testing.T, b *segment.Builder) string {
	t.Helper()
	body, _ := b.Finish()
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, bytes.Join(body.Parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeSegment(t *testing.T) string {
	t.Helper()
	b := segment.NewBuilder(segment.Name{Creator: dumpOwner, Counter: 42})
	batch := commitlog.Batch(kbatch.Values(1_700_000_000_000, "alpha", "beta").Bytes())
	batch.SetBase(1000, 4)
	s, err := b.AddRun(10, 4, 1000, [][]byte{batch})
	if err != nil {
		t.Fatal(err)
	}
	s.State = segment.State{Kind: segment.StateCheckpoint, Checkpoint: new(partition.State).Encode()}
	return writeObject(t, b)
}

func writeIndex(t *testing.T) string {
	t.Helper()
	b := segment.NewBuilder(segment.Name{Creator: dumpOwner, Counter: 43})
	b.AddIndex(&segment.Section{Stream: 11, Base: 5, From: 5, End: 20, Entries: []segment.Entry{
		{Extent: metadata.Extent{Object: "wal/3-17/0/9", Position: 128, Length: 77, Base: 5, End: 10, Epoch: 9, MaxTimestamp: -1, Bytes: 77}},
		{Extent: metadata.Extent{Object: "idx/3-17/1", Position: 32, Length: 79, Base: 10, End: 20, Epoch: 9, Indirect: true, MaxTimestamp: 4, Bytes: 1 << 33}},
	}})
	return writeObject(t, b)
}

func TestDumpSegmentAndIndex(t *testing.T) {
	for kind, c := range map[string]struct {
		path string
		want []string
	}{
		"segment": {writeSegment(t), []string{"creator 3-17", "counter 42", "sections 1", "stream 10: offsets 1000 to 1002", "checkpoint of 5 bytes", "1000 1002 4 32", "1 matches this"}},
		"index":   {writeIndex(t), []string{"counter 43", "stream 11: offsets 5 to 20", "5 10 9 128 77 none 0 elsewhere wal/3-17/0/9", "elsewhere idx/3-17/1 (index)"}},
	} {
		code, out, errOut := ponor(t, "dump", kind, c.path)
		got := strings.Join(strings.Fields(out), " ")
		for _, want := range c.want {
			if code != exitOK || !strings.Contains(got, want) {
				t.Errorf("%s: exit %d %s, no %q in\n%s", kind, code, errOut, want, out)
			}
		}
	}
}

// writeSnapshot lays a snapshot out as Raft does, with its note beside it.
func writeSnapshot(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../metadata/testdata/snapshot-v1.bin")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = h.Write(b)
	meta, err := json.Marshal(map[string]any{"Size": len(b), "CRC": h.Sum(nil)})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"meta.json": meta, "state.bin": b} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "state.bin")
}

func TestDumpMetadata(t *testing.T) {
	path := writeSnapshot(t)
	for _, format := range []string{formatText, formatJSON} {
		code, out, errOut := ponor(t, "dump", "metadata", path, "--format", format)
		var got struct {
			Version int              `json:"version"`
			Topics  []map[string]any `json:"topics"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || got.Version != 1 || len(got.Topics) == 0 {
			t.Errorf("%s: exit %d, %v: %s%s", format, code, err, errOut, out)
		}
	}
}

func TestDumpMistakes(t *testing.T) {
	root := t.TempDir()
	for from, want := range map[string]int{
		filepath.Join(root, "absent"):   exitError,
		"dir://" + root + "/absent#a/b": exitError,
		"dir://" + root:                 exitUsage,
		"ftp://h#key":                   exitUsage,
	} {
		if code, _, errOut := ponor(t, "dump", "wal", from); code != want || errOut == "" {
			t.Errorf("%s: exit %d, %s", from, code, errOut)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "absent")); !os.IsNotExist(err) {
		t.Error("dump has made the store's directory")
	}
}
