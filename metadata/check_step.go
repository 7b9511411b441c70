package metadata

import (
	"fmt"

	"ponor/commitlog"
)

// CheckStep proves what must hold between an image and any later one, however
// many entries lie between: what never goes back does not, and nothing leaves
// an owner but as own-1 and epoch-1 allow. It costs O(prev log next).
func CheckStep(prev, next *Image) error {
	for _, f := range []func(prev, next *Image) error{stepCounters, stepWALs, stepStreams} {
		if err := f(prev, next); err != nil {
			return fmt.Errorf("check step from %d to %d: %w", prev.index, next.index, err)
		}
	}
	return nil
}

func stepCounters(prev, next *Image) error {
	switch {
	case next.index < prev.index:
		return fmt.Errorf("M13: index goes back")
	case prev.clusterID != "" && next.clusterID != prev.clusterID:
		return fmt.Errorf("M13: cluster id changes from %q to %q", prev.clusterID, next.clusterID)
	case next.generation < prev.generation:
		return fmt.Errorf("M13: generation goes back from %d to %d", prev.generation, next.generation)
	case next.nextBrokerEpoch < prev.nextBrokerEpoch, next.nextStream < prev.nextStream,
		next.nextProducerID < prev.nextProducerID, next.nextObject < prev.nextObject:
		return fmt.Errorf("M13: a counter goes back")
	}
	return nil
}

func stepWALs(prev, next *Image) (err error) {
	prev.wals.Scan(func(_ uint64, a *WAL) bool {
		b, ok := next.WAL(a.Incarnation)
		switch {
		case !ok:
			err = fmt.Errorf("M14: WAL %s disappears", a.Incarnation)
		case b.State < a.State || b.Trim < a.Trim || b.CmdSeq < a.CmdSeq || b.Generation != a.Generation:
			err = fmt.Errorf("M14: WAL %s goes back from %+v to %+v", a.Incarnation, *a, b)
		case a.State != Active && (b.Trim != a.Trim || b.CmdSeq != a.CmdSeq):
			err = fmt.Errorf("M14: WAL %s is %s and still moves", a.Incarnation, a.State) // cmd-3, cmd-4
		case a.State == Sealed && b.SealedEnd != a.SealedEnd:
			err = fmt.Errorf("M14: WAL %s sealed at %d is now sealed at %d", a.Incarnation, a.SealedEnd, b.SealedEnd)
		}
		return err == nil
	})
	return err
}

func stepStreams(prev, next *Image) (err error) {
	next.streams.Scan(func(s commitlog.StreamID, r *record) bool {
		if a, ok := prev.partition(s); ok {
			b := r.partition(s)
			err = stepStream(next, a, &b)
		} else if s < prev.nextStream {
			err = fmt.Errorf("M15: stream %d comes back", s)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	// del-1: a stream disappears only with a topic of which nobody can append.
	prev.streams.Scan(func(s commitlog.StreamID, r *record) bool {
		if _, ok := next.streams.Get(s); ok {
			return true
		}
		for _, u := range r.partition(s).Unsealed {
			if w, _ := next.WAL(u); w.State != Sealed {
				err = fmt.Errorf("M15: stream %d disappears while %s is unsealed", s, u)
			}
		}
		return err == nil
	})
	return err
}

func stepStream(next *Image, a, b *Partition) error {
	switch {
	case a.Topic != b.Topic || a.Number != b.Number || a.Deleting && !b.Deleting || a.gone && !b.gone:
		return fmt.Errorf("M15: stream %d was %s and is %s", a.Stream, a, b)
	case b.Epoch < a.Epoch || b.Start < a.Start || b.End < a.End:
		return fmt.Errorf("M15: %s goes back from (%d, %d, %d) to (%d, %d, %d)", a, a.Epoch, a.Start, a.End, b.Epoch, b.Start, b.End)
	case a.Owner != b.Owner && a.Epoch == b.Epoch:
		return fmt.Errorf("M15: %s has two owners at epoch %d: %s and %s", a, a.Epoch, a.Owner, b.Owner) // epoch-1
	}
	// slot-4: what had to be sealed is waited for until it is.
	for _, u := range a.Unsealed {
		if w, _ := next.WAL(u); w.State != Sealed && (len(b.Unsealed) != 1 || b.Unsealed[0] != u) {
			return fmt.Errorf("M15: %s stops waiting for %s, which is %s", a, u, w.State)
		}
	}
	return nil
}
