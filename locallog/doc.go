// Package locallog keeps commit logs in a local directory, in Kafka's own files
// and bytes, so that Kafka's tools read them (kafka-dump-log, for one). It is
// the one-replica form: a log has one owner, and what that owner acknowledged
// is on this disk.
//
// Layout below the data directory; [K] marks what has Kafka's name and format:
//
//	.lock                              [K] held by flock while a Store is open
//	recovery-point-offset-checkpoint   [K] written when a log closes, for tools
//	log-start-offset-checkpoint        [K] moved by Trim
//	<topic>-<partition>/
//	    <base offset>.log              [K] record batches, one after another
//	    <base offset>.index            [K] 8 bytes each: relative offset, position
//	    <base offset>.timeindex        [K] 12 bytes each: timestamp, relative offset
//	    leader-epoch-checkpoint        [K] its last epoch is the newest owner
//	    partition.metadata             [K] the topic id
//	    <end offset>.checkpoint        what commitlog.Checkpointer made, see checkpoint.go
//	    durable                        how far the log was known synced, see durable.go
//	<topic>-<partition>.<hex>-delete/  [K] being removed
//
// Kafka's .snapshot holds only the last batch of every producer. A partition
// here needs more to answer a retry with its offset (the last five batches) and
// to list aborted transactions, so that the checkpoint has a file of its own
// instead of .snapshot and .txnindex; Kafka rebuilds both when they are missing.
//
// Every acknowledged append was fsynced first. Appends gather while an fsync
// runs and share the next one (group commit). See DESIGN.md for the rules.
package locallog
