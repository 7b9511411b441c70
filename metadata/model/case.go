package model

// Case is a mutation with what is expected of it: the property that fails first,
// in a world where that is found soon.
type Case struct {
	Mutation Mutation
	Name     string
	Caught   Property
	World    Config
}

// Cases lists all mutations.
func Cases() []Case {
	base := Config{Brokers: []int32{1, 2}, Records: 3, Slots: 3, Offsets: 3, Objects: 2, Commands: 3, FenceLimit: 1, Epochs: 4}
	in := func(f Feature) Config {
		c := base
		c.Features = f
		return c
	}
	restart := in(Producer | Fences)
	restart.Brokers, restart.Restarts = []int32{1}, []int32{1}
	three := in(Producer | Fences)
	three.Brokers, three.FenceLimit = []int32{1, 2, 3}, 3
	trims := in(Producer | Plain | Flips | Adopts | Trims)
	trims.Slots = 2
	swept := in(Plain | Fences | Repacks | Sweeps)
	swept.Records, swept.Slots, swept.Offsets, swept.Commands = 2, 1, 2, 2
	lone := in(Plain | Packs | Sweeps | Fences)
	lone.OneSealer, lone.Records, lone.Slots, lone.Offsets, lone.Objects = true, 2, 2, 2, 1
	cases := []Case{
		{AckOutOfOrder, "ack out of order", PropRecoverable, in(Plain | Fences)},
		{FlipWithoutWaiting, "flip without waiting", PropRecoverable, in(Producer | Flips)},
		{UnfreezeOnTimeout, "unfreeze on timeout", PropRecoverable, in(Producer | Flips)},
		{UnfreezeOnImage, "unfreeze on image", PropRecoverable, in(Producer | Flips)},
		{NoCmdSeq, "no cmdSeq", PropRecoverable, in(Producer | Plain | Flips)},
		{SealStaleTrim, "sealer with stale trim, no check by Apply", PropRecoverable, lone},
		{OpenUnsealed, "open before sealed", PropRecoverable, in(Producer | Fences)},
		{AcceptFenced, "Apply accepts a fenced submitter", PropRecoverable, in(Plain | Packs | Fences)},
		{FlipToFenced, "flip to a fenced target", PropOwner, in(Producer | Flips | Fences)},
		{SweepByAge, "sweep by age", PropDangling, in(Plain | Packs | Sweeps)},
		{DeleteIgnoringReferences, "delete by trim ignoring references", PropDangling, in(Plain | Adopts | Sweeps)},
		{DeleteFence, "delete the fence", PropRecoverable, in(Producer | Fences | Sweeps)},
		{SealedKeepsEnd, "end not advanced by Sealed", PropRecoverable, in(Producer | Fences)},
		{TrimOnPartialReject, "trim advanced on partial rejection", PropRecoverable, in(Plain | Adopts | Impatient)},
		{DedupEarly, "duplicate answered early", PropRecoverable, in(Producer | Fences)},
		{ProbeNext, "probe of the next slot", PropProof, in(Producer | Fences)},
		{ProbeOwnData, "probe content with own data", PropProof, in(Plain | Fences)},
		{ProbeLowest, "probe of the lowest slot alone, free", PropProof, swept},
		{RetryProves, "a retried put proves from its own time", PropProof, swept},
		{EpochReused, "epoch reused for a second incoming owner", PropLeader, three},
		{ExistsWithoutSync, "exists accepted without fsync", PropRecoverable, in(Producer | Directory)},
		{SealWithoutSettle, "sealed without settling", PropDangling, in(Producer | Directory | Fences)},
		{DuplicateIncarnation, "duplicate incarnation id", PropProof, restart},
		{TrimPastCheckpoint, "trim past the checkpoint", PropNoDuplicate, trims},
		{PackSkipsFrozen, "pack leaves out a frozen stream and trims", PropRecoverable, in(Producer | Flips | Packs | TwoStream)},
	}
	for i := range cases {
		cases[i].World.Name = cases[i].Name
	}
	return cases
}
