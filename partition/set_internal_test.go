package partition

import (
	"testing"
	"time"
)

// A pass that took long, as any may on a busy machine, does not keep a Set from
// following the next image at once; many of them take a tenth of the time.
func TestASetRestsOnlyIfItsPassesTakeMuch(t *testing.T) {
	begun := time.Unix(0, 0)
	b := passBudget{left: passBurst, at: begun}
	now := begun
	for i := range 10 {
		if d := b.spend(now, now.Add(20*time.Millisecond)); d != 0 {
			t.Errorf("rests %v after pass %d of 20 ms, one every second", d, i)
		}
		now = now.Add(time.Second)
	}
	begun = now
	var worked time.Duration
	for range 1000 {
		const pass = 20 * time.Millisecond
		worked += pass
		now = now.Add(pass)
		now = now.Add(b.spend(now.Add(-pass), now))
	}
	if share := worked.Seconds() / now.Sub(begun).Seconds(); share > 0.11 {
		t.Errorf("passes take %.2f of the time where one follows the other", share)
	}
}
