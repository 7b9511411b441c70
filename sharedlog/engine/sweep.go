package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
)

// sweepTries is how often the index objects are read again by a newer image.
const sweepTries = 3

// sweepGather is the pause between the deletion of a topic and the sweep for it.
const sweepGather = 30 * time.Second

// SweepSoon has garbage looked for within a minute: somebody deleted a topic, and
// wants its space.
func (e *Engine) SweepSoon() { poke(e.garbage) }

// sweepLoop looks for garbage now and then, and reports what is neither that nor
// in use (obj-3). Nothing depends on it but space.
func (e *Engine) sweepLoop(ctx context.Context) {
	if e.cfg.SweepEvery < 0 {
		return
	}
	for waitFor(ctx, e.garbage, e.cfg.SweepEvery) {
		// A deleted topic is garbage once every owner has stopped, and it may not be
		// the only one.
		if !sleep(ctx, min(sweepGather, e.cfg.SweepEvery)) {
			return
		}
		if _, err := e.Sweep(ctx); err != nil && ctx.Err() == nil && e.said.Allow("sweep") {
			e.cfg.Logger.Warn("sweep found no end", "broker", e.cfg.Incarnation.String(), "err", err)
		}
	}
}

// Sweep deletes objects that nothing refers to and nothing ever will: our own,
// and, if ours is the lowest live broker id, those of fenced incarnations. No
// age or clock decides (obj-2). The order is what makes it right: list first,
// then a read barrier, then judge; so an object whose reference was on its way
// is either in the image by then or in pending. It returns how many it deleted.
func (e *Engine) Sweep(ctx context.Context) (int, error) {
	if ok, err := objstore.Audited(ctx, e.bucket(objstore.ReasonSweep), e.clusterID, e.gen); err != nil || !ok {
		return 0, err // restored: the image does not know what came after its backup
	}
	found, err := e.list(ctx)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	e.mu.Lock()
	pending := maps.Clone(e.pending)
	sealing := maps.Clone(e.sealing)
	e.mu.Unlock()
	if err := e.settleAbandoned(ctx, pending); err != nil {
		return 0, err
	}
	img, err := e.cfg.Meta.Barrier(ctx)
	if err != nil {
		return 0, fmt.Errorf("refresh the image: %w", err)
	}
	for object, inc := range sealing {
		if w, ok := img.WAL(inc); ok && w.State == metadata.Sealed {
			delete(pending, object)
			e.mu.Lock()
			delete(e.pending, object)
			delete(e.sealing, object)
			e.mu.Unlock()
		}
	}
	img, listed, err := e.listedSince(ctx, img)
	if err != nil {
		return 0, fmt.Errorf("read index objects: %w", err)
	}
	var keys []string
	for _, key := range found {
		gen, object := splitKey(key)
		verdict := judge(img, gen, object)
		n, _ := metadata.ParseObjectName(object)
		_, maybe := pending[object]
		own := verdict == metadata.Pending && n.Kind != metadata.WALSlot && n.Creator == e.cfg.Incarnation && !maybe
		if plant.On(plant.SweepFences) && n.Kind == metadata.WALSlot {
			w, ok := img.WAL(n.Creator)
			own = ok && w.State == metadata.Sealed && n.Number >= w.SealedEnd
		}
		own = own || plant.On(plant.SweepPending) && verdict == metadata.Pending && n.Kind != metadata.WALSlot
		switch {
		case verdict == metadata.Alarm || verdict == metadata.Unknown:
			e.cfg.Logger.Error("object does not fit the metadata", "object", key, "verdict", verdict.String())
		case (verdict == metadata.Unreferenced || own) && !listed[object]:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	e.cfg.Logger.Info("sweeping garbage", "broker", e.cfg.Incarnation.String(), "objects", len(keys), "object", keys[0])
	for part := range slices.Chunk(keys, 500) {
		if err := e.bucket(objstore.ReasonSweep).Delete(ctx, part...); err != nil {
			return 0, fmt.Errorf("delete garbage: %w", err)
		}
	}
	e.mu.Lock()
	for _, key := range keys {
		_, object := splitKey(key)
		delete(e.adopted, object)
	}
	e.mu.Unlock()
	e.cfg.Metrics.swept.Add(int64(len(keys)))
	return len(keys), nil
}

// splitKey takes "<cluster>/<generation>/<object>" apart.
func splitKey(key string) (gen, object string) {
	parts := strings.SplitN(key, "/", 3)
	return parts[1], parts[2]
}

// judge is Judge for an object in a generation. After a restore incarnations
// count on from the backup, so one of today may have the name of one that lived
// after it: objects in another generation than its own are not its.
func judge(img *metadata.Image, gen, object string) metadata.Verdict {
	if n, err := metadata.ParseObjectName(object); err == nil {
		if w, ok := img.WAL(n.Creator); ok && strconv.FormatUint(w.Generation, 10) != gen {
			return metadata.Unknown
		}
	}
	return img.Judge(object)
}

// settleAbandoned makes sure that commands without a reply can no longer apply,
// by an own later one (cmd-1), and takes their objects out of pending.
func (e *Engine) settleAbandoned(ctx context.Context, pending map[string]claim) error {
	var objects []string
	for object, c := range pending {
		if c == abandoned {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	err := e.submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}})
	if err != nil && !errors.Is(err, errUnsettled) {
		return fmt.Errorf("settle abandoned commands: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, object := range objects {
		delete(pending, object)
		delete(e.pending, object)
	}
	return nil
}

// list finds the keys of objects that this broker has to judge.
func (e *Engine) list(ctx context.Context) ([]string, error) {
	img := e.cfg.Meta.Image()
	own := e.cfg.Incarnation
	var prefixes []string
	if e.sweepsForAll(img) {
		gens := map[uint64]bool{}
		for w := range img.WALs() {
			gens[w.Generation] = true
		}
		for g := range gens {
			pre := prefix(e.clusterID, g)
			prefixes = append(prefixes, pre+"/wal/", pre+"/seg/", pre+"/idx/")
		}
	} else {
		for _, kind := range []metadata.ObjectKind{metadata.WALSlot, metadata.SegmentObject, metadata.IndexObject} {
			prefixes = append(prefixes, fmt.Sprintf("%s/%s/%s/", e.prefix, kind, own))
		}
	}
	var found []string
	for _, p := range prefixes {
		err := e.bucket(objstore.ReasonSweep).List(ctx, p, "", func(i objstore.Info) error {
			found = append(found, i.Key)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", p, err)
		}
	}
	return found, nil
}

// sweepsForAll says whether ours is the lowest live broker id. Two that think so
// at once do no harm.
func (e *Engine) sweepsForAll(img *metadata.Image) bool {
	for b := range img.Brokers() {
		if !b.Fenced && b.ID < e.cfg.Incarnation.Broker {
			return false
		}
	}
	return true
}

// listedSince is listedObjects by an image, or by a newer one: meanwhile somebody may
// have trimmed a stream, and swept its index.
func (e *Engine) listedSince(ctx context.Context, img *metadata.Image) (*metadata.Image, map[string]bool, error) {
	for try := 1; ; try++ {
		listed, err := e.listedObjects(ctx, img)
		if try == sweepTries || !isBad(err) {
			return img, listed, err
		}
		if img, err = e.cfg.Meta.Barrier(ctx); err != nil {
			return nil, nil, fmt.Errorf("refresh the image: %w", err)
		}
	}
}

// listedObjects are all objects that index sections list, however deep (obj-1). An
// error stops the sweep: what cannot be read might list anything.
func (e *Engine) listedObjects(ctx context.Context, img *metadata.Image) (map[string]bool, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	w := indexWalk{e: e, stop: cancel, free: make(chan struct{}, e.cfg.ColdReads/2), out: make(map[string]bool)}
	for t := range img.Topics() {
		for p := range img.Partitions(t.ID) {
			w.list(within, p.Stream, p.Extents, 0)
		}
	}
	w.wg.Wait()
	if w.err == nil {
		w.err = ctx.Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.out, nil
}

// indexWalk collects what index sections list. A stream may have thousands of them,
// one for each round in which its chunks stayed in their slots. Who meets one has
// another goroutine read it while one is free, else reads it itself: so nothing
// queues, memory is that of half as many sections as there may be cold reads, and
// consumers have the other half.
type indexWalk struct {
	e    *Engine
	stop context.CancelFunc
	free chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex // of what follows
	out  map[string]bool
	err  error // the first one
}

func (w *indexWalk) list(ctx context.Context, id commitlog.StreamID, list []metadata.Extent, depth int) {
	if depth > maxDepth {
		w.fail(fmt.Errorf("index of stream %d is nested deeper than %d: %w", id, maxDepth, commitlog.ErrCorrupt))
		return
	}
	for _, x := range list {
		if ctx.Err() != nil {
			return
		}
		if depth > 0 {
			w.mu.Lock()
			w.out[x.Object] = true
			w.mu.Unlock()
		}
		if !x.Indirect {
			continue
		}
		select {
		case w.free <- struct{}{}:
			w.wg.Go(func() {
				w.index(ctx, id, x, depth)
				<-w.free
			})
		default:
			w.index(ctx, id, x, depth)
		}
	}
}

func (w *indexWalk) index(ctx context.Context, id commitlog.StreamID, x metadata.Extent, depth int) {
	sec, err := w.e.reader.sectionOf(ctx, id, x)
	if err != nil {
		w.fail(err)
		return
	}
	inner := make([]metadata.Extent, len(sec.Entries))
	for i := range sec.Entries {
		inner[i] = sec.Entries[i].Extent
	}
	w.list(ctx, id, inner, depth+1)
}

func (w *indexWalk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.stop()
}
