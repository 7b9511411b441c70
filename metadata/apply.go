package metadata

import (
	"ponor/metadata/metadatapb"
)

// Apply turns an image into the next one by one log entry and says what came of
// each command. It is pure and deterministic, and it never fails: a command
// that cannot be applied is rejected in its Result and leaves the image as it
// was, but for its submitter's cmd_seq (cmd-1).
//
// An entry at or below the image's index was applied already: the image comes
// back unchanged, with no results. So an entry may arrive by several ways. An
// empty entry only moves the index, as Raft's own entries do.
// Entries of another version are rejected throughout; see DecodeEntry.
func Apply(img *Image, index Index, entry *metadatapb.Entry) (*Image, []Result) {
	if index <= img.index {
		return img, nil
	}
	results := make([]Result, len(entry.GetCommands()))
	next := img
	for i, c := range entry.GetCommands() {
		if entry.GetVersion() != EntryVersion {
			results[i] = Result{Err: reject(ErrUnsupported, "entry version %d", entry.GetVersion())}
			continue
		}
		next, results[i] = step(next, c)
	}
	out := *next
	out.index = index
	return &out, results
}

// step applies one command.
func step(img *Image, c *metadatapb.Command) (*Image, Result) {
	from := IncarnationFrom(c.GetFrom())
	if err := admitCommand(img, from, c); err != nil {
		return img, Result{Err: err}
	}
	e := begin(img)
	e.consume(from, c.GetCmdSeq())
	r, err := e.run(c)
	if err == nil {
		e.bury()
		return e.finish(), r
	}
	// cmd-1: a number is used up even if what it carried is rejected, so that a
	// copy of the command, delivered late, can never be accepted after all.
	e = begin(img)
	e.consume(from, c.GetCmdSeq())
	return e.finish(), Result{Err: err}
}

// admitCommand decides by the command's head whether its body is looked at.
func admitCommand(img *Image, from Incarnation, c *metadatapb.Command) *Error {
	if c.GetFrom() == nil {
		return nil
	}
	w, ok := img.WAL(from)
	if !ok {
		return reject(ErrUnknownIncarnation, "%s was never registered", from) // cmd-1
	}
	// cmd-3. The whole record is frozen, cmd_seq included (cmd-4); nothing of
	// this incarnation can be accepted any more.
	if w.State != Active {
		return reject(ErrFencedIncarnation, "%s is %s; register anew", from, w.State)
	}
	if c.GetCmdSeq() <= w.CmdSeq { // cmd-1
		return reject(ErrStaleCommand, "command %d of %s, the last was %d", c.GetCmdSeq(), from, w.CmdSeq)
	}
	return nil
}

// consume remembers the submitter and uses up the command's number (cmd-1).
func (e *edit) consume(from Incarnation, seq uint64) {
	e.from = from
	if w, ok := e.WAL(from); ok && !from.IsZero() {
		w.CmdSeq = seq
		e.setWAL(w)
	}
}

// run applies a body. Every kind of command has its function; a rejection
// leaves the edit in any state, it is dropped.
func (e *edit) run(c *metadatapb.Command) (Result, *Error) {
	if b, ok := c.GetBody().(*metadatapb.Command_InitCluster); ok {
		return e.initCluster(b.InitCluster)
	}
	if e.clusterID == "" {
		return Result{}, reject(ErrNotInitialized, "the first command has to be InitCluster")
	}
	switch b := c.GetBody().(type) {
	case *metadatapb.Command_RegisterBroker:
		return e.registerBroker(b.RegisterBroker)
	case *metadatapb.Command_Fence:
		return e.fenceBroker(b.Fence)
	case *metadatapb.Command_Sealed:
		return e.sealed(b.Sealed)
	case *metadatapb.Command_UnregisterBroker:
		return e.unregisterBroker(b.UnregisterBroker)
	case *metadatapb.Command_BrokerState:
		return e.brokerState(b.BrokerState)
	case *metadatapb.Command_CreateTopic:
		return e.createTopic(b.CreateTopic)
	case *metadatapb.Command_DeleteTopic:
		return e.deleteTopic(b.DeleteTopic)
	case *metadatapb.Command_CreatePartitions:
		return e.createPartitions(b.CreatePartitions)
	case *metadatapb.Command_TopicsGone:
		return e.topicsGone(b.TopicsGone)
	case *metadatapb.Command_AssignReplicas:
		return e.assignReplicas(b.AssignReplicas)
	case *metadatapb.Command_AlterConfigs:
		return e.alterConfigs(b.AlterConfigs)
	case *metadatapb.Command_CommitExtents:
		return e.commitExtents(b.CommitExtents)
	case *metadatapb.Command_ReplaceExtents:
		return e.replaceExtents(b.ReplaceExtents)
	case *metadatapb.Command_TrimStreams:
		return e.trimStreams(b.TrimStreams)
	case *metadatapb.Command_Flip:
		return e.flip(b.Flip)
	case *metadatapb.Command_AllocateIds:
		return e.allocateIDs(b.AllocateIds)
	case *metadatapb.Command_ClaimGeneration:
		return e.claimGeneration(b.ClaimGeneration)
	case *metadatapb.Command_ClaimStore:
		return e.claimStore(b.ClaimStore)
	case *metadatapb.Command_SetFeature:
		return e.setFeature(b.SetFeature)
	case *metadatapb.Command_Noop:
		return Result{}, nil
	default:
		return Result{}, reject(ErrUnsupported, "command without a body that this release knows")
	}
}
