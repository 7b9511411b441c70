// Package sharedlog is the shared log: a partition's log on shared storage
// (KIP-1183's SharedLog). It implements commitlog.Store and commitlog.Log, and
// the sealing of dead brokers' WALs for the controller.
//
// A Log here is thin: order, durability, bytes and offsets are a stream's
// (package stream, KIP-1183's Stream layer), which package engine keeps on an
// object store; what is left is the view of a log as segments. Segments of a
// shared log are logical: rolled by segment.bytes and segment.ms as a local log
// would, but not files; retention decides by them and trims.
//
// DESIGN.md explains the whole: rules and where each is kept, flows, failures.
package sharedlog
