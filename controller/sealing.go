package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// Sealer finds the end of a dead incarnation's WAL, puts the fence there and
// tells what the WAL holds (slot-3, cmd-5). It may be asked again for a WAL
// that it or another has sealed.
type Sealer interface {
	Seal(ctx context.Context, wal metadata.WAL) (*metadatapb.Sealed, error)
}

const (
	// maxSealing bounds the WALs sealed at once.
	maxSealing = 8
	// sealPause is the time before a failed sealing is tried again; it doubles.
	sealPause    = 100 * time.Millisecond
	sealPauseMax = 5 * time.Second
)

// SetSealer sets who seals the WALs that the leader assigns to this broker;
// until then they wait. A later call replaces it for what begins afterwards.
func (n *Node) SetSealer(s Sealer) {
	n.mu.Lock()
	n.mu.sealer = s
	n.mu.Unlock()
	n.sealers.notify()
}

// runSealing seals every WAL whose sealer is this process's incarnation, as
// soon as the image says so.
func (n *Node) runSealing(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxSealing)
	var mu sync.Mutex
	busy := map[metadata.Incarnation]bool{} // guarded by mu
	for {
		changed, set, member := n.Changed(), n.sealers.changed(), n.member.changed()
		for _, w := range n.assignedWALs() {
			mu.Lock()
			running := busy[w.Incarnation]
			busy[w.Incarnation] = true
			mu.Unlock()
			if running {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer n.sealers.notify() // look again: it may have been re-assigned
				defer func() { mu.Lock(); delete(busy, w.Incarnation); mu.Unlock() }()
				select {
				case slots <- struct{}{}:
					n.seal(ctx, w)
					<-slots
				case <-ctx.Done():
				}
			}()
		}
		select {
		case <-changed:
		case <-set:
		case <-member:
		case <-ctx.Done():
			return
		}
	}
}

// assignedWALs lists what is for this process to seal now.
func (n *Node) assignedWALs() []metadata.WAL {
	n.mu.Lock()
	sealer := n.mu.sealer
	n.mu.Unlock()
	inc := n.Incarnation()
	if sealer == nil || inc.IsZero() {
		return nil
	}
	var out []metadata.WAL
	for w := range n.Image().WALs() {
		if w.State == metadata.Fenced && w.Sealer == inc {
			out = append(out, w)
		}
	}
	return out
}

// seal works on one WAL until it is sealed or no longer ours. Each try starts
// from the newest image, which is at or after the Fence (cmd-4).
func (n *Node) seal(ctx context.Context, w metadata.WAL) {
	pause := sealPause
	for {
		now, ok := n.Image().WAL(w.Incarnation)
		if !ok || now.State != metadata.Fenced || now.Sealer != n.Incarnation() {
			return
		}
		n.mu.Lock()
		sealer := n.mu.sealer
		n.mu.Unlock()
		err := n.sealOnce(ctx, sealer, now)
		if err == nil || ctx.Err() != nil {
			return
		}
		if now, ok := n.Image().WAL(w.Incarnation); !ok || now.State != metadata.Fenced {
			return // another broker was faster
		}
		n.log.Warn("cannot seal the WAL of a dead broker yet, will try again", "broker", w.Incarnation.String(), "err", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, sealPauseMax)
		case <-ctx.Done():
			return
		}
	}
}

// sealWhileFenced ends the work once another broker has sealed the WAL: what
// hangs here would otherwise take one of the few places for good.
func (n *Node) sealWhileFenced(ctx context.Context, sealer Sealer, w metadata.WAL) (*metadatapb.Sealed, error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		for {
			changed := n.Changed()
			if now, ok := n.Image().WAL(w.Incarnation); !ok || now.State != metadata.Fenced {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return sealer.Seal(ctx, w)
}

func (n *Node) sealOnce(ctx context.Context, sealer Sealer, w metadata.WAL) error {
	sealed, err := n.sealWhileFenced(ctx, sealer, w)
	if err != nil {
		return err
	}
	r, err := n.SubmitOwn(ctx, &metadatapb.Command{
		From: w.Sealer.Proto(), // who wrote the recovery index
		Body: &metadatapb.Command_Sealed{Sealed: sealed},
	})
	if err != nil {
		return err
	}
	if r.Err != nil && !errors.Is(r.Err, metadata.ErrAlreadySealed) {
		return r.Err
	}
	n.log.Info("WAL sealed", "broker", w.Incarnation.String(), "slots", sealed.GetEnd())
	return nil
}
