// Package group is the state machine of consumer groups and their committed
// offsets: what one partition of __consumer_offsets keeps (package coordinator
// keeps it there, and calls it). It is pure: no I/O, no goroutine, no lock, no
// clock. A call gets the time, changes the state at once and returns the records
// that, replayed, make the same change. Calls that wait for other members take a
// reply function, which is called once, now or by a later call or Tick.
//
// What it promises:
//
//	G1  The generation of a group never decreases, and a member sees an assignment
//	    only of the generation it is in. What a leader assigned is in the log
//	    before anybody is told.
//	G2  Within one generation each member id has one assignment; an old member id of
//	    a static member, an old generation and an unknown member are refused.
//	G3  Replaying the records of a machine, or those that Live yields, makes a
//	    machine with the same offsets and the same last written membership. What
//	    a rebalance under way has decided is not in it, as in Kafka: its members
//	    join again.
//	G4  Bytes of clients (subscriptions, assignments, notes) are kept and handed on,
//	    and decide nothing but which topics a group seems to read.
//
// The records are Kafka's own (OffsetCommitKey, GroupMetadataKey and their values),
// so tools that read the topic understand it.
//
// Group membership has two kinds: classic (JoinGroup and SyncGroup; KIP-345, 394,
// 559, 800, 814) in classic.go, join.go, rebalance.go, sync.go, leave.go, held.go; and
// consumer (KIP-848) in consumer.go. Offsets (KIP-211, 496, 709, 848) are common to
// both.
package group
