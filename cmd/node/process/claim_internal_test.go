package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"ponor/sharedlog/objstore"
)

// TestANodeThatStartsWaitsForItsStore proves that a node asks a store again that did
// not answer, and goes by the first answer that decides.
func TestANodeThatStartsWaitsForItsStore(t *testing.T) {
	unavailable := errors.New("503 slow down")
	other := fmt.Errorf("look: %w", objstore.ErrOtherStore)
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"at once":                    {[]error{nil}, nil},
		"at the third time":          {[]error{unavailable, unavailable, nil}, nil},
		"another's, at once":         {[]error{other}, other},
		"another's, once it answers": {[]error{unavailable, other}, other},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				err := untilAnswered(t.Context(), slog.New(slog.DiscardHandler), func() error {
					asked++
					return c.answers[asked-1]
				})
				if !errors.Is(err, c.want) || asked != len(c.answers) {
					t.Errorf("got %v after %d questions, want %v after %d", err, asked, c.want, len(c.answers))
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := untilAnswered(ctx, slog.New(slog.DiscardHandler), func() error { return unavailable }); !errors.Is(err, unavailable) {
			t.Errorf("got %v when told to end, want %v", err, unavailable)
		}
	})
}
