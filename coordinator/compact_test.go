package coordinator_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/memlog"
	"ponor/coordinator"
)

func compactAt(bytes int64) func(*coordinator.Config[*machine]) {
	return func(c *coordinator.Config[*machine]) { c.CompactBytes = bytes }
}

// Rule 4: the log stays short, and nothing is lost, while calls go on.
func TestCompactionUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const least = 20_000
		r := newRig(t, memlog.Config{Latency: time.Millisecond}, compactAt(least))
		r.open()
		var wg sync.WaitGroup
		var mu sync.Mutex
		want := map[string]string{}
		most := int64(0)
		for w := range 4 {
			wg.Go(func() {
				for i := range 500 {
					key := fmt.Sprintf("k%d-%d", w, i%20)
					value := fmt.Sprint(i, strings.Repeat("x", 100))
					if i%20 == 7 && i > 250 {
						value = "" // a tombstone, that must not be lost with what it hides
					}
					if err := r.set(key, value); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					want[key] = value
					if value == "" {
						delete(want, key)
					}
					most = max(most, r.part.Bytes())
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if start := r.part.Start(); start == 0 {
			t.Error("the log was never cut")
		}
		// What is written while a cut is under way comes on top.
		if most > 3*least+4*20_000 {
			t.Errorf("the log had %d bytes", most)
		}
		for range 2 {
			if got := r.state(); !maps.Equal(got, want) {
				t.Fatalf("state is %v, want %v", got, want)
			}
			r.close()
			r.open()
		}
	})
}

// A log whose records are all live is not written again and again.
func TestALogThatIsLiveIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond}, compactAt(1000))
		r.open()
		for i := range 500 {
			if err := r.set(fmt.Sprint("k", i), strings.Repeat("x", 10)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if end := r.part.End(); end > 2*500 {
			t.Errorf("%d records were written for 500", end)
		}
	})
}

// A crash between the records that are written again and the cut harms nothing.
func TestACrashBeforeTheCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond}, compactAt(1000))
		r.open()
		want := map[string]string{}
		for i := range 100 {
			key, value := fmt.Sprint("k", i%5), fmt.Sprint(i)
			if err := r.set(key, value); err != nil {
				t.Fatal(err)
			}
			want[key] = value
			if i%3 == 0 {
				r.close()
				r.open()
				if got := r.state(); !maps.Equal(got, want) {
					t.Fatalf("state is %v, want %v", got, want)
				}
			}
		}
	})
}

// An empty machine leaves an empty log.
func TestCompactionOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, memlog.Config{Latency: time.Millisecond}, compactAt(1000))
		r.open()
		for range 100 {
			for _, v := range []string{"1", ""} {
				if err := r.set("k", v); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Second)
		if r.part.Bytes() > 2000 {
			t.Errorf("the log has %d bytes for nothing", r.part.Bytes())
		}
	})
}
