package sharedlog_test

import (
	"testing"

	"ponor/commitlog/logtest"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/objtest"
	"ponor/sharedlog/sharedlogtest"
)

// The contract over a directory store, fsync and all.
func TestContractDir(t *testing.T) {
	if testing.Short() {
		t.Skip("fsync is slow")
	}
	logtest.Run(t, func(tb testing.TB) logtest.World {
		return sharedlogtest.NewWorld(tb, objtest.Dir(tb, dir.Options{}), nil)
	})
}
