// Package coordinator keeps state machines in the partitions of an internal
// topic, as Kafka keeps consumer groups in __consumer_offsets. It knows nothing
// of groups: what is kept is a Machine.
//
// The owner of a partition of the topic coordinates the keys that hash to it
// (PartitionOf). Its log is the state: when the partition opens on this node, its
// records are replayed into a new Machine, a shard, which then takes calls; each
// call may change the state and returns the records that say so. What the package
// promises:
//
//  1. Calls of one shard run one at a time; none waits for another's disk.
//  2. Nothing is answered before every record that the answer can depend on is
//     durable (ans-1), and then only by who still was the owner when the call
//     arrived, or while it was carried out (ans-2).
//  3. State that became durable is there after any crash and any move. State that
//     did not is thrown away with the whole shard: there is no rollback.
//  4. A shard's log is at most some times as long as its live state (compact.go).
//
// The owner of a partition that is about to move sends its log ahead (ahead.go), so that
// the next one has little left to replay when it opens. An owner that died sent nothing:
// the next one loads it all. A log holds at most compactFactor times its live records, and
// one of 20,000 offsets (200 groups that read 100 partitions each) loads in less than the
// takeover itself takes. One of a million takes long enough for its groups' calls to wait
// or meet ErrLoading. More partitions of the topic are the remedy: they load beside each
// other.
//
// A call runs on its caller's goroutine, also while it waits for others (Ask), or until it
// is hurried (AskUntil). A loaded shard has one goroutine, for
// time and trouble, which sleeps while there is neither.
package coordinator
