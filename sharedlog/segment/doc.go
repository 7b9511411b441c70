// Package segment is the format of the immutable objects that packing and
// sealing write: segment objects, which hold record batches of one or many
// streams, and index objects, which only say where batches lie. Both are the
// same format, version 1; an index object is a segment object without bodies.
//
//	header     32 bytes  magic "PNRS", version, creator, counter, CRC32C
//	bodies     record batches, one contiguous run after another
//	sections   one per run or index, each with a CRC32C of its own
//	directory  which section is where, by stream
//	trailer    32 bytes  where directory and sections begin, CRC32C, magic "SRNP"
//
// A run is whole batches of one stream and one leader epoch. An extent in the
// metadata that names a run gives the body's position and length, so that its
// bytes can be read (and checked by the batches' own CRCs) without this
// package; the run's section adds a sparse index with a CRC32C per block of
// about 16 KiB and the state that recovery needs. All sections of an object lie
// together, so that opening a thousand streams packed into one object costs one
// or two reads and no body.
//
// An index section lists extents elsewhere (or other index sections) that cover
// a range of a stream without gap; an extent with Indirect set names it by
// position and length.
//
// Integers are big-endian where fixed and varints elsewhere. Decoders never
// panic, never allocate more than a small multiple of their input, and check
// every CRC before they believe a byte. Golden bytes of each version are in
// testdata for ever.
//
// The package does no I/O; package engine reads and writes the objects.
package segment
