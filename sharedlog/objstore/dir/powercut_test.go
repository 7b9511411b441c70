package dir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ponor/internal/crashfs"
	"ponor/internal/powerloss"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
)

// history is what is known of objects through power cuts.
type history struct {
	written  map[string][]string // created once; by key every content tried
	answered map[string]string   // the content, "" if only known to exist
	// replaced again and again; by key what there may be, the last content that
	// was answered or found and those tried since. "" is none.
	may map[string][]string
}

// live puts objects until the machine stops, or some.
func (h *history) live(ctx context.Context, rng *rand.Rand, buckets []*dir.Bucket, puts int) {
	for i := range puts {
		if rng.IntN(4) == 0 {
			key := fmt.Sprintf("d%d/over/%d", rng.IntN(2), rng.IntN(2))
			content := fmt.Sprintf("%s by %d of %d", key, i, rng.Uint32())
			if h.may[key] == nil {
				h.may[key] = []string{""}
			}
			if err := buckets[0].Put(ctx, key, body(content)); err == nil {
				h.may[key] = nil
			}
			h.may[key] = append(h.may[key], content)
			continue
		}
		key := fmt.Sprintf("d%d/e%d/%d", rng.IntN(2), rng.IntN(2), rng.IntN(5))
		content := fmt.Sprintf("%s by %d of %d", key, i, rng.Uint32())
		h.written[key] = append(h.written[key], content)
		err := buckets[rng.IntN(len(buckets))].PutNew(ctx, key, body(content))
		switch {
		case err == nil:
			h.answered[key] = content
		case errors.Is(err, objstore.ErrExists):
			if _, ok := h.answered[key]; !ok {
				h.answered[key] = ""
			}
		}
	}
}

// check says what is lost, or half there.
func (h *history) check(t *testing.T, b objstore.Bucket) error {
	for key, may := range h.may {
		got, err := get(t, b, key)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
		if !slices.Contains(may, got) {
			return fmt.Errorf("%s is %q, want one of %q", key, got, may)
		}
		h.may[key] = []string{got}
	}
	for key, tried := range h.written {
		got, err := get(t, b, key)
		created, acked := h.answered[key]
		switch {
		case err != nil && acked:
			return fmt.Errorf("%s was answered and is gone: %w", key, err)
		case err != nil && !errors.Is(err, objstore.ErrNotFound):
			return err
		case err == nil && created != "" && got != created:
			return fmt.Errorf("%s is %q, created as %q", key, got, created)
		case err == nil && !slices.Contains(tried, got):
			return fmt.Errorf("%s is %q, nobody wrote that", key, got)
		}
	}
	return nil
}

// cutsOfSeed are the power cuts of one seed.
const cutsOfSeed = 3

// cutRandomly lets writers, which forget some syncs, lose power a few times.
func cutRandomly(t *testing.T, seed uint64, forget skip) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	f := crashfs.New()
	h := &history{map[string][]string{}, map[string]string{}, map[string][]string{}}
	for cut := range cutsOfSeed {
		var buckets []*dir.Bucket
		for _, owner := range []string{"a", "b", "c"} {
			p := f.Process(-1)
			p.Skip = forget
			buckets = append(buckets, open(t, p, owner))
		}
		f.StopAfter(1 + rng.IntN(120))
		h.live(t.Context(), rng, buckets, 12)
		f = f.Crash(maybe(rng))
		if err := h.check(t, open(t, f, "d")); err != nil {
			return fmt.Errorf("seed %d, power cut %d: %w", seed, cut+1, err)
		}
	}
	return nil
}

// The machine stops anywhere in a random history of writers; whatever was
// answered must be there afterwards, and nothing may be half there.
func TestB2RandomPowerCuts(t *testing.T) {
	first, n := powerloss.Seeds(1000)
	seeds := (n + cutsOfSeed - 1) / cutsOfSeed
	for seed := first; seed < first+uint64(seeds); seed++ {
		if err := cutRandomly(t, seed, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d power cuts under a directory bucket", seeds*cutsOfSeed)
}

func TestB2RandomPowerCutsNoticeForgottenSyncs(t *testing.T) {
	for what, forget := range map[string]skip{
		"files":                       func(op crashfs.Op, n string) bool { return op == crashfs.Sync && strings.HasPrefix(n, "/.tmp") },
		"directories of new objects":  func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && strings.Contains(n, "/e") },
		"directories of replaced":     func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && strings.HasSuffix(n, "/over") },
		"directories of directories":  func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && len(n) == len("/d0") },
		"the directory of the bucket": func(op crashfs.Op, n string) bool { return op == crashfs.SyncDir && n == "/" },
	} {
		caught := false
		for seed := uint64(1); seed < 200 && !caught; seed++ {
			caught = cutRandomly(t, seed, forget) != nil
		}
		if !caught {
			t.Errorf("200 seeds do not show that syncs of %s were forgotten", what)
		}
	}
}

func maybe(rng *rand.Rand) *rand.Rand {
	if rng.IntN(2) == 0 {
		return nil
	}
	return rng
}
