// Package broker is the Kafka API surface: one file per API key, named by the
// key, that opens with the versions served and the KIPs behind them; the API
// table (apis.go) from which the server routes and ApiVersions is answered; the
// one table from errors to Kafka codes (errors.go); and fetch sessions
// (session.go).
//
// What it promises:
//
//	B1  Every request that could be decoded is answered, whatever it asks for:
//	    with a result or with a Kafka error code of the right scope (request,
//	    topic, partition), and a message where the protocol has a field for it.
//	    The only exception is Produce with acks=0, which has no reply.
//	B2  A record is acknowledged only after its Commit resolved without error.
//	    Anything else is answered with a retriable code, and is harmless to
//	    retry for an idempotent producer.
//	B3  Batches of one connection are appended in the order in which their
//	    requests arrived, however many are in flight.
//	B4  Memory that a response refers to stays pinned until the response was
//	    written, and is released exactly once.
//	B5  Reads of cluster state use the image of this broker at the moment the
//	    request is handled; a change that this broker answered as done is in it.
//
// The package holds no cluster state of its own. It reads the image (Meta),
// appends to and reads from the partitions this node hosts (Partitions) and
// passes changes on to the controller (Admin), so that any broker can be asked
// for anything. Handlers run on the goroutines of package rpc and start none
// that outlive their request.
//
// Where Kafka 4.4 itself fails a client, this package does not follow it:
//
//   - Null records in a Produce are answered with INVALID_RECORD (Kafka never
//     answers), and both batches of a partition that is named twice are appended
//     and acknowledged (Kafka loses the first).
//   - An unknown operation in IncrementalAlterConfigs is INVALID_REQUEST (Kafka's
//     active controller resigns).
//   - A partition whose next owner is opening it has that owner as its leader, and
//     requests wait a little for it, where Kafka says LEADER_NOT_AVAILABLE.
//   - A fetch session ends with the connection that began it, not two minutes
//     later.
//   - acks=1 waits as long as 30 s for durability, whatever the request's timeout,
//     which in Kafka is about replicas only.
//
// Not here: group coordination and transactions (no API of theirs is
// advertised, see 10_find_coordinator.go), authentication, quotas.
package broker
