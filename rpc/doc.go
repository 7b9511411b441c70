// Package rpc speaks Kafka's framing in both directions: a Server that reads
// requests and writes replies, a Client that calls, and codecs for Produce and
// Fetch that reference record bytes. It knows keys, versions, bytes
// and connections; it knows no topic, no user and no cluster.
//
// # Frames
//
//	request   size int32 | key int16 | version int16 | correlation int32 |
//	          client id nullable string | tags (flexible versions) | body
//	response  size int32 | correlation int32 | tags (flexible versions, never ApiVersions) | body
//
// Everything but the bodies of Produce, Fetch and the cluster's own calls is
// encoded and decoded by kmsg.
//
// # Promises
//
//	R1  Replies leave a connection in the order of its requests.
//	R2  Begin runs in the order of the requests as soon as one was read, even
//	    while earlier replies wait. Handle, and what Begin returned, run one
//	    after another.
//	R3  Nothing is allocated for a frame before its key, version and size
//	    passed the limits, and no body is decoded whose decoded form would not
//	    fit in three times the frame limit of its key.
//	R4  Memory is bounded: request bytes of all connections by MemoryBudget,
//	    of which large frames can never take all, decoded bytes by
//	    DecodeBudget, one connection by ConnInflight and ConnBudget. When a
//	    bound is met, reading pauses. This cannot deadlock: a request takes its
//	    frame bytes before its decoded bytes, in the order of its connection,
//	    and what has both runs to its end.
//	R5  No input makes the server panic; a panic in a handler is logged with
//	    its stack and closes that connection only.
//	R6  A peer that is silent, half open or never reads is closed after
//	    IdleTimeout, ReadStall or WriteStall.
//	R7  A malformed request, an unknown key or an unsupported version closes
//	    the connection after the replies to earlier requests went out.
//	    ApiVersions alone is answered at any version.
//
// # Goroutines
//
// A connection has one reading goroutine and, while it has requests to handle,
// one ordered goroutine that decodes, handles and writes. Ordered goroutines are
// lent by the server, which keeps a few, so that an idle connection costs one
// stack, and a small one: what the reading goroutine does is shallow. No mutex
// is held across a wait or I/O, so the package runs inside testing/synctest
// with in-memory connections.
//
// # Not here
//
// Authentication and quotas: the user marks a Conn as Authenticated and sets
// Response.Throttle. Long polls over a Client: replies are ordered, so a call
// that waits at the server delays those behind it; give it a Client of its own.
package rpc
