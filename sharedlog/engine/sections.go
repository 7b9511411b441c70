package engine

import (
	"context"
	"fmt"
	"slices"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
	"ponor/sharedlog/wal"
)

// objectInfo is what one read of a segment object's end gives.
type objectInfo struct {
	size    int64
	trailer segment.Trailer
	at      map[located]segment.Located
	tail    []byte // the last bytes, from position size-len(tail)
}

type located struct {
	stream commitlog.StreamID
	base   commitlog.Offset
}

// sectionOf returns the section that describes extent x: the index section that
// an indirect extent delimits, or the run's own.
func (r *reader) sectionOf(ctx context.Context, id commitlog.StreamID, x metadata.Extent) (*segment.Section, error) {
	pos, n := x.Position, x.Length
	var info *objectInfo
	if !x.Indirect {
		var err error
		if info, err = r.info(ctx, x.Object); err != nil {
			return nil, err
		}
		at, ok := info.at[located{id, x.Base}]
		if !ok {
			return nil, &badObject{x.Object, x.Position, fmt.Errorf("no run of stream %d at offset %d: %w", id, x.Base, commitlog.ErrCorrupt)}
		}
		pos, n = at.Position, at.Length
	}
	k := cacheKey{object: x.Object, position: pos, kind: cacheSection}
	v, err := r.cache.get(ctx, k, func(ctx context.Context) (any, int64, error) {
		b, err := r.bytes(ctx, x.Object, info, pos, n)
		if err != nil {
			return nil, 0, err
		}
		sec, err := segment.DecodeSection(b)
		if err != nil {
			return nil, 0, &badObject{x.Object, pos, err}
		}
		for i := range sec.Entries {
			if sec.Entries[i].Object == "" {
				sec.Entries[i].Object = x.Object
			}
		}
		return sec, int64(len(b)) * 5, nil // a block takes some ten bytes there, and 40 here
	})
	if err != nil {
		return nil, err
	}
	sec := v.(*segment.Section)
	if sec.Stream != id || sec.Base != x.Base || sec.End != x.End {
		return nil, &badObject{x.Object, pos, fmt.Errorf("section is of stream %d [%d, %d), the extent of stream %d [%d, %d): %w",
			sec.Stream, sec.Base, sec.End, id, x.Base, x.End, commitlog.ErrCorrupt)}
	}
	return sec, nil
}

// info reads an object's end.
func (r *reader) info(ctx context.Context, object string) (*objectInfo, error) {
	v, err := r.cache.get(ctx, cacheKey{object: object, kind: cacheObject}, func(ctx context.Context) (any, int64, error) {
		info, err := r.loadInfo(ctx, object)
		if err != nil {
			return nil, 0, err
		}
		return info, int64(len(info.tail) + 64*len(info.at)), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*objectInfo), nil
}

func (r *reader) loadInfo(ctx context.Context, object string) (*objectInfo, error) {
	buf := make([]byte, tailBytes)
	n, size, err := r.e.bucket(objstore.ReasonIndex).GetTail(ctx, r.e.key(object), buf)
	if err != nil {
		return nil, &badObject{object, 0, storeError(err)}
	}
	buf = buf[:n]
	info := &objectInfo{size: size}
	info.trailer, err = segment.DecodeTrailer(buf[max(0, n-segment.TrailerBytes):], size)
	if err != nil {
		return nil, &badObject{object, size, err}
	}
	t := info.trailer
	from := size - int64(n)
	if t.Sections > from {
		buf = append([]byte(nil), buf[t.Sections-from:]...)
	}
	info.tail = buf
	dir, err := r.bytes(ctx, object, info, t.Directory, t.DirLength)
	if err != nil {
		return nil, err
	}
	list, err := segment.DecodeDirectory(dir, t)
	if err != nil {
		return nil, &badObject{object, t.Directory, err}
	}
	info.at = make(map[located]segment.Located, len(list))
	for _, l := range list {
		info.at[located{l.Stream, l.Base}] = l
	}
	return info, nil
}

// bytes returns [pos, pos+n) of an object from what is in memory of its end, or
// by aligned pages: the sections of an object lie together, so the pages that
// one stream's recovery reads serve a thousand others'.
func (r *reader) bytes(ctx context.Context, object string, info *objectInfo, pos, n int64) ([]byte, error) {
	if info != nil {
		if from := info.size - int64(len(info.tail)); pos >= from {
			return info.tail[pos-from : pos-from+n], nil
		}
	}
	if n > maxSection {
		return nil, &badObject{object, pos, fmt.Errorf("section of %d bytes: %w", n, commitlog.ErrCorrupt)}
	}
	out := make([]byte, 0, n)
	for at := pos; at < pos+n; {
		page := at / rawPageBytes
		v, err := r.cache.get(ctx, cacheKey{object: object, position: page, kind: cacheRaw}, func(ctx context.Context) (any, int64, error) {
			b, err := r.load(ctx, objstore.ReasonIndex, object, page*rawPageBytes, rawPageBytes)
			if len(b) < cap(b)/2 { // most index objects are small
				b = slices.Clone(b)
			}
			return b, int64(cap(b)), err
		})
		if err != nil {
			return nil, err
		}
		b := v.([]byte)
		lo := at - page*rawPageBytes
		hi := min(pos+n-page*rawPageBytes, rawPageBytes)
		if hi > int64(len(b)) {
			return nil, &badObject{object, pos, fmt.Errorf("object ends before %d: %w", pos+n, commitlog.ErrCorrupt)}
		}
		out = append(out, b[lo:hi]...)
		at = page*rawPageBytes + hi
	}
	return out, nil
}

// maxSection is the largest section believed, in bytes.
const maxSection = 512 << 20

// get is one read from the store within the concurrency of cold reads.
func (r *reader) get(ctx context.Context, object string, pos int64, dst []byte) (int, error) {
	b, err := r.within(ctx, objstore.ReasonRead, object, pos, func() []byte { return dst })
	return len(b), err
}

// load is get into new memory, which is taken only once it is this read's turn:
// a thousand readers that wait for a slow store hold no buffers.
func (r *reader) load(ctx context.Context, why objstore.Reason, object string, pos, want int64) ([]byte, error) {
	return r.within(ctx, why, object, pos, func() []byte { return make([]byte, want) })
}

func (r *reader) within(ctx context.Context, why objstore.Reason, object string, pos int64, buffer func() []byte) ([]byte, error) {
	select {
	case r.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.sem }()
	buf := buffer()
	n, err := r.e.bucket(why).GetRange(ctx, r.e.key(object), pos, buf)
	if err != nil {
		return nil, &badObject{object, pos, storeError(err)}
	}
	return buf[:n], nil
}

// chunkExtent is the extent of a WAL chunk.
func (e *Engine) chunkExtent(inc metadata.Incarnation, seq uint64, c *wal.Chunk) metadata.Extent {
	return metadata.Extent{
		Object:   metadata.ObjectName{Kind: metadata.WALSlot, Creator: inc, Number: seq}.String(),
		Position: c.Pos, Length: c.Len, Base: c.Base, End: c.End, Epoch: c.Epoch,
		MaxTimestamp: c.MaxTimestamp, Bytes: c.Len,
	}
}
