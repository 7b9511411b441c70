package metadata_test

import (
	"testing"

	"ponor/metadata"
)

// As in rules_command_test.go, each test is named for the rule it fails without.

func TestDel1TheNameIsFreeWhenEveryOwnerStopped(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("a.b", 1, a, b)
	w.ok(w.as(a, commit(0, run(s[0], 0, seg(a, 0, 0, 10, 0)))))
	w.ok(deleteTopic(1))
	w.no(metadata.ErrTopicDeleting, deleteTopic(1))
	w.no(metadata.ErrTopicDeleting, createTopic("a.b", 2, a))
	w.no(metadata.ErrTopicDeleting, createTopic("a_b", 2, a))
	w.no(metadata.ErrInvalid, topicsGone(1)) // nobody's word
	w.ok(w.as(a, topicsGone(1, 9)))
	w.no(metadata.ErrTopicDeleting, createTopic("a.b", 2, a))
	if tp, ok := w.img.Topic("a.b"); !ok || !tp.Deleting {
		t.Fatal("the topic went before its last owner had stopped")
	}
	w.no(metadata.ErrTopicDeleting, w.as(b, flip(s[1], 0, 0, a)))
	// A stream of a deleting topic still counts for its owner's trim.
	w.ok(w.as(b, commit(1, run(s[1], 0, slot(b, 0, 0, 5, 0)))))
	w.ok(w.as(b, topicsGone(1)))
	if _, ok := w.img.Topic("a.b"); ok {
		t.Fatal("the topic is still there")
	}
	if n := w.img.References(name(metadata.SegmentObject, a, 0)); n != 0 {
		t.Fatalf("%d references of a deleted topic", n)
	}
	// A late commit of a stream that is gone is skipped.
	if r := w.ok(w.as(b, commit(2, run(s[1], 0, slot(b, 1, 5, 6, 0))))); r.Skipped != 1 {
		t.Fatalf("%+v", r)
	}
	w.ok(createTopic("a_b", 2, a))
}

func TestDel1ADeadOwnerCountsOnceSealed(t *testing.T) {
	for _, fenceFirst := range []bool{true, false} {
		w := newWorld(t)
		a, b := w.register(1, 1), w.register(2, 2)
		s := w.topic("t", 1, a, b)
		if fenceFirst {
			w.ok(fence(a, b)) // owned by nobody alive
			w.ok(deleteTopic(1))
		} else {
			w.ok(deleteTopic(1))
			w.ok(fence(a, b, assign(1, 0, b))) // a deleted partition is named to nobody
		}
		w.ok(w.as(b, topicsGone(1)))
		w.want(s[0], "1-1@0 [0,0) unsealed[1-1]")
		w.no(metadata.ErrTopicDeleting, createTopic("t", 2, b)) // a may be cut off and still writing
		w.ok(w.as(b, sealed(a, 1, sealedStream(s[0], 0, 3, idx(b, 0, 0, 3)))))
		if _, ok := w.img.TopicByID(topicID(1)); ok {
			t.Fatal("the topic is still there")
		}
		if w.img.PartitionCount() != 0 {
			t.Fatal("streams are left behind")
		}
	}
}

func TestDel1OwnedByNobodyAliveAndSealed(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	w.topic("t", 1, a)
	w.ok(fence(a, b))
	w.ok(w.as(b, sealed(a, 0)))
	w.ok(deleteTopic(1))
	if _, ok := w.img.Topic("t"); ok {
		t.Fatal("nobody is left to wait for")
	}
}

func TestDel1AnIncomingOwnerAndItsPredecessorBothCount(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	s := w.topic("t", 1, a)
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(deleteTopic(1))
	w.ok(w.as(b, topicsGone(1)))
	w.want(s[0], "2-2@1 [0,0) unsealed[1-1]")
	w.ok(w.as(b, sealed(a, 0)))
	if _, ok := w.img.Topic("t"); ok {
		t.Fatal("the topic is still there")
	}
	// The other order, and the owner dies after it said so.
	s = w.topic("u", 2, b, b)
	c := w.register(3, 3)
	w.ok(w.as(b, flip(s[1], 0, 0, c)))
	w.ok(deleteTopic(2))
	w.ok(w.as(b, topicsGone(2)))
	w.ok(fence(b, c))
	w.want(s[0], "2-2@0 [0,0) unsealed[]") // it had closed it for good
	w.ok(w.as(c, topicsGone(2)))
	if _, ok := w.img.Topic("u"); ok {
		t.Fatal("the topic is still there")
	}
	// Its WAL may still hold records of the stream; they are nobody's.
	if r := w.ok(w.as(c, sealed(b, 2, sealedStream(s[0], 0, 3, idx(c, 0, 0, 3))))); r.Skipped != 1 {
		t.Fatalf("%+v", r)
	}
}
