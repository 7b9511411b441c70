package memlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog/logtest"
	"ponor/commitlog/memlog"
)

func TestContract(t *testing.T) {
	for name, cfg := range map[string]memlog.Config{
		"immediate":          {},
		"slow":               {Latency: 2 * time.Millisecond},
		"failed writes land": {LandFailed: true},
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Run(t, func(testing.TB) logtest.World { return memlog.New(cfg) })
		})
	}
}

// In a bubble a blocked mutex or a leaked goroutine would show.
func TestContractOnVirtualTime(t *testing.T) {
	for _, c := range logtest.Clauses() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, memlog.New(memlog.Config{Latency: 50 * time.Millisecond})) })
		})
	}
}
