package model

import (
	"slices"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Mutation is one rule that is left out, by a process, the store, a sweeper, or
// Apply.
type Mutation uint8

// The mutations.
const (
	None Mutation = iota
	// Of processes, the store and sweepers.
	AckOutOfOrder            // slot-2
	FlipWithoutWaiting       // section 5: outstanding appends first
	UnfreezeOnTimeout        // cmd-2
	UnfreezeOnImage          // cmd-2: an image that names us is enough
	OpenUnsealed             // slot-4
	SweepByAge               // obj-2
	DeleteIgnoringReferences // obj-1
	DeleteFence              // slot-3
	DedupEarly               // ans-1
	ProbeNext                // ans-2
	ProbeOwnData             // ans-2: own data in the lowest unresolved slot are enough
	ProbeLowest              // ans-2: that slot being free is enough
	RetryProves              // ans-2: a retry that creates the slot proves from when it began
	ExistsWithoutSync        // directory stores
	DuplicateIncarnation     // cmd-6: a restart gets the old incarnation
	TrimPastCheckpoint       // ext-4
	SealWithoutSettle        // section 9: what was read may be in a page cache only
	PackSkipsFrozen          // ext-4: a frozen stream is not packed, but the trim moves
	// Of Apply.
	NoCmdSeq            // cmd-1
	SealStaleTrim       // cmd-4: and a sealer with an old trim
	AcceptFenced        // cmd-3: as a submitter
	FlipToFenced        // cmd-3: as a target
	SealedKeepsEnd      // cmd-5
	TrimOnPartialReject // ext-4
	EpochReused         // epoch-1: for a second incoming owner
	mutationCount
)

// keepsCommands says that dead commands have to stay, because the mutated Apply
// may accept them.
func (k Mutation) keepsCommands() bool { return k == NoCmdSeq || k == AcceptFenced }

// fsm applies a command to an image with the real Apply. Apply has no switches
// to leave a rule out; a mutated one is had by giving it another command, or
// another image, so that what comes out is what it would do without the rule.
// fake says that the image was edited, so that CheckStep would see the edit.
func (m *Model) fsm(info *imageInfo, c *command) (next *metadata.Image, r metadata.Result, fake bool) {
	apply := func(img *metadata.Image, pb *metadatapb.Command) (*metadata.Image, metadata.Result) {
		next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(pb))
		return next, results[0]
	}
	pb := c.message(info)
	switch m.mutation {
	case NoCmdSeq:
		if c.kind != cmdFence && c.kind != cmdRegister {
			pb.CmdSeq = max(pb.CmdSeq, uint64(info.wal[c.from].seq)+1)
		}
	case SealedKeepsEnd:
		if s := pb.GetSealed(); s != nil {
			s.Streams = nil
		}
	case SealStaleTrim:
		if w := &info.wal[c.wal]; c.kind == cmdSealed && w.state == metadata.Fenced && c.trim < w.trim {
			low := edit(info.img, func(s *metadatapb.Snapshot) { s.Wals[c.wal].Trim = uint64(c.trim) })
			next, r = apply(low, pb)
			return next, r, true
		}
	case AcceptFenced:
		if next := acceptFenced(info, c); next != nil {
			return next, metadata.Result{}, true
		}
	case FlipToFenced:
		if c.kind == cmdFlip && !info.wal[c.target].active() {
			return flipAnyway(info, c, pb, apply)
		}
	}
	next, r = apply(info.img, pb)
	switch {
	case m.mutation == TrimOnPartialReject && c.kind == cmdCommit && r.Err != nil && r.Err.Code != metadata.ErrStaleCommand && r.Err.Code != metadata.ErrFencedIncarnation:
		pb = c.message(info)
		pb.GetCommitExtents().Streams = nil
		next, _ = apply(info.img, pb)
	case m.mutation == EpochReused && c.kind == cmdFence && r.Err == nil:
		next, fake = reuseEpochs(info, next)
	}
	return next, r, fake
}

// edit changes an image by way of its snapshot. The result is an image that
// passes Check.
func edit(img *metadata.Image, change func(*metadatapb.Snapshot)) *metadata.Image {
	s := metadata.Snapshot(img)
	change(s)
	next, err := metadata.FromSnapshot(s)
	if err != nil {
		panic("a mutation makes an image that cannot be: " + err.Error())
	}
	return next
}

// acceptFenced is what Apply would do with a commit of a fenced incarnation:
// streams that moved on are skipped, and the trim moves. Nil: nothing else.
func acceptFenced(info *imageInfo, c *command) *metadata.Image {
	w := &info.wal[c.from]
	if c.kind != cmdCommit || w.state != metadata.Fenced || c.trim <= w.trim {
		return nil
	}
	for s := range streamCount {
		if c.has(s) && c.epoch[s] >= info.part[s].epoch {
			return nil // refused: the stream waits for the WAL
		}
	}
	return edit(info.img, func(s *metadatapb.Snapshot) { s.Wals[c.from].Trim = uint64(c.trim) })
}

// flipAnyway is a flip to an incarnation that is fenced: a valid flip, to a
// broker that registers for the purpose and is then replaced by the target.
func flipAnyway(info *imageInfo, c *command, pb *metadatapb.Command, apply func(*metadata.Image, *metadatapb.Command) (*metadata.Image, metadata.Result)) (*metadata.Image, metadata.Result, bool) {
	extra := command{kind: cmdRegister, target: 99}
	img, r := apply(info.img, extra.message(info))
	for _, f := range pb.GetFlip().GetStreams() {
		f.Target = r.Incarnation.Proto()
	}
	img, r = apply(img, pb)
	if r.Err != nil {
		img, r = apply(info.img, pb) // refused for another reason
		return img, r, true
	}
	return edit(img, func(s *metadatapb.Snapshot) {
		s.NextBrokerEpoch--
		s.Wals = s.Wals[:info.wals]
		s.Brokers = slices.DeleteFunc(s.Brokers, func(b *metadatapb.SnapBroker) bool { return b.Registration.Broker == 99 })
		for i, p := range s.Topics[0].Partitions {
			if c.has(i) {
				p.Owner = info.wal[c.target].inc.Proto()
				n := len(p.EpochHistory) - 1
				p.EpochHistory, p.HistoryOffsets = p.EpochHistory[:n], p.HistoryOffsets[:n]
			}
		}
	}), r, true
}

// reuseEpochs takes back the new epoch of a partition that was named to a
// second incoming owner before the first could open it.
func reuseEpochs(info *imageInfo, img *metadata.Image) (*metadata.Image, bool) {
	reused := false
	out := edit(img, func(s *metadatapb.Snapshot) {
		for i, p := range s.Topics[0].Partitions {
			was := &info.part[i]
			second := was.waits != none && was.waits != was.owner
			if second && uint8(p.Owner.GetEpoch()-1) != was.owner {
				p.Epoch--
				reused = true
			}
		}
	})
	return out, reused
}
