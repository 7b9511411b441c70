package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"ponor/jepsen/history"
)

// full is a history of n operations that have every field, and many records.
func full(n int) *history.History {
	rng := rand.New(rand.NewPCG(1, 2))
	h := &history.History{Header: history.Header{Version: history.FormatVersion, Run: "r", Keys: []history.Partition{{Topic: "t", Partition: 1}}, Settings: map[string]string{"rate": "5"}}}
	for i := range n {
		o := history.Op{
			Index: int64(i), Process: rng.Int32(), F: history.Send, Phase: history.Final, Invoked: rng.Int64(), Completed: rng.Int64(),
			Type: history.Info, Err: fmt.Sprintf("it is \"gone\" \u00e9 \n %d", i), Node: rng.Int32(), Attempts: -rng.Int32(), Seek: true,
			Spec: "latest", Group: "g", Member: fmt.Sprint("m", i%7), Gen: rng.Int32(), Producer: &history.Producer{ID: rng.Int64(), Epoch: 3},
			Topic:     &history.Topic{Name: "t", ID: "ff", Partitions: 2, Config: map[string]string{"a": "b"}, Exists: true},
			Rebalance: []history.Rebalance{{At: 5, Kind: "lost", Keys: []history.Key{1}, Gen: 2, Member: "m"}, {At: 6, Kind: "revoked"}},
		}
		for range 1 + rng.IntN(3) {
			o.Keys = append(o.Keys, history.Key(rng.Int32()))
			o.Sends = append(o.Sends, history.Sent{Key: history.Key(rng.Int32()), ID: rng.Int32(), Value: history.Value(rng.Int64()), Offset: -1})
			o.Polls = append(o.Polls, history.Polled{Key: 3, Value: history.Value(rng.Int64()), Offset: rng.Int64(), Damage: "key"})
			o.Offsets = append(o.Offsets, history.Offset{Key: 4, Offset: -1, Asked: rng.Int64(), Epoch: rng.Int32(), Err: "none"})
		}
		h.Ops = append(h.Ops, o)
		if i%100 == 0 {
			h.Events = append(h.Events, history.Event{At: int64(i), End: 4, Fault: "kill", Phase: "start", Target: []string{"n1"}, Proof: "p", Err: "e"})
			h.Samples = append(h.Samples, history.Sample{At: int64(i), Acked: 1, Failed: 2, Polled: 3, Unseen: 4, Up: 5})
		}
	}
	return h
}

func encode(t testing.TB, h *history.History) []byte {
	t.Helper()
	var b bytes.Buffer
	w := history.NewWriter(&b, h.Header)
	for i := range h.Ops {
		w.Op(&h.Ops[i])
		if i%100 == 0 {
			w.Event(&h.Events[i/100])
			w.Sample(&h.Samples[i/100])
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A history of many blocks is read back in its order, each field as it was
// written, and also from a reader that gives little at a time.
func TestReadAllFields(t *testing.T) {
	want := full(6_000)
	b := encode(t, want)
	if len(b) < 4<<20 {
		t.Fatalf("the history has only %d bytes", len(b))
	}
	for name, r := range map[string]io.Reader{"file": bytes.NewReader(b), "stream": io.MultiReader(bytes.NewReader(b)), "slow": iotest.HalfReader(bytes.NewReader(b))} {
		got, err := history.Read(r)
		if err != nil {
			t.Fatal(name, err)
		}
		if len(got.Ops) != len(want.Ops) {
			t.Fatalf("%s: %d of %d operations", name, len(got.Ops), len(want.Ops))
		}
		for i := range want.Ops {
			if !reflect.DeepEqual(got.Ops[i], want.Ops[i]) {
				t.Fatalf("%s: read %+v, want %+v", name, got.Ops[i], want.Ops[i])
			}
		}
		got.Ops, want.Ops = nil, got.Ops
		if saved := want.Ops; !reflect.DeepEqual(got.Header, want.Header) || !reflect.DeepEqual(got.Events, want.Events) || !reflect.DeepEqual(got.Samples, want.Samples) {
			t.Errorf("%s: the rest differs: %+v", name, got)
		} else {
			want.Ops = saved
		}
	}
}

// The names of all fields are those that are written.
func TestReadKnowsAllFields(t *testing.T) {
	h := full(1)
	for line := range bytes.Lines(encode(t, h)) {
		var fields map[string]map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		if op := fields["op"]; op != nil && len(op) != reflect.TypeFor[history.Op]().NumField() {
			t.Errorf("the test's operation has %d of %d fields", len(op), reflect.TypeFor[history.Op]().NumField())
		}
	}
	got, err := history.Read(bytes.NewReader(encode(t, h)))
	if err != nil || !reflect.DeepEqual(got.Ops, h.Ops) {
		t.Errorf("read %+v, %v; want %+v", got, err, h.Ops)
	}
}

// A file that was cut off anywhere gives the operations before, and an error but
// between two lines.
func TestReadCut(t *testing.T) {
	b := encode(t, full(1))
	first := bytes.IndexByte(b, '\n') + 1
	for n := range len(b) + 1 {
		h, err := history.Read(bytes.NewReader(b[:n]))
		whole := n == len(b) || n > 0 && (b[n-1] == '\n' || b[n] == '\n')
		if (err == nil) != whole {
			t.Errorf("%d bytes: %v", n, err)
		}
		if ops := bytes.Count(b[:n], []byte("\n")); n >= first && (h == nil || len(h.Ops) > ops) {
			t.Errorf("%d bytes give %+v", n, h)
		} else if n < first-1 && h != nil {
			t.Errorf("%d bytes give a history", n)
		}
	}
}

// What is in no place where it may be is told with its line.
func TestReadRefuses(t *testing.T) {
	head := `{"header":{"version":1}}` + "\n"
	op := func(i int) string { return fmt.Sprintf(`{"op":{"i":%d}}`, i) + "\n" }
	for name, c := range map[string]struct {
		text, want string
		ops        int
	}{
		"a second header":     {head + op(0) + head, "a second header", 1},
		"an operation twice":  {head + op(0) + op(0), "op 0 is the 1th", 1},
		"an operation behind": {head + op(1), "op 1 is the 0th", 0},
		"garbage":             {head + op(0) + "meteor\n" + op(1), "line 3: ", 1},
		"two on a line":       {head + op(0) + `{"op":{"i":1}}{"op":{"i":2}}` + "\n", "line 3: something follows", 1},
		"a brace too many":    {head + op(0) + `{"op":{"i":1}}}` + "\n", "line 3: something follows", 1},
		"a key too large":     {head + `{"op":{"i":0,"keys":[4294967296]}}` + "\n", "line 2: ", 0},
		"another version":     {`{"header":{"version":2}}` + "\n", "format 2", -1},
		"no header":           {op(0) + head, "no header", -1},
		"nothing":             {"", "empty", -1},
		"much text":           {strings.Repeat("text\n", 1<<20), "not a history", -1},
	} {
		h, err := history.Read(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if (h == nil) != (c.ops < 0) || h != nil && len(h.Ops) != c.ops {
			t.Errorf("%s: gives %+v", name, h)
		}
	}
}

// A reader that breaks is told, and what came before it is there.
func TestReadBroken(t *testing.T) {
	b := encode(t, full(6_000))
	h, err := history.Read(io.MultiReader(bytes.NewReader(b[:2<<20]), iotest.ErrReader(io.ErrClosedPipe)))
	if err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) || h == nil || len(h.Ops) == 0 {
		t.Errorf("%d operations, %v", len(h.Ops), err)
	}
}

func BenchmarkRead(b *testing.B) {
	text := encode(b, full(6_000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := history.Read(bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
