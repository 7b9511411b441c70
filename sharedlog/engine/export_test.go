package engine

import (
	"context"
	"math"

	"ponor/commitlog"
)

// PackAndForget packs all that waits and forgets the stream's pieces, as if their
// memory were gone, unless somebody keeps the stream from changing at this
// moment; it says whether it did.
func (e *Engine) PackAndForget(ctx context.Context, id commitlog.StreamID) bool {
	s := e.state(id)
	if !s.mu.TryLock() {
		return false
	}
	s.mu.Unlock()
	select {
	case <-e.requestPack():
	case <-ctx.Done():
	}
	s.forget(math.MaxUint64)
	return true
}

// Pieces is how many pieces of a stream are not forgotten.
func (e *Engine) Pieces(id commitlog.StreamID) int {
	s := e.state(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pieces)
}
