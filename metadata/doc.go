// Package metadata is the cluster's replicated state: an immutable Image, and
// Apply, the pure function by which one Raft log entry turns an image into the
// next. It does no I/O, reads no clock and draws no random numbers: the same
// log gives the same image, byte for byte, on every node and for ever.
//
// What it promises (numbered in DESIGN.md, tested by name): the rules of the
// shared log that the metadata must keep whatever brokers and controllers do.
// A command is accepted whole or rejected whole; what a rejection leaves
// behind is only the consumed cmd_seq of its submitter (cmd-1). Which entries
// of a list may be skipped is said at each command.
//
// The caller feeds entries in log order from one place (controller's FSM, or
// the follower stream) and publishes the image; everybody reads it without
// locks. DecodeEntry refuses entries of a later format: a node that meets one
// must stop, because skipping it would let its image drift from the others'.
//
// Whether a topic config has a legal value is not checked by Apply: the table
// of configs changes between releases, and a log must replay to the same image
// under all of them. ValidateTopicConfig is for those who propose commands.
package metadata
