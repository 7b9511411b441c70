package jepsen

import (
	"slices"
	"testing"
)

// TestAlarmsAreErrorsThatNoFaultExplains proves that V9 sees what a node thinks must
// not be, and neither takeovers nor what Raft says of itself.
func TestAlarmsAreErrorsThatNoFaultExplains(t *testing.T) {
	got := alarming(`time=T level=INFO msg=starting version=dev
time=T level=WARN msg="store does not take writes" err=unavailable
time=T level=ERROR msg="WAL is fenced" broker=1-2 err="WAL of 1-2: log is fenced by 2-3 at slot 7"
time=T level=ERROR msg="incarnation is fenced" broker=1-2 err="log is fenced: the cluster has ended the registration of this broker"
time=T level=ERROR msg=raft event="peer has newer term, stopping replication"
time=T level=ERROR msg="WAL slot has foreign content" object=g/0/wal/7 err="damaged"
time=T level=ERROR msg="corrupt or missing data" stream=3`)
	want := []string{
		`time=T level=ERROR msg="WAL slot has foreign content" object=g/0/wal/7 err="damaged"`,
		`time=T level=ERROR msg="corrupt or missing data" stream=3`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("alarms are %q, want %q", got, want)
	}
}
