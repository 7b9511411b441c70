package verify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
	"ponor/sharedlog/verify"
	"ponor/sharedlog/wal"
)

const prefix = "AAAAAAAAAAAAAAAAAAAAAA/1/"

// world is a store with one of everything: packed runs, a folded index, a live
// WAL, a sealed one that was taken over, garbage.
type world struct {
	*testing.T
	c      *sharedlogtest.Cluster
	b      *mem.Bucket
	packed metadata.Partition   // in segments, and folded once
	live   metadata.Incarnation // has three slots
	dead   metadata.Incarnation // had three slots
	taken  metadata.Partition   // was the dead one's
	heir   *sharedlogtest.Node  // has it now, and repacks it once it is opened
	seed   uint64
}

func (w *world) start(broker metadata.BrokerID, tune func(*sharedlog.Config)) *sharedlogtest.Node {
	return sharedlogtest.Start(w, w.c, w.b, broker, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery = time.Hour, time.Hour
		if tune != nil {
			tune(c)
		}
	})
}

// fill appends to a partition, every batch in a slot of its own.
func (w *world) fill(n *sharedlogtest.Node, p metadata.Partition, batches int) commitlog.Log {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	l, err := n.Open(ctx, p.ID(), p.Epoch, commitlog.Options{Checkpoints: counts{}})
	if err != nil {
		w.Fatal(err)
	}
	for range batches {
		w.seed++
		commit, err := l.Append(kbatch.Sized(int64(1000+w.seed), 2, 3000, w.seed).Bytes())
		if err != nil {
			w.Fatal(err)
		}
		l.Seal()
		if err := commit.Wait(ctx); err != nil {
			w.Fatal(err)
		}
	}
	return l
}

// counts is a Checkpointer whose checkpoints begin with "ok".
type counts struct{}

func (counts) Fold([]byte, []commitlog.BatchInfo) ([]byte, error) { return []byte("ok"), nil }

func checkpoint(b []byte) error {
	if string(b) != "ok" {
		return errors.New("no checkpoint begins so")
	}
	return nil
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, c: sharedlogtest.New(), b: mem.New()}
	packer := w.start(1, func(c *sharedlog.Config) {
		c.PackAge, c.MaintainEvery, c.MaxExtents = time.Millisecond, time.Millisecond, 2
	})
	p := w.c.CreateTopic("packed", 1, packer.Incarnation)[0]
	w.until("runs are packed and folded", func() bool {
		l := w.fill(packer, p, 1)
		defer l.Close(t.Context())
		w.packed, _ = w.c.Image().PartitionByStream(p.Stream)
		return w.packed.End >= 8 && slices.ContainsFunc(w.packed.Extents, func(x metadata.Extent) bool { return x.Indirect })
	})
	packer.Crash()
	w.packed, _ = w.c.Image().PartitionByStream(p.Stream)

	live := w.start(2, nil)
	w.live = live.Incarnation
	w.fill(live, w.c.CreateTopic("live", 1, live.Incarnation)[0], 3)

	dead, heir := w.start(3, nil), w.start(4, func(c *sharedlog.Config) { c.MaintainEvery = time.Millisecond })
	w.dead, w.heir = dead.Incarnation, heir
	p = w.c.CreateTopic("taken", 1, dead.Incarnation)[0]
	w.fill(dead, p, 3)
	dead.Crash()
	if err := w.c.Takeover(t.Context(), dead.Incarnation, heir); err != nil {
		t.Fatal(err)
	}
	w.taken, _ = w.c.Image().PartitionByStream(p.Stream)
	w.put(metadata.ObjectName{Kind: metadata.SegmentObject, Creator: w.dead, Number: 77}.String(), []byte("never committed"))
	return w
}

func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("never: %s", what)
		}
	}
}

func (w *world) put(object string, b []byte) {
	w.Helper()
	if err := w.b.Put(w.Context(), prefix+object, objstore.BytesBody(b)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) object(object string) []byte {
	w.Helper()
	info, err := w.b.Head(w.Context(), prefix+object)
	if err != nil {
		w.Fatal(err)
	}
	b := make([]byte, info.Size)
	if _, err := w.b.GetRange(w.Context(), prefix+object, 0, b); err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) remove(object string) {
	w.Helper()
	if err := w.b.Delete(w.Context(), prefix+object); err != nil {
		w.Fatal(err)
	}
}

// flip damages one byte of an object, counted from its end if negative.
func (w *world) flip(object string, at int64) {
	w.Helper()
	b := w.object(object)
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 0x10
	w.put(object, b)
}

// forgeDeltas changes the last offset in the only delta of a slot of one chunk, and
// makes all checksums match again (wal: the format is in its doc.go).
func (w *world) forgeDeltas(object string) {
	w.Helper()
	b := w.object(object)
	footer := b[len(b)-wal.HeaderBytes:]
	index := b[len(b)-wal.HeaderBytes-int(binary.BigEndian.Uint32(footer[116:])) : len(b)-wal.HeaderBytes]
	// At the end are: base offset 0, last offset delta 1, attributes 0, timestamp 0,
	// no producer id, no repeated index.
	tail := index[len(index)-6:]
	if !bytes.Equal(tail, []byte{0, 1, 0, 0, 1, 0}) {
		w.Fatalf("the index of %s ends with %x", object, tail)
	}
	tail[1] = 0
	for _, header := range [][]byte{b[:wal.HeaderBytes], footer} {
		binary.BigEndian.PutUint32(header[120:], crc32.Checksum(index, commitlog.Castagnoli))
		binary.BigEndian.PutUint32(header[124:], crc32.Checksum(header[:124], commitlog.Castagnoli))
	}
	w.put(object, b)
}

func slot(inc metadata.Incarnation, n uint64) string {
	return metadata.ObjectName{Kind: metadata.WALSlot, Creator: inc, Number: n}.String()
}

// run is the newest run of the packed stream in a segment object, index the
// extent that stands for older ones.
func (w *world) run() metadata.Extent   { return w.packed.Extents[len(w.packed.Extents)-1] }
func (w *world) index() metadata.Extent { return w.packed.Extents[0] }

func (w *world) verify(img *metadata.Image) *verify.Report {
	w.Helper()
	r, err := verify.Run(w.Context(), verify.Config{
		Bucket: w.b, Image: func(context.Context) (*metadata.Image, error) { return img, nil }, Checkpoint: checkpoint, Parallel: 4,
	})
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func TestASoundStoreHasNoProblems(t *testing.T) {
	w := newWorld(t)
	var garbage []verify.Garbage
	r, err := verify.Run(t.Context(), verify.Config{
		Bucket: w.b, Image: func(context.Context) (*metadata.Image, error) { return w.c.Image(), nil }, Checkpoint: checkpoint,
		Garbage: func(g verify.Garbage) { garbage = append(garbage, g) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Sound() {
		t.Fatalf("problems in a sound store: %v", r.List)
	}
	want := int64(w.packed.End) + 6 + 6
	if r.Records < want {
		t.Errorf("read %d records of %d", r.Records, want)
	}
	if f, l, g := r.Class(verify.ClassFence), r.Class(verify.ClassLive), r.Class(verify.ClassGarbage); f.Objects != 1 || l.Objects < 3 || g.Objects < 1 {
		t.Errorf("fences %+v, live slots %+v, garbage %+v", f, l, g)
	}
	if !slices.ContainsFunc(garbage, func(g verify.Garbage) bool {
		return strings.HasPrefix(g.Key, prefix+"seg/"+w.dead.String()) && g.Bytes == 15 && strings.Contains(g.Reason, "dead broker")
	}) {
		t.Errorf("what was never committed is not among the garbage %v", garbage)
	}
	var listed int64
	_ = w.b.List(t.Context(), prefix, "", func(objstore.Info) error { listed++; return nil })
	var classed int64
	for _, c := range r.Classes {
		classed += c.Objects
	}
	if classed != listed {
		t.Errorf("%d objects have a class, the store has %d", classed, listed)
	}
}

// Every kind of damage is reported, by name, with the object it is in.
func TestEveryDamageIsReported(t *testing.T) {
	cases := map[string]func(w *world) (kind verify.Kind, object, detail string){
		"missing segment": func(w *world) (verify.Kind, string, string) {
			w.remove(w.run().Object)
			return verify.Missing, w.run().Object, "not found"
		},
		"missing slot behind an index": func(w *world) (verify.Kind, string, string) {
			w.remove(slot(w.dead, 1))
			return verify.Missing, slot(w.dead, 1), "not found"
		},
		"missing index": func(w *world) (verify.Kind, string, string) {
			w.remove(w.index().Object)
			return verify.Missing, w.index().Object, "not found"
		},
		"flipped byte in a batch": func(w *world) (verify.Kind, string, string) {
			w.flip(w.run().Object, w.run().Position+100)
			return verify.Damaged, w.run().Object, "record batch at offset"
		},
		"flipped byte in a batch of a slot": func(w *world) (verify.Kind, string, string) {
			w.flip(slot(w.dead, 0), 128+100)
			return verify.Damaged, slot(w.dead, 0), "record batch at offset"
		},
		"flipped byte in a header": func(w *world) (verify.Kind, string, string) {
			w.flip(w.run().Object, 9)
			return verify.Damaged, w.run().Object, "header"
		},
		"flipped byte in a section": func(w *world) (verify.Kind, string, string) {
			w.flip(w.run().Object, w.run().Position+w.run().Length+3)
			return verify.Damaged, w.run().Object, "section"
		},
		"flipped byte in a trailer": func(w *world) (verify.Kind, string, string) {
			w.flip(w.run().Object, -20)
			return verify.Damaged, w.run().Object, "trailer"
		},
		"flipped byte in a directory": func(w *world) (verify.Kind, string, string) {
			w.flip(w.run().Object, -34)
			return verify.Damaged, w.run().Object, "directory"
		},
		"flipped byte in an index section": func(w *world) (verify.Kind, string, string) {
			w.flip(w.index().Object, w.index().Position+10)
			return verify.Damaged, w.index().Object, "section"
		},
		"flipped byte in a live slot's batch": func(w *world) (verify.Kind, string, string) {
			w.flip(slot(w.live, 1), 128+100)
			return verify.Damaged, slot(w.live, 1), "record batch at offset"
		},
		"flipped byte in a live slot's front header": func(w *world) (verify.Kind, string, string) {
			w.flip(slot(w.live, 1), 90)
			return verify.Damaged, slot(w.live, 1), "header"
		},
		"flipped byte in a live slot's index": func(w *world) (verify.Kind, string, string) {
			w.flip(slot(w.live, 1), -132)
			return verify.Damaged, slot(w.live, 1), "index"
		},
		"truncated segment": func(w *world) (verify.Kind, string, string) {
			b := w.object(w.run().Object)
			w.put(w.run().Object, b[:len(b)-50])
			return verify.Damaged, w.run().Object, "trailer"
		},
		"truncated slot": func(w *world) (verify.Kind, string, string) {
			b := w.object(slot(w.live, 2))
			w.put(slot(w.live, 2), b[:len(b)/2])
			return verify.Damaged, slot(w.live, 2), "WAL slot"
		},
		"batch with another base": func(w *world) (verify.Kind, string, string) {
			b := w.object(w.run().Object)
			b[w.run().Position+7]++ // no batch CRC covers it
			w.put(w.run().Object, b)
			return verify.Mismatch, w.run().Object, "batch is of offset"
		},
		"batch with another epoch": func(w *world) (verify.Kind, string, string) {
			b := w.object(w.run().Object)
			b[w.run().Position+15]++
			w.put(w.run().Object, b)
			return verify.Mismatch, w.run().Object, "at epoch 1"
		},
		"object under another name": func(w *world) (verify.Kind, string, string) {
			w.put(slot(w.dead, 1), w.object(slot(w.dead, 0)))
			return verify.Damaged, slot(w.dead, 1), "it is slot 0"
		},
		"stray object": func(w *world) (verify.Kind, string, string) {
			w.put("seg/9-99/00000000000000000001", []byte("?"))
			return verify.Stray, "seg/9-99/00000000000000000001", "no incarnation 9-99"
		},
		"stray name": func(w *world) (verify.Kind, string, string) {
			w.put("notes", []byte("?"))
			return verify.Stray, "notes", "no object of a cluster has such a name"
		},
		"other deltas in a live slot's index": func(w *world) (verify.Kind, string, string) {
			w.forgeDeltas(slot(w.live, 1))
			return verify.Mismatch, slot(w.live, 1), "deltas of stream"
		},
		"other deltas in a slot behind an index": func(w *world) (verify.Kind, string, string) {
			w.forgeDeltas(slot(w.dead, 1))
			return verify.Mismatch, slot(w.dead, 1), "deltas of stream"
		},
		"gap in a live WAL": func(w *world) (verify.Kind, string, string) {
			w.remove(slot(w.live, 1))
			return verify.Gap, slot(w.live, 1), "slot 1 is not there"
		},
		"missing fence": func(w *world) (verify.Kind, string, string) {
			w.remove(slot(w.dead, 3))
			return verify.NoFence, slot(w.dead, 3), "sealed at slot 3"
		},
		"data in the place of a fence": func(w *world) (verify.Kind, string, string) {
			w.put(slot(w.dead, 3), w.object(slot(w.dead, 2)))
			return verify.NoFence, slot(w.dead, 3), "damaged"
		},
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kind, object, detail := damage(w)
			w.reports(w.verify(w.c.Image()), kind, object, detail)
		})
	}
}

// reports wants a problem and nothing about other objects.
func (w *world) reports(r *verify.Report, kind verify.Kind, object, detail string) {
	w.Helper()
	found := false
	for _, p := range r.List {
		if p.Key != prefix+object {
			w.Errorf("a sound object is reported: %s", p)
		}
		found = found || p.Kind == kind && strings.Contains(p.Detail, detail) && p.Advice != ""
	}
	if !found || r.Sound() {
		w.Errorf("no %q of %s with %q among %v", kind, object, detail, r.List)
	}
}

// The metadata may be what is wrong.
func TestWrongMetadataIsReported(t *testing.T) {
	edit := func(w *world, f func(p *metadatapb.SnapPartition)) *metadata.Image {
		pb := metadata.Snapshot(w.c.Image())
		for _, topic := range pb.Topics {
			f(topic.Partitions[0])
		}
		img, err := metadata.FromSnapshot(pb)
		if err != nil {
			w.Fatal(err)
		}
		return img
	}
	w := newWorld(t)
	run := w.run()
	for name, c := range map[string]struct {
		edit   func(x *metadatapb.Extent)
		detail string
	}{
		"position":  {func(x *metadatapb.Extent) { x.Position++ }, "section describes"},
		"length":    {func(x *metadatapb.Extent) { x.Length-- }, "section describes"},
		"timestamp": {func(x *metadatapb.Extent) { x.MaxTimestamp++ }, "section describes"},
		"object":    {func(x *metadatapb.Extent) { x.Object = slot(w.live, 0) }, "slot has no chunk"},
	} {
		t.Run(name, func(t *testing.T) {
			object := run.Object
			img := edit(w, func(p *metadatapb.SnapPartition) {
				for _, x := range p.Extents {
					if x.Object == run.Object && x.Base == int64(run.Base) {
						c.edit(x)
						object = x.Object
					}
				}
			})
			in := &world{T: t, b: w.b}
			in.reports(in.verify(img), verify.Mismatch, object, c.detail)
		})
	}
	t.Run("fence in a live WAL", func(t *testing.T) {
		in := &world{T: t, b: w.b}
		old := metadata.Snapshot(w.c.Image())
		for _, l := range old.Wals {
			if metadata.IncarnationFrom(l.Incarnation) == w.live {
				l.Trim = 3
			}
		}
		img, err := metadata.FromSnapshot(old)
		if err != nil {
			t.Fatal(err)
		}
		heir := w.start(5, nil)
		if err := w.c.Takeover(t.Context(), w.live, heir); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range in.verify(img).List {
			found = found || p.Kind == verify.EarlyFence && p.Key == prefix+slot(w.live, 3)
		}
		if !found {
			t.Error("it is not reported")
		}
	})
	t.Run("records that do not continue", func(t *testing.T) {
		w := newWorld(t)
		pb := metadata.Snapshot(w.c.Image())
		for _, l := range pb.Wals {
			if metadata.IncarnationFrom(l.Incarnation) == w.live {
				l.Trim = 1
			}
		}
		img, err := metadata.FromSnapshot(pb)
		if err != nil {
			t.Fatal(err)
		}
		w.reports(w.verify(img), verify.Discontinuous, slot(w.live, 1), "the records before it end at 0")
	})
}

// Between the image and the read, things move on: what a fresh image does not
// refer to any more is no problem, and what replaced it is read.
func TestWhatWasReplacedMeanwhileIsNoProblem(t *testing.T) {
	w := newWorld(t)
	old := w.c.Image()
	// The heir repacks what it inherited, and the slots are swept.
	heir := w.heir
	_ = w.fill(heir, w.taken, 1)
	w.until("what was inherited is repacked", func() bool {
		p, _ := w.c.Image().PartitionByStream(w.taken.Stream)
		return !slices.ContainsFunc(p.Extents, func(x metadata.Extent) bool { return x.Indirect })
	})
	if n, err := heir.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	} else if n == 0 {
		w.remove(slot(w.dead, 0))
	}
	run := func() *verify.Report {
		asked := 0
		r, err := verify.Run(t.Context(), verify.Config{Bucket: w.b, Checkpoint: checkpoint, Image: func(context.Context) (*metadata.Image, error) {
			if asked++; asked == 1 {
				return old, nil
			}
			return w.c.Image(), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(); !r.Sound() {
		t.Errorf("reported falsely: %v", r.List)
	}
	// By the old image alone it is missing.
	if r := w.verify(old); r.Sound() {
		t.Error("what is gone is not reported by the image that refers to it")
	}
	p, _ := w.c.Image().PartitionByStream(w.taken.Stream)
	x := p.Extents[len(p.Extents)-1]
	w.flip(x.Object, x.Position+100)
	w.reports(run(), verify.Damaged, x.Object, "record batch")
}

func TestACheckpointThatCannotBeDecodedIsReported(t *testing.T) {
	w := newWorld(t)
	r, err := verify.Run(t.Context(), verify.Config{
		Bucket: w.b, Image: func(context.Context) (*metadata.Image, error) { return w.c.Image(), nil },
		Checkpoint: func([]byte) error { return errors.New("boom") },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.List, func(p verify.Problem) bool {
		return p.Kind == verify.Damaged && p.Key == prefix+w.run().Object && p.Detail == "checkpoint: boom"
	}) {
		t.Errorf("reported is %v", r.List)
	}
}

func TestAStoreThatDoesNotAnswerIsNotSound(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := verify.Run(ctx, verify.Config{Bucket: w.b, Image: func(context.Context) (*metadata.Image, error) { return w.c.Image(), nil }}); err == nil {
		t.Errorf("nothing was read, and the report is %+v", r)
	}
	boom := errors.New("boom")
	_, err := verify.Run(t.Context(), verify.Config{Bucket: w.b, Image: func(context.Context) (*metadata.Image, error) { return nil, boom }})
	if !errors.Is(err, boom) {
		t.Errorf("no metadata: %v", err)
	}
}

func ExampleProblem() {
	fmt.Println(verify.Problem{Kind: verify.Missing, Key: "c/1/seg/3-17/1", Partition: "t-0", Stream: 7, Base: 5, End: 9, Detail: "not found", Advice: "restore it"})
	// Output: missing object: c/1/seg/3-17/1, t-0 (stream 7) offsets 5 to 9: not found; restore it
}
