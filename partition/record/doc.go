// Package record reads the records inside a Kafka v2 record batch, compressed
// or not, and compresses them anew.
//
// A Reader walks one batch. It has two uses: checking (lengths and deltas only;
// nothing of a compressed batch is held but one small buffer) and reading (key
// and value too). What it promises:
//
//  1. No input makes it panic, loop or hold more memory than one buffer, one
//     record (reading only) and one decoder.
//  2. It never yields more than the batch's record count, and reports bytes
//     that are left over.
//  3. A Flaw is the fault of one record; the walk goes on behind it. Every
//     other error ends the walk.
//  4. More than MaxUncompressed bytes are refused, whatever the batch claims.
//
// Decoders and buffers are pooled per process; the pools hold no state that
// anyone could observe. A Reader belongs to one goroutine.
//
// Layout of a record (KIP-98): length varint, attributes int8, timestamp delta
// varlong, offset delta varint, key length varint (-1 null) and key, value
// likewise, header count varint, headers (key length varint and key, value
// length varint (-1 null) and value). Varints are zigzag.
package record
