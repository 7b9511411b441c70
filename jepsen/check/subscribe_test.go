package check_test

import (
	"testing"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// A process that was assigned a key and then subscribes to its topic begins
// where its group is, not at the start of the log.
func TestSubscriptionBeginsWhereTheGroupIs(t *testing.T) {
	h := &history.History{
		Header: history.Header{Keys: []history.Partition{{Topic: "t"}}, Idempotent: true, Group: true, Floor: 1},
		Ops: []history.Op{
			{Process: 1, F: history.Send, Invoked: 1, Completed: 2, Type: history.OK, Sends: []history.Sent{{Value: 1}, {Value: 2, Offset: 1}}},
			{Process: 2, F: history.Assign, Keys: []history.Key{0}, Invoked: 3, Completed: 4, Type: history.OK},
			{Process: 2, F: history.Poll, Polls: []history.Polled{{Value: 1}}, Invoked: 5, Completed: 6, Type: history.OK},
			{Process: 3, F: history.Assign, Keys: []history.Key{0}, Invoked: 7, Completed: 8, Type: history.OK},
			{Process: 3, F: history.Subscribe, Group: "g", Keys: []history.Key{0}, Invoked: 9, Completed: 10, Type: history.OK},
			{Process: 3, F: history.Poll, Group: "g", Polls: []history.Polled{{Value: 2, Offset: 1}}, Invoked: 11, Completed: 12, Type: history.OK},
		},
	}
	for i := range h.Ops {
		h.Ops[i].Index = int64(i)
	}
	for _, r := range check.All(h, nil).Results {
		if r.ID == "L20" && r.Count > 0 {
			t.Errorf("%s: %+v", r.Name, r.Worst)
		}
	}
}
