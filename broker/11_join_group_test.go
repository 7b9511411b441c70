package broker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client that dies while it waits to join is not waited for, and gets no partitions.
func TestAConnectionThatEndsWhileItsMemberJoins(t *testing.T) {
	holdingCluster(t, func(t *testing.T, h *heldCluster) {
		stays := h.start("apache-kafka-java")
		stays.join()
		dies := h.start("apache-kafka-java")
		waits := make(chan error, 1)
		go func() {
			req := dies.joinRequest()
			req.Version = 9
			_, err := dies.Do(context.Background(), req)
			waits <- err
		}()
		synctest.Wait()
		beat := stays.beat()
		says(t, beat, kerr.RebalanceInProgress)
		if err := dies.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; err == nil {
			t.Fatal("it was answered on a connection that it closed")
		}
		time.Sleep(2 * time.Second) // what was read may still be answered for a second
		began := time.Now()
		resp := ask[*kmsg.JoinGroupResponse](stays.client, 9, stays.joinRequest())
		isCode(t, "join", resp.ErrorCode, nil)
		if took := time.Since(began); len(resp.Members) != 1 || took > 0 {
			t.Errorf("after %v it is in a generation of %d", took, len(resp.Members))
		}
	})
}
