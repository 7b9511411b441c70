package coordinator

import (
	"errors"
	"testing"
	"time"

	"ponor/partition"
)

// inert is a machine that does nothing.
type inert struct{ Machine }

// A reply that a call gave to another one tells of records that the log has not
// got, if the call fails: nobody may be told, not even who has yet to wait.
func TestACallThatFailsGivesNoReplies(t *testing.T) {
	s := New(Config[inert]{New: func(int32) inert { return inert{} }})
	defer s.Close()
	sh := newShard(s, new(partition.Partition))
	p := &promise{done: make(chan struct{}), given: true}
	sh.mu.Lock()
	err := sh.step(func(inert, time.Time) []Record {
		sh.replies = append(sh.replies, p)
		return []Record{{Key: []byte("k"), Value: make([]byte, maxBatch)}}
	}, time.Now())
	sh.mu.Unlock()
	if !errors.Is(err, ErrTooLarge) || sh.why() == nil {
		t.Fatalf("step: %v, the shard was lost for %v", err, sh.why())
	}
	select {
	case <-p.done:
		t.Error("the reply was given")
	default:
	}
}
