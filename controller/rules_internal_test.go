package controller

import (
	"testing"
	"time"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// clusterImage is a cluster of one broker that lives, at index 2.
func clusterImage(t *testing.T) (img *metadata.Image, inc metadata.Incarnation) {
	t.Helper()
	img = metadata.Empty()
	for _, c := range []*metadatapb.Command{
		{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: "AAAAAAAAAAAAAAAAAAAAAA", Generation: 1}}},
		{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{Broker: 1, Nonce: make([]byte, metadata.NonceBytes)}}},
	} {
		next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(c))
		if results[0].Err != nil {
			t.Fatal(results[0].Err)
		}
		img, inc = next, results[0].Incarnation
	}
	return img, inc
}

// epoch-1: the image of a process never goes back.
func TestAnOlderSnapshotIsNotInstalled(t *testing.T) {
	old, _ := clusterImage(t)
	img, _ := metadata.Apply(old, old.Index()+1, metadata.NewEntry(&metadatapb.Command{Body: &metadatapb.Command_Noop{Noop: &metadatapb.Noop{}}}))
	s := newImages(1 << 20)
	for _, next := range []*metadata.Image{img, old} {
		if err := s.install(next); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.image().Index(); got != img.Index() {
		t.Errorf("the image went back from index %d to %d", img.Index(), got)
	}
}

// seal-4: a leader that begins, or was paused, heard nobody, which says nothing
// about them.
func TestNobodyIsJudgedByATimerOfBeforeARestart(t *testing.T) {
	img, inc := clusterImage(t)
	s := newSessions()
	s.touch(inc, nil, Stats{}, img.Index())
	s.mu.byBroker[inc.Broker].last = time.Now().Add(-time.Hour)
	cfg := Config{SessionTimeout: time.Second, StuckTimeout: time.Second}
	if list := s.expired(img, time.Now(), cfg, time.Time{}); len(list) != 1 {
		t.Fatalf("expired %v, want the silent broker", list)
	}
	s.restart(img)
	if list := s.expired(img, time.Now(), cfg, time.Time{}); len(list) != 0 {
		t.Errorf("expired %v right after a restart", list)
	}
}

// A log of another generation may hold other entries under one index and term
// (K12).
func TestServerOfAnotherGenerationIsNotJoinable(t *testing.T) {
	m := roster{generation: 2}
	for gen, want := range map[uint64]bool{0: true, 1: false, 2: true, 3: false} {
		if err := m.joinable(finding{node: 4, id: "4-x", generation: gen}); (err == nil) != want {
			t.Errorf("generation %d: %v", gen, err)
		}
	}
}

// A restored quorum begins with term 1 again, its directories count all the same.
func TestARestoredDirectoryIsNewerThanWhatItWasRestoredFrom(t *testing.T) {
	img, _ := clusterImage(t)
	next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(&metadatapb.Command{Body: &metadatapb.Command_ClaimGeneration{
		ClaimGeneration: &metadatapb.ClaimGeneration{Generation: 2}}}))
	if err := results[0].Rejected(); err != nil {
		t.Fatal(err)
	}
	old, restored := Stopped{Image: img, Term: 9, Index: 900}, Stopped{Image: next, Term: 1, Index: 3}
	if !restored.Newer(old) || old.Newer(restored) {
		t.Error("the directory from before the restore counts")
	}
}
