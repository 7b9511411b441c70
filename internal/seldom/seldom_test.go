package seldom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ponor/internal/seldom"
)

func TestAPlaceIsHeardOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l seldom.Log
		heard := map[string]int{}
		for range 121 {
			for _, place := range []string{"pack", "sweep"} {
				if l.Allow(place) {
					heard[place]++
				}
			}
			time.Sleep(time.Second)
		}
		if heard["pack"] != 3 || heard["sweep"] != 3 {
			t.Errorf("heard in two minutes: %v, want 3 of each", heard)
		}
	})
}
