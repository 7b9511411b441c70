package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

// Seal ends the WAL of another incarnation that is Fenced in our image: it
// fences the WAL in the store, reads the indexes of its slots from the frozen
// trim on, writes one recovery index that says where each stream's records
// beyond its committed end are, and returns the command that makes the metadata
// know (cmd-4, cmd-5). No record bytes are read and none written. The index
// object is ours; if another sealer's command wins it is garbage and swept.
func (e *Engine) Seal(ctx context.Context, w metadata.WAL) (*metadatapb.Sealed, error) {
	if w.State != metadata.Fenced {
		return nil, fmt.Errorf("seal WAL of %s: it is %s, not fenced", w.Incarnation, w.State)
	}
	begun := time.Now()
	pre := prefix(e.clusterID, w.Generation)
	sealed, err := wal.Seal(ctx, wal.SealConfig{
		Bucket: e.bucket(objstore.ReasonRecovery), Prefix: pre, ClusterID: e.clusterID, Generation: w.Generation,
		Incarnation: w.Incarnation, By: e.cfg.Incarnation, Trim: w.Trim, MaxInflight: e.cfg.MaxInflight,
		Rand: e.cfg.Rand, Logger: e.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("seal WAL of %s: %w", w.Incarnation, err)
	}
	sections, err := e.recovery(w, sealed.Slots)
	if err != nil {
		return nil, fmt.Errorf("index WAL of %s: %w", w.Incarnation, err)
	}
	cmd := &metadatapb.Sealed{Incarnation: w.Incarnation.Proto(), End: sealed.End}
	if len(sections) == 0 {
		e.cfg.Metrics.seals.Observe(time.Since(begun))
		return cmd, nil
	}
	name, object := e.newName(metadata.IndexObject)
	e.mu.Lock()
	e.sealing[object] = w.Incarnation
	e.mu.Unlock()
	b := segment.NewBuilder(name)
	for _, s := range sections {
		b.AddIndex(s)
	}
	body, at := b.Finish()
	if err := e.upload(ctx, object, body); err != nil {
		return nil, fmt.Errorf("write recovery index of %s: %w", w.Incarnation, err)
	}
	for i, s := range sections {
		cmd.Streams = append(cmd.Streams, &metadatapb.SealedStream{
			Stream: uint64(s.Stream), Base: int64(s.Base), End: int64(s.End),
			Extent: extentPB(indexExtent(object, s, at[i])),
		})
	}
	e.cfg.Metrics.seals.Observe(time.Since(begun))
	e.cfg.Logger.Info("sealed a WAL", "broker", w.Incarnation.String(), "end", sealed.End, "slots", len(sealed.Slots), "streams", len(sections), "object", object)
	return cmd, nil
}

// recovery lists, per stream that waits for the WAL, what the slots have beyond
// the committed end: all that was acknowledged there (ext-3), and what producer
// state needs of it (prod-1).
//
// A WAL from before the metadata was restored may hold records of a stream that had
// gone to another broker after the backup and come back. They have no place in the
// log: the stream ends where they begin, and that is logged.
func (e *Engine) recovery(w metadata.WAL, slots []wal.Index) ([]*segment.Section, error) {
	img, inc := e.cfg.Meta.Image(), w.Incarnation
	restored := w.Generation < img.Generation()
	found := make(map[commitlog.StreamID]*segment.Section)
	deltas := make(map[commitlog.StreamID][]commitlog.BatchInfo)
	cut := make(map[commitlog.StreamID]bool)
	for i := range slots {
		for j := range slots[i].Chunks {
			c := &slots[i].Chunks[j]
			s, seen := found[c.Stream]
			if !seen {
				if p, ok := img.PartitionByStream(c.Stream); ok && slices.Contains(p.Unsealed, inc) {
					s = &segment.Section{Stream: c.Stream, Base: p.End, From: p.End, End: p.End}
				}
				found[c.Stream] = s
			}
			if s == nil || c.End <= s.Base {
				continue
			}
			if cut[c.Stream] {
				continue
			}
			if restored {
				if p, _ := img.PartitionByStream(c.Stream); c.Base != s.End || c.Epoch > p.Epoch {
					cut[c.Stream] = true
					e.cfg.Logger.Warn("records are not restored: their partition had moved after the backup", "partition", p.String(), "broker", inc.String(), "from", c.Base, "end", s.End)
					continue
				}
			}
			if c.Base != s.End {
				return nil, fmt.Errorf("slot %d continues stream %d at %d instead of %d: %w", slots[i].Seq, c.Stream, c.Base, s.End, commitlog.ErrCorrupt)
			}
			s.Entries = append(s.Entries, segment.Entry{Extent: e.chunkExtent(inc, slots[i].Seq, c)})
			s.End = c.End
			deltas[c.Stream] = append(deltas[c.Stream], c.Batches...)
		}
	}
	var out []*segment.Section
	for id, s := range found {
		if s == nil || len(s.Entries) == 0 {
			continue
		}
		s.State = segment.State{Kind: segment.StateDeltas, Deltas: commitlog.KeepRelevant(deltas[id])}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *segment.Section) int { return cmp.Compare(a.Stream, b.Stream) })
	return out, nil
}

// indexExtent is the indirect extent that stands for a section.
func indexExtent(object string, s *segment.Section, at segment.Located) metadata.Extent {
	return metadata.Extent{
		Object: object, Position: at.Position, Length: at.Length, Base: s.Base, End: s.End, Indirect: true,
		MaxTimestamp: s.MaxTimestamp(), Bytes: s.RecordBytes(),
	}
}
