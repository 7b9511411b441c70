// Package kbatch builds and takes apart Kafka record batches of message format
// v2: the shortest way to a valid batch for tests, tools and the records that
// the cluster itself writes. The produce path does not use it; there the
// producer's bytes are kept as they came.
//
// A batch is described by a Batch value, made by New (ordinary records) or
// Marker (the end of a transaction) and refined by methods that each return a
// changed copy:
//
//	b := kbatch.New(kbatch.KV("k", "v")).Idempotent(7, 0, 0).Compressed(kbatch.Zstd).Bytes()
//
// Encoding is deterministic: the same Batch gives the same bytes.
//
// A record is, in order, every integer a zigzag varint unless said otherwise:
//
//	length, attributes (int8, 0), timestamp delta, offset delta,
//	key length (-1 null), key, value length (-1 null), value,
//	header count, and per header: name length, name, value length (-1 null), value
//
// Records stand one after another behind the 61-byte header, compressed
// together if the batch names a codec.
package kbatch
