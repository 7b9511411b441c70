package sharedlog_test

import (
	"testing"
	"time"

	"ponor/commitlog/logtest"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/sharedlogtest"
)

func TestContract(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World { return sharedlogtest.NewWorld(tb, mem.New(), nil) })
}

// Packing after every slot, folding and merging at once: the same contract over
// segment and index objects.
func TestContractPacked(t *testing.T) {
	logtest.Run(t, func(tb testing.TB) logtest.World { return sharedlogtest.NewWorld(tb, mem.New(), eager) })
}

// eager does all background work as soon as it can, and caches nothing.
func eager(c *sharedlog.Config) {
	c.MaxSlots, c.PackBytes, c.PackAge = 2, 1, time.Millisecond
	c.MaxSlots = 1 << 20
	c.MaintainEvery, c.MaxExtents = time.Millisecond, 3
	c.CacheBytes = 1
}
