// Package engine keeps streams on an object store: it implements package
// stream's Client over one WAL per incarnation (package wal), segment and index
// objects (package segment) and the replicated metadata (package metadata).
// ../DESIGN.md explains it as a whole.
//
// What it owns: which bytes of a stream are where. A batch lives in the WAL
// first (appended, then durable), is packed into a segment object behind, and
// the metadata learns of it with the commit of the pack. A read therefore looks
// in three places, newest first: the WAL's slabs, a WAL object whose slabs are
// gone, the extents in the image.
//
// State and who may touch it:
//
//	streamState   under its own mutex; never held across I/O or a wait
//	Engine.wal*   lists of slots, under Engine.mu
//	packing, maintenance, sweeping: one goroutine each, inside Run
//	the image     immutable, from Meta
//
// No goroutine, timer or file per stream.
package engine
