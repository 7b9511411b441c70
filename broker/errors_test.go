package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/commitlog"
	"ponor/controller"
	"ponor/metadata"
	"ponor/partition"
)

func TestCodesOfErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want *kerr.Error
	}{
		{partition.ErrUnknown, kerr.UnknownTopicOrPartition},
		{fmt.Errorf("open: %w: %w", partition.ErrNotLeader, partition.ErrOpening), kerr.NotLeaderForPartition},
		// A leader that was lost is told as such, whatever the medium said.
		{fmt.Errorf("read: %w: %w", partition.ErrNotLeader, commitlog.ErrFenced), kerr.NotLeaderForPartition},
		{&partition.RecordError{Kind: partition.ErrInvalidTimestamp, Message: "x"}, kerr.InvalidTimestamp},
		{fmt.Errorf("append: %w", commitlog.ErrUnavailable), kerr.KafkaStorageError},
		{fmt.Errorf("append: %w", commitlog.ErrBackpressure), kerr.NotEnoughReplicas},
		{fmt.Errorf("read: %w", commitlog.ErrCorrupt), kerr.CorruptMessage},
		{&metadata.Error{Code: metadata.ErrTopicExists}, kerr.TopicAlreadyExists},
		{&controller.Error{Code: controller.CodeInvalidConfig}, kerr.InvalidConfig},
		{&controller.Error{Code: controller.CodeInternal}, kerr.UnknownServerError},
		{fail(kerr.PolicyViolation, "x"), kerr.PolicyViolation},
		{kerr.UnknownTopicID, kerr.UnknownTopicID},
		{context.DeadlineExceeded, kerr.RequestTimedOut},
		{errors.New("what nobody foresaw"), kerr.UnknownServerError},
	} {
		if got := codeOf(tc.err); got != tc.want.Code {
			t.Errorf("%v: code %d, want %s", tc.err, got, tc.want.Message)
		}
	}
	if code, text := codeAndMessage(nil); code != 0 || text != nil {
		t.Errorf("no error has code %d and a message", code)
	}
	var none *controller.Error
	if refused(none) != nil {
		t.Error("no refusal became an error")
	}
}

// Every refusal of the controller has a code.
func TestRefusalsAreComplete(t *testing.T) {
	for code := controller.CodeNone + 1; code < controller.CodeInternal; code++ {
		if _, ok := refusals[code]; !ok {
			t.Errorf("controller code %d has no Kafka code", code)
		}
	}
}
