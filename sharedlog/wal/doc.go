// Package wal is the write-ahead log of one broker incarnation on a Bucket: the
// only place where acknowledged records become durable. All streams that the
// incarnation owns share it, so that writes per second do not grow with
// partitions.
//
// A WAL is a row of objects, slots, with dense sequence numbers from 0. A
// Writer fills and writes them; Seal ends the WAL of an incarnation that is
// gone, by a fence in the first free slot. It keeps these rules:
//
//	slot-1  Slots are written create-only; a taken slot never changes.
//	slot-2  Nothing at or above the first slot not known durable is
//	        acknowledged: slots resolve strictly in order.
//	slot-3  An incarnation is sealed at e when slot e holds the first fence
//	        after contiguous data. Nothing at or above e was or will ever be
//	        acknowledged. The fence is never deleted.
//	slot-4  A stream is opened only after its old owner gave it away or was
//	        sealed. (Kept by the callers of Seal.)
//	slot-5  Only a successful PutNew of a fence defines e. A slot that is
//	        neither valid data nor a fence, or data that proves that lower
//	        slots were lost, stops sealing loudly.
//
// # Memory
//
// A batch is copied once, into a slab: a fixed-size piece of memory outside the
// Go heap. Slots are written from their slabs, and stay in them after they
// became durable, as the cache of recent data. Whoever reads a slot's memory
// holds a reference (Slot.Acquire, Slot.Release).
//
// # Keys
//
//	<prefix>/wal/<broker>-<epoch>/<lane>/<seq, 20 digits>
//
// # Slot objects, version 1
//
// Integers are big-endian, varints are those of encoding/binary (signed ones
// zigzag).
//
//	header   128 bytes
//	chunks   one per stream, in the order of the index, without gaps
//	index    which chunks there are, and what recovery must know of them
//	footer   the header again, so that one read of the tail finds the index
//
// A fence is a header alone.
//
//	  0   8  magic "PONORWAL"
//	  8   1  version, 1
//	  9   1  kind: 1 data, 2 fence
//	 10   1  lane, 0
//	 11   1  window: a writer starts slot n only once all slots up to n-window
//	         are durable (1-255; 0 in a fence)
//	 12  32  cluster id: length in one byte, then at most 31 bytes, zero padded
//	 44   8  generation
//	 52   4  broker   \ the incarnation whose WAL it is
//	 56   8  epoch    /
//	 64   8  seq
//	 72   4  broker   \ the incarnation that wrote the object: the same one, or
//	 76   8  epoch    / the sealer
//	 84  16  write id, random; tells own earlier attempts from others' writes
//	100   8  durableBelow: slots known durable when the slot was closed
//	108   8  size of the object in bytes
//	116   4  length of the index in bytes
//	120   4  CRC32C of the index
//	124   4  CRC32C of bytes 0-123
//
// The index:
//
//	uvarint  number of chunks
//	chunks, sorted by stream, then by epoch:
//	  byte     kind: 1 records. 2 (records that are not yet sequenced) and 3 (a
//	           reference into another WAL) are reserved; readers refuse them
//	  uvarint  stream
//	  uvarint  leader epoch
//	  uvarint  base offset
//	  uvarint  number of offsets
//	  uvarint  length in bytes; the position follows from the lengths before
//	  varint   largest timestamp, ms
//	  4 bytes  CRC32C of the chunk
//	  uvarint  number of deltas
//	  deltas, in offset order (see Chunk.Batches):
//	    uvarint  base offset, relative to the chunk's
//	    uvarint  last offset delta
//	    uvarint  attributes (16 bits)
//	    varint   largest timestamp, relative to the chunk's
//	    varint   producer id; if it is not -1:
//	      varint   producer epoch
//	      varint   base sequence
//	    if the attributes say control batch:
//	      varint   marker: 0 abort, 1 commit, -1 unknown
//	      varint   coordinator epoch
//	uvarint  number of repeated indexes r, at most 31; they are those of slots
//	         seq-r to seq-1, each:
//	  uvarint  length in bytes
//	  bytes    number of chunks and chunks as above
//
// Slots with seq mod 32 = 31 repeat the indexes of the slots before, as far as
// they fit in 1 MiB, so that sealing a long WAL takes few reads. A repeated
// index proves nothing about its slot; only durableBelow does.
package wal
