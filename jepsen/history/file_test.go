package history_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"ponor/jepsen/history"
)

// What was written is read back; a file that was cut off gives what is whole,
// with an error.
func TestRoundTrip(t *testing.T) {
	want := history.History{
		Header: history.Header{Version: history.FormatVersion, Run: "r", Keys: []history.Partition{{Topic: "t", Partition: 1}}},
		Ops: []history.Op{
			{Index: 0, Process: 1, F: history.Send, Invoked: 1, Completed: 5, Type: history.OK, Sends: []history.Sent{{Key: 0, Value: 7, Offset: 3}}},
			{Index: 1, Process: 2, F: history.Poll, Invoked: 2, Completed: 6, Type: history.Info, Err: "gone"},
		},
		Events:  []history.Event{{At: 3, End: 4, Fault: "kill", Phase: "start", Target: []string{"n1"}, Proof: "pid 1 is gone"}},
		Samples: []history.Sample{{At: 5, Acked: 1}},
	}
	var b bytes.Buffer
	w := history.NewWriter(&b, want.Header)
	for i := range want.Ops {
		w.Op(&want.Ops[i])
	}
	w.Event(&want.Events[0])
	w.Sample(&want.Samples[0])
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := history.Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	cut, err := history.Read(bytes.NewReader(b.Bytes()[:b.Len()-4]))
	if err == nil || cut == nil || len(cut.Ops) != 2 {
		t.Errorf("a cut file gives %+v, %v", cut, err)
	}
	for _, other := range []string{"", "# text\n", "{}\n"} {
		if h, err := history.Read(strings.NewReader(other)); err == nil || h != nil {
			t.Errorf("%q is read as the history %+v, %v", other, h, err)
		}
	}
}
