package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

// uploads builds segment objects and writes a few of them at a time.
type uploads struct {
	e       *Engine
	b       *segment.Builder
	object  string
	ix      *segment.Builder // of the index object, nil if there is none
	ixName  string
	ixRuns  []*packRun // that its sections are of, in order
	ixSecs  []*segment.Section
	objects []string
	sem     chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// maxUploads is how many objects are written at once.
const maxUploads = 4

func (u *uploads) bytes() int64 {
	if u.b == nil {
		return 0
	}
	return u.b.Bytes()
}

// run adds a run to the object being built and fills in its extent.
func (u *uploads) run(id commitlog.StreamID, r *packRun) (*segment.Section, error) {
	if u.b == nil {
		name, object := u.e.newName(metadata.SegmentObject)
		u.b, u.object = segment.NewBuilder(name), object
		u.objects = append(u.objects, object)
	}
	sec, err := u.b.AddRun(id, r.epoch, r.base, r.parts)
	if err == nil && sec.End != r.end {
		err = fmt.Errorf("run of stream %d ends at %d instead of %d: %w", id, sec.End, r.end, commitlog.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	r.extent = sec.Entries[0].Extent
	r.extent.Object = u.object
	return sec, nil
}

// index adds a section that points at what a run adopts to the index object.
func (u *uploads) index(id commitlog.StreamID, r *packRun) *segment.Section {
	if u.ix == nil {
		name, object := u.e.newName(metadata.IndexObject)
		u.ix, u.ixName = segment.NewBuilder(name), object
		u.objects = append(u.objects, object)
	}
	sec := &segment.Section{Stream: id, Base: r.base, From: r.base, End: r.end, Entries: r.adopted}
	u.ix.AddIndex(sec)
	u.ixRuns, u.ixSecs = append(u.ixRuns, r), append(u.ixSecs, sec)
	return sec
}

// flushIndex starts writing the index object, if any, and fills in its extents.
func (u *uploads) flushIndex(ctx context.Context) {
	if u.ix == nil {
		return
	}
	body, at := u.ix.Finish()
	for i, r := range u.ixRuns {
		r.extent = indexExtent(u.ixName, u.ixSecs[i], at[i])
	}
	u.ix = nil
	u.write(ctx, u.ixName, body)
}

// flush starts writing the object being built, if any.
func (u *uploads) flush(ctx context.Context) {
	if u.b == nil {
		return
	}
	body, _ := u.b.Finish()
	u.b = nil
	u.write(ctx, u.object, body)
}

// write starts writing an object.
func (u *uploads) write(ctx context.Context, object string, body objstore.Body) {
	if u.sem == nil {
		u.sem = make(chan struct{}, maxUploads)
	}
	u.sem <- struct{}{}
	u.wg.Go(func() {
		err := u.e.upload(ctx, object, body)
		u.mu.Lock()
		u.err = errors.Join(u.err, err)
		u.mu.Unlock()
		<-u.sem
	})
}

func (u *uploads) wait() error {
	u.wg.Wait()
	return u.err
}
