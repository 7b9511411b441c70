// Package partition is everything Kafka means by a partition, once, over any
// commitlog.Log: which batches are valid, producers and their sequences,
// transactions and the last stable offset, leader epochs, offsets by time,
// retention, and who waits for news. Set is the partitions that one node hosts:
// it follows the metadata image, opens what its incarnation owns and closes
// what it lost.
//
// What a Partition promises is listed, numbered, in DESIGN.md. In short: an
// append never waits and is answered by a Commit; a retry gets the original's
// offset and the original's Commit; readers see whole stable batches; whoever
// gets "latest" or "out of range" gets it from the owner, proven.
//
// The package does not speak the Kafka protocol and knows no error codes; it
// does not know where logs lie; it starts no goroutine outside Set.Run.
package partition
