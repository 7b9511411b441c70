// Package commitlog is the contract between a Kafka partition and the medium
// that keeps its log: KIP-1183's AbstractLog expressed in Go. Meaning (leaders,
// producers, transactions, retention policy) lives above it in package
// partition, once; media (sharedlog, locallog, memory) live below it.
//
// A Log is an ordered sequence of Kafka record batches (message format v2)
// with dense offsets. The numbered clauses every implementation and every
// decorator keeps; each is a named test in package logtest:
//
//	C1  Offsets are dense: an appended batch starts at the log's end, in call
//	    order, and moves the end by its number of offsets.
//	C2  Append orders at once and never waits for the medium; its Commit
//	    resolves when the batch is durable.
//	C3  Commits resolve in append order. After one fails, every later one
//	    fails too, and the Log is lost: it answers ErrFenced until it is opened
//	    again.
//	C4  A failed Commit means unknown, not absent: the batch may or may not be
//	    found by the next owner.
//	C5  Once Open has returned, an older owner's Commit can succeed only if its
//	    batch is in the log that Open returned. (It was durable before, and its
//	    owner learns so late; nothing else ever gets acknowledged.)
//	C6  Whatever an owner was told is durable is below the end of the next
//	    owner's log, same bytes, same offsets.
//	C7  Readers see whole batches below Stable only; Start <= Stable <= End;
//	    Start and Stable never move back while a Log is open.
//	C8  Read returns the batch that contains the offset asked for, even if it
//	    starts below it, and goes on with whole batches. It may end before its
//	    limits where what follows lies elsewhere (in another file or object,
//	    not in memory), but has something if a batch fits. A read at Stable is
//	    empty, below Start or above End ErrOffsetOutOfRange. It never waits for
//	    data to be appended.
//	C9  Base offset and leader epoch are patched into the stored batch; no
//	    other byte changes, so the producer's CRC stays valid.
//	C10 Trim only moves Start forward, never past Stable; what was trimmed
//	    stays trimmed after a re-open. Trim keeps nothing else from working.
//	C11 Recovered yields the newest checkpoint and every later batch that
//	    producer state, leader epochs or transactions depend on (Deltas), so
//	    that the partition above can rebuild what it knew without reading
//	    bodies. With a Checkpointer this also holds for producers whose batches
//	    were trimmed.
//	C12 Append copies; the caller may reuse its bytes once it returned.
//	C13 After Close (or loss of ownership) appends and reads answer ErrClosed
//	    or ErrFenced, and outstanding Commits resolve.
//	C14 Corrupt bytes are never returned: Read answers ErrCorrupt and names
//	    the object or file.
package commitlog
