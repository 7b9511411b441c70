// Package verify proves that a store and the metadata agree (obj-3): every
// object is referenced, or garbage for a named reason, or reported; everything
// that is referenced is there and readable down to the last batch; and the WALs
// of incarnations that are not sealed can be recovered.
//
// It only reads, and needs no broker: a Bucket and a source of images is all. It
// works on the store of a stopped cluster, whose image stands still, and on that
// of a running one, in which objects come and go while it looks. It promises:
//
//	V1  Nothing false is reported. An object that is not as an image says is a
//	    problem only if an image that was fetched through a read barrier after
//	    the read still says so: what two images agree on was so in between,
//	    because an extent that went never comes back (obj-2).
//	V2  What the first image refers to, or what replaced it since, was read, or
//	    the report says how much was not (Report.Unsteady).
//	V3  Memory is bounded by Config.Parallel reads of 4 MiB, some ten thousand
//	    extents, and a few bits for every object that an index lists.
//
// # What is read
//
// The image's extents are followed, through index objects, to runs and WAL
// chunks, and these are checked an object at a time: the header; trailer,
// directory and sections of a segment or index object; header, footer and index
// of a slot; every batch of the extent, its CRC, base offset and epoch; the CRCs
// of blocks and chunks; the largest timestamp; the checkpoint; the deltas in a
// slot's index. Other parts of the object may be damaged without harm to
// anybody, and are not read.
//
// Of the WAL of an incarnation that is not sealed, all slots from the trim on
// are read whole. Then its indexes are walked as a sealer does that finds the
// process dead: no slot may be missing that a later one knows to have been
// durable (slot-5), and each stream must continue at its committed end (ext-3).
// Of a sealed WAL the fence must be there (slot-3).
//
// Last, the store is listed and every object judged.
package verify
