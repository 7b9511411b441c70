package main

import (
	"time"

	"ponor/cmd/node/process"
	"ponor/controller"
	"ponor/partition"
	"ponor/sharedlog"
)

// tiny makes a node do within seconds what otherwise takes hours and many bytes:
// packing, merging, sweeping, retention, snapshots of the metadata and catching up
// by them. It is for tests, and its flag is hidden.
func tiny(cfg *process.Config) {
	cfg.TuneLogs = func(l *sharedlog.Config) {
		l.PackAge, l.MaintainEvery, l.SweepEvery = 5*time.Second, 3*time.Second, 3*time.Second
		l.PackBytes, l.ReadCacheBytes, l.ObjectBytes, l.MaxExtents, l.AdoptBytes = 256<<10, 1<<20, 1<<20, 4, 1<<10
	}
	cfg.TunePartitions = func(p *partition.SetConfig) { p.RetentionInterval = 4 * time.Second }
	cfg.TuneController = func(c *controller.Config) {
		c.SnapshotEntries, c.TrailingLogs, c.TailBytes, c.SnapshotInterval = 50, 20, 64<<10, time.Second
	}
}
