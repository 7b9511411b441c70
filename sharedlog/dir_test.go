package sharedlog_test

import (
	"testing"

	"ponor/commitlog/logtest"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/sharedlogtest"
)

// The contract over a directory store, fsync and all.
func TestContractDir(t *testing.T) {
	if testing.Short() {
		t.Skip("fsync is slow")
	}
	logtest.Run(t, func(tb testing.TB) logtest.World {
		b, err := dir.New(tb.TempDir(), dir.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return sharedlogtest.NewWorld(tb, b, nil)
	})
}
