// Package controller keeps the cluster's metadata: a Raft quorum of one to
// five voters, the image that every node derives from it, and what the elected
// leader does with it (who is alive, who owns what, who seals a dead WAL). It
// is also the client that every node uses to reach the leader, wherever it is.
// DESIGN.md tells why it is built so; its invariants K1 to K11 are cited here.
//
// A process has one Node, voter or not. Node.Image is the newest image this
// process knows, immutable and free to read from any goroutine; everything
// else goes to the leader:
//
//	n, err := controller.New(controller.Config{NodeID: 1, Voter: true, Join: peers, ...})
//	go n.Run(ctx)
//	inc, err := n.Register(ctx, controller.Registration{...})
//	res, err := n.SubmitOwn(ctx, command)
//
// Promises:
//
//	K1  The image of a process never goes back in (generation, index).
//	K2  Equal logs give equal images, byte for byte, on every node.
//	K3  Submit, SubmitOwn and the admin operations return after the local image
//	    holds their effect.
//	K4  Commands of SubmitOwn are consumed in submission order, each at most
//	    once (cmd-1), through lost replies and changes of leader.
//	K5  An error from SubmitOwn says whether the command may have been applied.
//	K6  Barrier is linearizable: what completed anywhere before it began is in
//	    the image it returns.
//	K7  Leadership in Raft never by itself permits a write of data; the fence in
//	    the store does.
//
// Not here: what commands mean (package metadata), what a WAL is (package
// sharedlog), which Kafka error a client gets (package broker).
//
// Nothing holds a lock across I/O, a channel or a timer, so a whole quorum
// runs inside testing/synctest over in-memory listeners.
package controller
