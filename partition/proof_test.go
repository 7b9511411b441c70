package partition_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/metadata"
	"ponor/partition"
)

// TestOneBarrierServesAllWhoWait: and never one that began before they came.
func TestOneBarrierServesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, running := 0, 0
		p := partition.NewBarrierProof(func(context.Context) (*metadata.Image, error) {
			begun++
			if running++; running > 1 {
				t.Error("two barriers in flight")
			}
			time.Sleep(10 * time.Millisecond)
			running--
			return nil, nil
		})
		if p.ProvenSince(time.Time{}) {
			t.Error("proven before anything happened")
		}
		var wg sync.WaitGroup
		for range 100 { // arrive while the first runs: the second serves them all
			wg.Go(func() {
				arrived := time.Now()
				if err := p.Prove(t.Context(), arrived); err != nil || !p.ProvenSince(arrived) {
					t.Errorf("%v, proven %v", err, p.ProvenSince(arrived))
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Millisecond)
		for range 100 {
			wg.Go(func() {
				if err := p.Prove(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		late := time.Now()
		if err := p.Prove(t.Context(), late); err != nil || !p.ProvenSince(late) {
			t.Errorf("a late one: %v", err)
		}
		wg.Wait()
		if begun != 3 {
			t.Errorf("%d barriers, want 3", begun)
		}
	})
}

func TestNoQuorumIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no quorum")
		p := partition.NewBarrierProof(func(ctx context.Context) (*metadata.Image, error) {
			<-ctx.Done()
			return nil, failure
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := p.Prove(ctx, time.Now()); err == nil || p.ProvenSince(time.Time{}) {
					t.Error("proven without a quorum")
				}
			})
		}
		wg.Wait()
	})
}

// TestAFetchOfManyPartitionsWaitsOnceForALostQuorum: and tries again later.
func TestAFetchOfManyPartitionsWaitsOnceForALostQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := true
		proof := partition.NewBarrierProof(func(ctx context.Context) (*metadata.Image, error) {
			if lost {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		})
		r := &rig{t: t, store: memlog.New(memlog.Config{}), set: defaults(), host: &partition.Host{Proof: proof}}
		r.open()
		begun := time.Now()
		for range 1000 {
			if _, err := r.p.Read(t.Context(), 0, partition.ReadOptions{}); !errors.Is(err, partition.ErrNotLeader) {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("refused after %v, want 2 s", took)
		}
		lost = false
		time.Sleep(500 * time.Millisecond)
		if got := r.read(0, partition.ReadUncommitted); got != "" {
			t.Error(got)
		}
	})
}
