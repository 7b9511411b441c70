package metadata

import (
	"math"
	"slices"

	"ponor/commitlog"
	"ponor/metadata/metadatapb"
)

// held is what a command of a stream's owner says about it, compared with the
// image. gone: the stream is not the submitter's at that epoch any more, which
// happens to honest owners. Everything else that does not fit is an alarm.
func (e *edit) held(stream uint64, epoch int32) (p *Partition, gone bool, err *Error) {
	s := commitlog.StreamID(stream)
	p, ok := e.partition(s)
	switch {
	case !ok && (s == 0 || s >= e.nextStream):
		return nil, false, alarm(ErrUnknownStream, "%d was never created", s)
	case !ok:
		return nil, true, nil
	case commitlog.Epoch(epoch) < p.Epoch: // cmd-1
		return p, true, nil
	case commitlog.Epoch(epoch) > p.Epoch:
		return nil, false, alarm(ErrStaleEpoch, "%s (stream %d) is at epoch %d, not yet at %d", p, s, p.Epoch, epoch)
	case p.Owner != e.from: // own-1, epoch-1: there was one owner only at this epoch
		return nil, false, alarm(ErrNotOwner, "%s (stream %d) at epoch %d is %s's, not %s's", p, s, p.Epoch, p.Owner, e.from)
	case !p.Openable(): // slot-4
		return nil, false, alarm(ErrNotOpen, "%s (stream %d) waits for %s", p, s, p.Unsealed[0])
	}
	return p, false, nil
}

// needOwner refuses commands that only an owner can send.
func (e *edit) needOwner() *Error {
	if e.from.IsZero() {
		return reject(ErrInvalid, "only the owner of a stream may send this; the command names no incarnation")
	}
	return nil
}

// grant says which objects a command may make the first reference to, beside
// the submitter's own (obj-2).
type grant struct {
	// seals is the WAL that a Sealed is about; its slots from sealLow up to
	// sealEnd may be referenced.
	seals            Incarnation
	sealLow, sealEnd uint64
	// replaces: extents take the place of others, so what is referenced
	// already may be again, below the trim too.
	replaces bool
	// indexed: an index object is among what is replaced. Apply cannot see what
	// it lists, so it takes the owner's word that these objects are in it.
	indexed bool
}

// admit decides whether a command may point at an object.
func (e *edit) admit(x Extent, g grant) *Error {
	n, perr := ParseObjectName(x.Object)
	if perr != nil {
		return reject(ErrInvalid, "%s", perr)
	}
	if x.Indirect != (n.Kind == IndexObject) {
		return reject(ErrInvalid, "extent in %s: index objects are for indirect extents and for nothing else", x.Object)
	}
	w, ok := e.WAL(n.Creator)
	if !ok {
		return alarm(ErrForeignObject, "%s is of an incarnation that was never registered", x.Object)
	}
	referenced := g.replaces && (e.References(x.Object) > 0 || g.indexed)
	slot := n.Kind == WALSlot
	switch {
	case slot && w.State == Sealed && n.Number >= w.SealedEnd:
		// slot-3: what lies there was never acknowledged.
		return alarm(ErrForeignObject, "%s is at or above the fence at %d", x.Object, w.SealedEnd)
	case slot && n.Creator == e.from && n.Number < w.Trim && !referenced:
		// ext-4: nothing keeps slots below the trim from being swept (obj-1).
		return alarm(ErrBelowTrim, "%s, the trim is %d", x.Object, w.Trim)
	case referenced, n.Creator == e.from:
		return nil
	case slot && n.Creator == g.seals && n.Number >= g.sealLow && n.Number < g.sealEnd:
		return nil
	}
	// obj-2: it may be garbage already, and be swept tomorrow.
	return alarm(ErrForeignObject, "%s is not %s's to make a reference to", x.Object, e.from)
}

// extents checks a list of extents that must cover [base, end) exactly, and
// reads it (ext-1).
func (e *edit) extents(pbs []*metadatapb.Extent, base, end commitlog.Offset, g grant) ([]Extent, *Error) {
	at := base
	list := make([]Extent, 0, len(pbs))
	for _, pb := range pbs {
		x := extentFrom(pb)
		switch {
		case x.Base != at:
			return nil, alarm(ErrOutOfOrder, "extent in %s starts at %d instead of %d", x.Object, x.Base, at)
		case x.End <= x.Base:
			return nil, reject(ErrInvalid, "extent in %s is empty: [%d, %d)", x.Object, x.Base, x.End)
		case x.Position < 0 || x.Length <= 0 || x.Position > math.MaxInt64-x.Length || x.Bytes < 0 || x.Epoch < 0:
			return nil, reject(ErrInvalid, "extent in %s cannot be: position %d, length %d", x.Object, x.Position, x.Length)
		}
		if err := e.admit(x, g); err != nil {
			return nil, err
		}
		list = append(list, x)
		at = x.End
	}
	if at != end {
		return nil, alarm(ErrOutOfOrder, "extents end at %d instead of %d", at, end)
	}
	return list, nil
}

// newData checks extents that extend a stream from its committed end (ext-1).
// The records of direct ones carry the owner's epoch.
func (e *edit) newData(p *Partition, pbs []*metadatapb.Extent, end commitlog.Offset) ([]Extent, *Error) {
	list, err := e.extents(pbs, p.End, end, grant{})
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if !x.Indirect && x.Epoch != p.Epoch {
			return nil, alarm(ErrStaleEpoch, "extent of %s at %d has epoch %d instead of %d", p, x.Base, x.Epoch, p.Epoch)
		}
	}
	return list, nil
}

// commitExtents appends extents to the submitter's streams and moves its trim,
// all or nothing (ext-4). Streams that are not the submitter's at that epoch any
// more are skipped: their new owner knows their records.
func (e *edit) commitExtents(c *metadatapb.CommitExtents) (Result, *Error) {
	if err := e.needOwner(); err != nil {
		return Result{}, err
	}
	var r Result
	seen := make(map[uint64]struct{}, len(c.GetStreams()))
	for _, se := range c.GetStreams() {
		if _, dup := seen[se.GetStream()]; dup {
			return Result{}, alarm(ErrInvalid, "stream %d twice in one command", se.GetStream())
		}
		seen[se.GetStream()] = struct{}{}
		p, gone, err := e.held(se.GetStream(), se.GetEpoch())
		if err != nil {
			return Result{}, err // ext-4: the trim does not move either
		}
		if gone {
			r.Skipped++
			continue
		}
		end := p.End
		if n := len(se.GetExtents()); n > 0 {
			end = commitlog.Offset(se.GetExtents()[n-1].GetEnd())
		}
		list, err := e.newData(p, se.GetExtents(), end)
		if err != nil {
			return Result{}, err
		}
		next := *p
		next.End = end
		next.Extents = aboveStart(slices.Concat(p.Extents, list), p.Start)
		e.put(p, &next)
	}
	w, _ := e.WAL(e.from)
	if c.GetTrim() != 0 && c.GetTrim() < w.Trim {
		return Result{}, alarm(ErrBelowTrim, "trim of %s would go back from %d to %d", e.from, w.Trim, c.GetTrim())
	}
	w.Trim = max(w.Trim, c.GetTrim())
	e.setWAL(w)
	return r, nil
}

// replaceExtents exchanges a run of whole extents for others of the same range:
// compare and swap, because packing and compaction take their time.
func (e *edit) replaceExtents(c *metadatapb.ReplaceExtents) (Result, *Error) {
	if err := e.needOwner(); err != nil {
		return Result{}, err
	}
	p, gone, err := e.held(c.GetStream(), c.GetEpoch())
	if err != nil {
		return Result{}, err
	}
	if gone {
		return Result{}, reject(ErrNotOwner, "stream %d is not %s's at epoch %d any more", c.GetStream(), e.from, c.GetEpoch())
	}
	base, end := commitlog.Offset(c.GetBase()), commitlog.Offset(c.GetEnd())
	first, last := -1, -1
	g := grant{replaces: true}
	for i, x := range p.Extents {
		if x.Base == base {
			first = i
		}
		if first >= 0 && last < 0 {
			g.indexed = g.indexed || x.Indirect
			if x.End == end {
				last = i
			}
		}
	}
	if last < 0 || base >= end {
		return Result{}, reject(ErrConflict, "%s has no run of whole extents from %d to %d any more", p, base, end)
	}
	list, err := e.extents(c.GetExtents(), base, end, g)
	if err != nil {
		return Result{}, err
	}
	for _, x := range list {
		if x.Epoch > p.Epoch {
			return Result{}, alarm(ErrStaleEpoch, "extent of %s at %d has epoch %d, it is at %d", p, x.Base, x.Epoch, p.Epoch)
		}
	}
	next := *p
	next.Extents = aboveStart(slices.Concat(p.Extents[:first], list, p.Extents[last+1:]), p.Start)
	e.put(p, &next)
	return Result{}, nil
}

// trimStreams moves log starts forward (ext-2). A start that is there already,
// and streams that moved on, are skipped.
func (e *edit) trimStreams(c *metadatapb.TrimStreams) (Result, *Error) {
	if err := e.needOwner(); err != nil {
		return Result{}, err
	}
	var r Result
	for _, ss := range c.GetStreams() {
		p, gone, err := e.held(ss.GetStream(), ss.GetEpoch())
		if err != nil {
			return Result{}, err
		}
		start := commitlog.Offset(ss.GetStart())
		if gone || start <= p.Start { // ext-2: never back
			r.Skipped++
			continue
		}
		if start > p.End { // ext-4: commit what lies below first
			return Result{}, reject(ErrOffsetOutOfRange, "start of %s to %d, its committed end is %d; commit its extents first", p, start, p.End)
		}
		next := *p
		next.Start = start
		next.Extents = aboveStart(p.Extents, start)
		e.put(p, &next)
	}
	return r, nil
}

// flip hands partitions of the submitter to others, all or none. The end is
// final: the submitter has stopped appending and everything below is durable.
func (e *edit) flip(c *metadatapb.Flip) (Result, *Error) {
	if err := e.needOwner(); err != nil {
		return Result{}, err
	}
	for _, fs := range c.GetStreams() {
		p, gone, err := e.held(fs.GetStream(), fs.GetEpoch())
		if err != nil {
			return Result{}, err
		}
		if gone {
			return Result{}, reject(ErrNotOwner, "stream %d is not %s's at epoch %d any more", fs.GetStream(), e.from, fs.GetEpoch())
		}
		target := IncarnationFrom(fs.GetTarget())
		switch {
		case p.Deleting:
			return Result{}, reject(ErrTopicDeleting, "%s; close it instead", p)
		case !e.Live(target): // cmd-3
			return Result{}, reject(ErrTargetFenced, "%s shall take %s; choose another", target, p)
		case target == e.from:
			return Result{}, reject(ErrInvalid, "%s is %s's already", p, target)
		case p.Epoch == math.MaxInt32:
			return Result{}, reject(ErrExhausted, "epochs of %s", p)
		}
		end := commitlog.Offset(fs.GetEnd())
		tail, err := e.newData(p, fs.GetTail(), end)
		if err != nil {
			return Result{}, err
		}
		next := *p
		next.End = end
		next.Extents = slices.Concat(p.Extents, tail)
		next.Owner = target
		next.Epoch++ // epoch-1
		next.opened()
		e.put(p, &next)
	}
	return Result{}, nil
}
