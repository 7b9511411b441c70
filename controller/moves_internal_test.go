package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// term is a leader's term on a node that does not run: the test commits what is
// proposed. Brokers 1 and 2 live, topic t has one partition, which broker 1 owns.
type term struct {
	*leadership
	t     *testing.T
	node  *Node
	topic metadata.TopicID
}

func newTerm(t *testing.T) *term {
	n, err := New(Config{NodeID: 1, Join: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &leadership{
		cfg: n.cfg, log: n.log, ctx: ctx, images: n.images, sessions: newSessions(), moves: newMoves(), balance: newBalance(),
		gate:      make(chan struct{}, 1),
		committer: &committer{images: n.images, queue: make(chan *proposal, maxProposals), done: make(chan struct{})},
	}
	l.gate <- struct{}{}
	v := &term{leadership: l, t: t, node: n, topic: metadata.TopicID{1}}
	img, inc := clusterImage(t)
	if err := n.images.install(img); err != nil {
		t.Fatal(err)
	}
	v.apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: registration(2)}})
	v.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{
		TopicId: v.topic[:], Name: "t", Partitions: []*metadatapb.PartitionSpec{{Owner: inc.Proto(), Replicas: []int32{1}}}}}})
	n.leading.Store(l)
	return v
}

func registration(id byte) *metadatapb.RegisterBroker {
	return &metadatapb.RegisterBroker{Broker: int32(id), Nonce: append(make([]byte, metadata.NonceBytes-1), id)}
}

// apply is an entry that the quorum commits.
func (v *term) apply(commands ...*metadatapb.Command) (metadata.Index, []metadata.Result) {
	v.t.Helper()
	data, err := metadata.EncodeEntry(commands...)
	if err != nil {
		v.t.Fatal(err)
	}
	index := v.images.image().Index() + 1
	results, err := v.images.apply(index, data)
	if err != nil || results[0].Err != nil {
		v.t.Fatal(err, results[0].Err)
	}
	return index, results
}

// commitAfter commits what is proposed next once its caller has given up and,
// after that, the leader has looked at the image.
func (v *term) commitAfter(giveUp func()) {
	v.t.Helper()
	p := <-v.committer.queue
	giveUp()
	synctest.Wait()
	if len(v.gate) > 0 {
		v.t.Error("the next decision may be made before this one is applied")
	}
	v.finishMoves()
	index, results := v.apply(p.commands...)
	p.reply <- proposed{index: index, results: results}
	synctest.Wait()
	if len(v.gate) == 0 {
		v.t.Error("no other decision can be made")
	}
}

func (v *term) owner() (metadata.Broker, metadata.Partition) {
	p, _ := v.images.image().Partition(v.topic, 0)
	b, _ := v.images.image().Broker(p.Owner.Broker)
	return b, p
}

// A reassignment is carried out though whoever asked for it gave up while it was
// on its way, and a registration counts as a sign of life.
func TestACommandOutlivesItsCaller(t *testing.T) {
	t.Run("reassignment", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := newTerm(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { // ends with commitAfter
				_, _ = v.admin(ctx, &controllerpb.AdminRequest{Reassign: []*controllerpb.PartitionChange{{TopicId: v.topic[:], Replicas: []int32{2}}}})
			}()
			v.commitAfter(cancel)
			b, p := v.owner()
			if got := v.moves.of(v.images.image, b.Incarnation); len(got) != 1 || got[0].Target.GetBroker() != 2 || got[0].Epoch != int32(p.Epoch) {
				t.Errorf("the owner is asked for %v", got)
			}
		})
	})
	t.Run("registration", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := newTerm(t)
			ctx, cancel := context.WithCancel(t.Context())
			go v.node.server.register(ctx, nil, &controllerpb.RegisterRequest{Registration: registration(3)}) // ends with commitAfter
			v.commitAfter(cancel)
			b, _ := v.images.image().Broker(3)
			if got := v.sessions.liveness(b.Incarnation, time.Second); got != beating {
				t.Errorf("liveness %d", got)
			}
		})
	})
}

// A partition that is reassigned anew while the leader waits to complete the
// reassignment before is not put back, and not forgotten.
func TestAReassignmentIsNotUndoneByTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTerm(t)
		k := partitionKey{v.topic, 0}
		<-v.gate                                                                          // another operation holds it
		v.apply(assignCommand(k, []metadata.BrokerID{1, 2}, []metadata.BrokerID{2}, nil)) // its owner is in the new list
		done := make(chan struct{})
		go func() { defer close(done); v.finishMoves() }()
		synctest.Wait() // at the gate
		v.apply(assignCommand(k, []metadata.BrokerID{1, 2}, []metadata.BrokerID{2}, []metadata.BrokerID{1}))
		v.gate <- struct{}{}
		<-done // it proposed nothing: there is no committer to take it
		if _, ok := v.moves.mu.reassigns[k]; !ok {
			t.Error("the new reassignment is forgotten")
		}
	})
}

// An election is moot once the partition shall be led by another broker.
func TestAnElectionGivesWayToAReassignment(t *testing.T) {
	v := newTerm(t)
	k := partitionKey{v.topic, 0}
	v.apply(assignCommand(k, []metadata.BrokerID{2, 1}, nil, nil))
	v.moves.elect(k, 2)
	b, _ := v.owner()
	if got := v.moves.of(v.images.image, b.Incarnation); len(got) != 1 {
		t.Errorf("before: the owner is asked for %v", got)
	}
	v.apply(assignCommand(k, []metadata.BrokerID{1, 2}, nil, nil))
	if got := v.moves.of(v.images.image, b.Incarnation); len(got) != 0 {
		t.Errorf("after: the owner is asked for %v", got)
	}
}
