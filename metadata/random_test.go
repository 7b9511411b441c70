package metadata_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// reload takes an image through its snapshot's bytes.
func reload(t *testing.T, img *metadata.Image) *metadata.Image {
	t.Helper()
	var b bytes.Buffer
	if err := img.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	out, err := metadata.DecodeSnapshot(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Random histories: the invariants hold after every step, a replay of the log
// and a snapshot with the rest of the log end in the same hash, and entries of
// many commands do the same as commands one by one.
func TestRandomHistories(t *testing.T) {
	seeds, steps := uint64(40), 400
	if testing.Short() {
		seeds = 8
	}
	accepted, rejected := make(map[string]int), make(map[metadata.Code]int)
	for seed := range seeds {
		g := newGenerator(seed)
		w := newWorld(t)
		half := w.img
		for i := range steps {
			c := g.next(w.img)
			if r := w.apply(c); r.Err == nil {
				accepted[kind(c)]++
			} else {
				rejected[r.Err.Code]++
			}
			if i == steps/2 {
				half = w.img
			}
		}
		want := w.img.Hash()
		if got := w.replay(metadata.Empty()).Hash(); got != want {
			t.Fatalf("seed %d: a replay ends in another image", seed)
		}
		if got := w.replay(reload(t, half)).Hash(); got != want {
			t.Fatalf("seed %d: a snapshot and the rest of the log end in another image", seed)
		}
		if got := reload(t, w.img).Hash(); got != want {
			t.Fatalf("seed %d: a snapshot has another hash than its image", seed)
		}
		if half.Hash() != w.replayTo(half.Index()).Hash() {
			t.Fatalf("seed %d: an older image changed when newer ones were made", seed)
		}
	}
	for _, k := range []string{
		"RegisterBroker", "Fence", "Sealed", "UnregisterBroker", "CreateTopic", "DeleteTopic", "CreatePartitions", "TopicsGone",
		"AlterConfigs", "CommitExtents", "ReplaceExtents", "TrimStreams", "Flip", "AllocateIDs", "ClaimGeneration", "SetFeature", "BrokerState", "Noop",
	} {
		if accepted[k] == 0 && !testing.Short() {
			t.Errorf("no %s was ever accepted: the generator tests too little", k)
		}
	}
	t.Logf("accepted %v", accepted)
	t.Logf("rejected %v", rejected)
}

func kind(c *pb) string {
	m := c.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	return string(m.Get(f).Message().Descriptor().Name())
}

// replay applies what an image does not have yet, from the bytes of the log.
func (w *world) replay(img *metadata.Image) *metadata.Image {
	w.t.Helper()
	for i, e := range w.log {
		b, err := proto.Marshal(e)
		if err != nil {
			w.t.Fatal(err)
		}
		if e, err = metadata.DecodeEntry(b); err != nil {
			w.t.Fatal(err)
		}
		img, _ = metadata.Apply(img, metadata.Index(i+1), e)
	}
	return img
}

func (w *world) replayTo(to metadata.Index) *metadata.Image {
	all := w.log
	defer func() { w.log = all }()
	w.log = w.log[:to]
	return w.replay(metadata.Empty())
}

func TestEntriesOfManyCommandsDoTheSameAsOneByOne(t *testing.T) {
	g := newGenerator(7)
	w := newWorld(t)
	for range 300 {
		w.apply(g.next(w.img))
	}
	var all []*pb
	for _, e := range w.log {
		all = append(all, e.Commands...)
	}
	img, results := metadata.Apply(metadata.Empty(), w.img.Index(), metadata.NewEntry(all...))
	if len(results) != len(all) || img.Hash() != w.img.Hash() {
		t.Fatal("another image")
	}
}

func TestEntriesApplyOnce(t *testing.T) {
	w := newWorld(t)
	e := metadata.NewEntry(&pb{Body: &metadatapb.Command_AllocateIds{AllocateIds: &metadatapb.AllocateIDs{Count: 5}}})
	one, _ := metadata.Apply(w.img, 10, e)
	again, results := metadata.Apply(one, 10, e)
	if again != one || results != nil {
		t.Fatal("an entry at the image's index was applied again")
	}
	if older, _ := metadata.Apply(one, 9, e); older != one {
		t.Fatal("an older entry was applied")
	}
	if newer, r := metadata.Apply(one, 12, e); newer.Index() != 12 || r[0].First != 5 {
		t.Fatal("indexes may have gaps")
	}
	if one.Newer(w.img) != true || w.img.Newer(one) || one.Newer(one) {
		t.Fatal("Newer")
	}
}

func TestImagesCanBeReadAndExtendedByManyAtOnce(t *testing.T) {
	g := newGenerator(3)
	w := newWorld(t)
	for range 200 {
		w.apply(g.next(w.img))
	}
	next := g.next(w.img)
	done := make(chan [32]byte)
	for range 4 {
		go func() {
			img, _ := metadata.Apply(w.img, w.img.Index()+1, metadata.NewEntry(next))
			for p := range img.Owned(inc{Broker: 1, Epoch: 1}) {
				_ = img.TopicSettings(p.TopicName)
			}
			if err := metadata.Check(w.img); err != nil {
				t.Error(err)
			}
			done <- img.Hash()
		}()
	}
	first := <-done
	for range 3 {
		if <-done != first {
			t.Error("the same entry on the same image gave another image")
		}
	}
}

func TestSnapshotBytesAreThoseOfTheMessage(t *testing.T) {
	g := newGenerator(5)
	w := newWorld(t)
	for range 300 {
		w.apply(g.next(w.img))
	}
	var b bytes.Buffer
	if err := w.img.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(metadata.Snapshot(w.img))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), whole) {
		t.Fatal("WriteSnapshot and Snapshot disagree")
	}
}

func TestSameOwned(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a, b)
	check := func(what string, same bool, c *pb) {
		t.Helper()
		before := w.img
		w.ok(c)
		if got := w.img.SameOwned(before, a); got != same {
			t.Errorf("%s: same is %t", what, got)
		}
	}
	check("a commit", true, w.as(a, commit(0, run(s[0], 0, slot(a, 0, 0, 1, 0)))))
	check("a registration", true, register(3, 3))
	check("a flip to it", false, w.as(b, flip(s[1], 0, 0, a)))
	check("a flip from it", false, w.as(a, flip(s[1], 1, 0, b)))
	check("a config", true, alter(metadata.KindTopic, "t", "a", "1"))
	check("a deletion", false, deleteTopic(1))
	w.topic("u", 2, b)
	check("a fence that names it", false, fence(b, a, assign(2, 0, a)))
	check("what it waits for is sealed", false, w.as(a, sealed(b, 0)))
	before := w.img
	w.topic("v", 3, inc{Broker: 3, Epoch: 3})
	if !w.img.SameOwned(before, a) {
		t.Error("a topic of another broker changed what it owns")
	}
}
