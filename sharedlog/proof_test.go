package sharedlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ponor/commitlog"
	"ponor/sharedlog/objstore/fault"
)

// A slot of the WAL or a read barrier proves ownership; a broker that has
// neither has no proof, one that was fenced never has (ans-2).
func TestProof(t *testing.T) {
	f := newFixture(t)
	n := f.start(1, nil)
	l := f.open(n, f.topic(1, n)[0])
	now := time.Now()
	if n.ProvenSince(now) {
		t.Fatal("proven by nothing")
	}
	if err := n.Prove(f.ctx(), now); err != nil {
		t.Fatalf("prove by a barrier: %v", err)
	}
	n.Meta.Cut(true)
	now = time.Now()
	if err := n.Prove(f.ctx(), now); err != nil { // an empty slot
		t.Fatalf("prove without a quorum: %v", err)
	}
	now = time.Now()
	undo := f.b.Add(fault.Rule{Ops: []fault.Op{fault.PutNew}, Before: errors.New("no store either")})
	short, cancel := context.WithTimeout(f.ctx(), 20*time.Millisecond)
	defer cancel()
	if err := n.Prove(short, now); err == nil {
		t.Fatal("proven without quorum and without a write")
	}
	undo()
	f.fill(l, 1, 100)
	if !n.ProvenSince(now) {
		t.Fatal("a slot of our own proves nothing")
	}
	if n.ProvenSince(time.Now().Add(time.Second)) {
		t.Error("proven for the future")
	}
	m := f.start(2, nil)
	if err := f.c.Takeover(f.ctx(), n.Incarnation, m); err != nil {
		t.Fatal(err)
	}
	n.Meta.Cut(false)
	if err := n.Prove(f.ctx(), time.Now()); !errors.Is(err, commitlog.ErrFenced) {
		t.Errorf("prove after a fence: %v, want ErrFenced", err)
	}
	<-n.Fenced()
}
