package process

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/partition"
)

// The leader wishes for moves with every heartbeat, also while the store is full.
func TestMovesThatFailAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		m := newMover(&Node{log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		failed := make([]partition.HandedOver, 2)
		for i := range failed {
			failed[i].Partition, failed[i].Err = int32(3+i), errors.New("store is full")
		}
		for range 121 {
			m.complain(nil)
			m.complain(failed)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "partitions=2 "); n != 3 || strings.Count(log.String(), "\n") != n {
			t.Errorf("in two minutes:\n%s", log.String())
		}
	})
}
