package metadata_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew; only for a version that was never released")

const (
	goldenLog      = "testdata/entries-v1.txt"
	goldenSnapshot = "testdata/snapshot-v1.bin"
)

// goldenHistory has every kind of command, accepted, and some rejections.
func goldenHistory(t *testing.T) *world {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	w.ok(&pb{TimeMs: 1_700_000_000_000, Body: createTopic("orders", 1, a, a, b).Body})
	big := createTopic("events", 2, a)
	big.GetCreateTopic().Configs = map[string]string{"retention.ms": "5", "cleanup.policy": "compact", "a": "b"}
	big.GetCreateTopic().Internal = true
	w.ok(big)
	w.ok(w.as(a, commit(2, run(1, 0, slot(a, 0, 0, 10, 0), seg(a, 1, 10, 20, 0)), run(2, 0, idx(a, 2, 0, 7)))))
	w.no(metadata.ErrOutOfOrder, w.as(a, commit(3, run(1, 0, slot(a, 2, 21, 30, 0)))))
	w.ok(w.as(a, replace(1, 0, 0, 20, seg(a, 3, 0, 20, 0))))
	w.ok(w.as(a, trim(1, 0, 5)))
	w.ok(w.as(a, flip(2, 0, 9, b, slot(a, 2, 7, 9, 0))))
	tid := topicID(1)
	w.ok(&pb{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: &metadatapb.CreatePartitions{
		TopicId: tid[:], From: 3, Partitions: []*metadatapb.PartitionSpec{{Replicas: []int32{2, 1}, Owner: b.Proto()}},
	}}})
	w.ok(&pb{Body: &metadatapb.Command_AssignReplicas{AssignReplicas: &metadatapb.AssignReplicas{
		TopicId: tid[:], Partition: 0, Replicas: []int32{2, 1}, Adding: []int32{2}, Removing: []int32{1},
	}}})
	w.ok(alter(metadata.KindTopic, "events", "retention.ms", "6", "a", "-"))
	w.ok(alter(metadata.KindBroker, "", "log.retention.hours", "3"))
	w.ok(&pb{Body: &metadatapb.Command_AllocateIds{AllocateIds: &metadatapb.AllocateIDs{Count: 10000}}})
	w.ok(&pb{Body: &metadatapb.Command_AllocateIds{AllocateIds: &metadatapb.AllocateIDs{Space: metadatapb.AllocateIDs_OBJECT, Count: 7}}})
	w.ok(&pb{Body: &metadatapb.Command_ClaimStore{ClaimStore: &metadatapb.ClaimStore{StoreId: "store-1"}}})
	w.ok(&pb{Body: &metadatapb.Command_SetFeature{SetFeature: &metadatapb.SetFeature{Name: "group.version", Level: 1}}})
	w.ok(&pb{Body: &metadatapb.Command_BrokerState{BrokerState: &metadatapb.BrokerState{Broker: 2, Cordoned: true, Draining: true}}})
	w.ok(w.as(b, noop()))
	w.no(metadata.ErrStaleCommand, &pb{From: b.Proto(), CmdSeq: 1, Body: noop().Body})
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(w.as(b, sealed(a, 4, sealedStream(1, 20, 25, idx(b, 0, 20, 25)))))
	a2 := w.register(1, 3)
	c := w.register(3, 4)
	w.ok(fence(c, a2))
	w.ok(&pb{Body: &metadatapb.Command_UnregisterBroker{UnregisterBroker: &metadatapb.UnregisterBroker{Broker: 3}}})
	w.ok(deleteTopic(2))
	w.ok(w.as(b, topicsGone(2)))
	w.ok(w.as(a2, topicsGone(2)))
	w.topic("late", 3, a2)
	w.ok(deleteTopic(3))
	w.ok(&pb{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: 2}}})
	w.register(4, 5)
	return w
}

// The golden log is replayed for ever: every release must turn these bytes into
// these results and these hashes. Lines are kind, entry, result and hash.
func TestGoldenEntries(t *testing.T) {
	if *rewrite {
		writeGolden(t)
	}
	f, err := os.Open(goldenLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	missing := make(map[string]bool)
	body := (&pb{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range body.Len() {
		missing[string(body.Get(i).Message().Name())] = true
	}
	img := metadata.Empty()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) != 4 {
			t.Fatalf("golden line %q", lines.Text())
		}
		e, err := metadata.DecodeEntry(unhex(t, field[1]))
		if err != nil {
			t.Fatal(err)
		}
		var results []metadata.Result
		img, results = metadata.Apply(img, img.Index()+1, e)
		result, err := results[0].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(result); "r:"+got != field[2] {
			t.Errorf("%s: result %s, want %s", field[0], got, field[2])
		}
		if got := fmt.Sprintf("%x", img.Hash()); got != field[3] {
			t.Fatalf("%s: hash %s, want %s", field[0], got, field[3])
		}
		if results[0].Err == nil {
			delete(missing, field[0])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for k := range missing {
		t.Errorf("no accepted %s in the golden log", k)
	}
	snap, err := os.ReadFile(goldenSnapshot)
	if err != nil {
		t.Fatal(err)
	}
	old, err := metadata.DecodeSnapshot(snap)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := old.WriteSnapshot(&again); err != nil {
		t.Fatal(err)
	}
	if old.Hash() != img.Hash() || !bytes.Equal(again.Bytes(), snap) {
		t.Error("the golden snapshot is not that of the golden log")
	}
}

func unhex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeGolden(t *testing.T) {
	w := goldenHistory(t)
	var out, snap bytes.Buffer
	img := metadata.Empty()
	for _, e := range w.log {
		entry, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var results []metadata.Result
		img, results = metadata.Apply(img, img.Index()+1, e)
		result, err := results[0].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %x r:%x %x\n", kind(e.Commands[0]), entry, result, img.Hash())
	}
	if err := img.WriteSnapshot(&snap); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{goldenLog: out.Bytes(), goldenSnapshot: snap.Bytes()} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDecodeEntryRefusesWhatItDoesNotKnow(t *testing.T) {
	later := metadata.NewEntry(noop())
	later.Version = 2
	for what, e := range map[string]*metadatapb.Entry{
		"a later version":             later,
		"no version":                  {Commands: []*pb{noop()}},
		"a command of a later kind":   metadata.NewEntry(&pb{CmdSeq: 1}),
		"a command that says nothing": metadata.NewEntry(&pb{}),
	} {
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := metadata.DecodeEntry(b); err == nil {
			t.Errorf("%s is accepted", what)
		}
		// Apply, given it all the same, does nothing.
		img := newWorld(t).img
		next, results := metadata.Apply(img, img.Index()+1, e)
		if results[0].Err == nil || results[0].Err.Code != metadata.ErrUnsupported || frozen(next) != frozen(img) {
			t.Errorf("%s: %v", what, results[0].Err)
		}
	}
	if _, err := metadata.DecodeEntry(make([]byte, metadata.MaxEntryBytes+1)); err == nil {
		t.Error("a huge entry is looked at")
	}
	if _, err := metadata.FromSnapshot(&metadatapb.Snapshot{Version: 2}); err == nil {
		t.Error("a later snapshot is accepted")
	}
}

func TestResultsCrossTheWire(t *testing.T) {
	for _, r := range []metadata.Result{
		{}, {First: 7}, {Incarnation: inc{Broker: 0, Epoch: 3}, Skipped: 2}, {TopicID: topicID(3)},
		{Err: &metadata.Error{Code: metadata.ErrNotOwner, Message: "m", Alarm: true}},
	} {
		b, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := metadata.UnmarshalResult(b)
		if err != nil {
			t.Fatal(err)
		}
		if got.Err != nil && r.Err != nil && *got.Err == *r.Err {
			got.Err = r.Err
		}
		if got != r {
			t.Errorf("%+v became %+v", r, got)
		}
	}
	if _, err := metadata.UnmarshalResult([]byte{0xff}); err == nil {
		t.Error("garbage is a result")
	}
}
