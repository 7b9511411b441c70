package objstore

import (
	"context"
	"errors"
	"time"
)

// final says that an error is an answer: trying again gives the same.
func final(err error) bool {
	for _, e := range []error{ErrExists, ErrNotFound, ErrRefused, ErrUndurable, ErrUnfit, ErrOtherCluster} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// persist calls f until it succeeds, fails for good, or has been tried so often;
// between tries it waits 50 ms, then twice as long each time up to 3 s.
func persist(ctx context.Context, tries int, f func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 3*time.Second) {
		err := f()
		if tries--; err == nil || tries == 0 || final(err) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}
