package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// What was sent is read back; whatever is changed is seen.
func TestValueShowsDamage(t *testing.T) {
	for _, filler := range []int{0, 1, 7, 8, 9, 100, 5000} {
		want := origin{run: 9, value: 77, key: 3, process: 12, counter: 5, at: time.UnixMilli(1234567)}
		fresh := func() *kgo.Record { return record(want, "t", 1, filler) }
		if got, damage := parse(9, 3, fresh()); damage != "" || got != want {
			t.Errorf("filler %d: read %+v, %q", filler, got, damage)
		}
		r := fresh()
		for i := range r.Value {
			r.Value[i] ^= 4
			if o, damage := parse(9, 3, r); damage == "" || o.value != 0 {
				t.Errorf("filler %d: byte %d was changed, and %+v is sound", filler, i, o)
			}
			r.Value[i] ^= 4
		}
		for what, damaged := range map[string]func(*kgo.Record){
			"key":       func(r *kgo.Record) { r.Key[7]++ },
			"header":    func(r *kgo.Record) { r.Headers = nil },
			"timestamp": func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) },
			"cut":       func(r *kgo.Record) { r.Value = r.Value[:len(r.Value)-1] },
			"empty":     func(r *kgo.Record) { r.Value = nil },
		} {
			r := fresh()
			damaged(r)
			if _, damage := parse(9, 3, r); damage == "" {
				t.Errorf("filler %d: %s was changed and is sound", filler, what)
			}
		}
		if o, damage := parse(9, 4, fresh()); damage == "" || o.value != 77 {
			t.Errorf("a record of another key: %+v, %q", o, damage)
		}
		if o, damage := parse(8, 3, fresh()); damage == "" || o.value != 0 {
			t.Errorf("a record of another run: %+v, %q", o, damage)
		}
	}
}

// No error is called a failure that may have happened.
func TestOutcomes(t *testing.T) {
	for _, test := range []struct {
		err      error
		repeated bool
		want     history.Outcome
	}{
		{nil, true, history.OK},
		{kerr.MessageTooLarge, false, history.Fail},
		{fmt.Errorf("send: %w", kerr.UnknownTopicOrPartition), false, history.Fail},
		{kerr.UnknownTopicOrPartition, true, history.Info}, // the attempt before may have landed
		{kerr.OutOfOrderSequenceNumber, false, history.Fail},
		{kerr.OutOfOrderSequenceNumber, true, history.Info},
		{kerr.NotLeaderForPartition, false, history.Info},
		{kerr.NotEnoughReplicas, false, history.Fail},
		{kerr.NotEnoughReplicasAfterAppend, false, history.Info},
		{kerr.UnknownServerError, false, history.Info},
		{kerr.NotCoordinator, false, history.Info},
		{kerr.CoordinatorLoadInProgress, false, history.Info},
		{kerr.RequestTimedOut, false, history.Info},
		{kerr.IllegalGeneration, false, history.Fail},
		{kgo.ErrRecordTimeout, false, history.Info},
		{kgo.ErrRecordRetries, false, history.Info},
		{context.DeadlineExceeded, false, history.Info},
		{io.EOF, false, history.Info},
		{errUnanswered, false, history.Info},
	} {
		if got := outcome(test.err, test.repeated); got != test.want {
			t.Errorf("%v, repeated %v: %s, want %s", test.err, test.repeated, got, test.want)
		}
	}
}

// An operation of several parts failed only if all of it did.
func TestVerdictOfParts(t *testing.T) {
	fail, info := kerr.MessageTooLarge, kerr.RequestTimedOut
	for _, test := range []struct {
		errs []error
		done int
		want history.Outcome
	}{
		{nil, 2, history.OK},
		{[]error{fail, fail}, 0, history.Fail},
		{[]error{fail}, 1, history.Info},
		{[]error{fail, info}, 0, history.Info},
	} {
		if got, _ := verdict(test.errs, test.done, false); got != test.want {
			t.Errorf("%v with %d done: %s, want %s", test.errs, test.done, got, test.want)
		}
	}
	for err, want := range map[error]bool{kerr.ProducerFenced: true, kerr.OutOfOrderSequenceNumber: true, kerr.MessageTooLarge: false} {
		if retires(history.Fail, err) != want {
			t.Errorf("%v retires a process: %v", err, !want)
		}
	}
}

// The ledger counts what was acknowledged and never polled, whichever comes first.
func TestLedger(t *testing.T) {
	l := newLedger()
	a, b, c := l.next(0), l.next(0), l.next(1)
	l.poll([]history.Polled{{Key: 0, Value: a, Offset: 4}}) // before its acknowledgement
	for i, v := range []history.Value{a, b} {
		l.ack(history.Sent{Key: 0, Value: v, Offset: int64(4 + i)})
	}
	l.ack(history.Sent{Key: 1, Value: c, Offset: 0})
	if acked, polled, unseen := l.count(); acked != 3 || polled != 1 || unseen != 2 {
		t.Errorf("%d acked, %d polled, %d unseen", acked, polled, unseen)
	}
	l.poll([]history.Polled{{Key: 0, Value: b, Offset: 5}, {Key: 0, Value: b, Offset: 5}, {Value: 0}, {Value: 99}})
	if _, _, unseen := l.count(); unseen != 1 || !slices.Equal(l.unseenKeys(), []history.Key{1}) || l.end(0) != 6 {
		t.Errorf("%d unseen in %v, key 0 ends at %d", unseen, l.unseenKeys(), l.end(0))
	}
}

// Operations begin at the rate, and what was missed is made up for, but not
// more than a second of it.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(100)
		begun := time.Now()
		for range 200 {
			p.wait(t.Context())
		}
		if took := time.Since(begun); took < 1900*time.Millisecond || took > 2*time.Second {
			t.Errorf("200 operations began within %v", took)
		}
		time.Sleep(time.Minute)
		begun = time.Now()
		n := 0
		for ; time.Since(begun) < time.Second; n++ {
			p.wait(t.Context())
		}
		if n < 195 || n > 205 {
			t.Errorf("%d operations began in the second after a minute's pause", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for p.wait(ctx) { // until one is not due yet
			t.Error("an operation began though the run had ended")
			break
		}
	})
}

// A stalled process sends and gets nothing and goes on when it is resumed; one
// that has crashed can do nothing more.
func TestWire(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	w := newWire()
	c, err := w.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	echo := func() error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	resume := w.stall()
	done := make(chan error, 1)
	go func() { done <- echo() }()
	select {
	case <-done:
		t.Error("something went through a stalled wire")
	case <-time.After(50 * time.Millisecond):
	}
	resume()
	if err := <-done; err != nil {
		t.Errorf("after the stall: %v", err)
	}
	w.crash()
	if echo() == nil {
		t.Error("something went through a cut wire")
	}
	if _, err := w.dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, errCut) {
		t.Errorf("a crashed process dials: %v", err)
	}
}

// A producer gets several records of a topic that it does not know only in
// batches of one.
func TestSendableKeepsBatchesWhole(t *testing.T) {
	h := &history.Header{Run: "r"}
	keysOf(h, 4)
	e := &Env{Header: h}
	p := e.newProcess(rand.New(rand.NewPCG(1, 1)), nil)
	p.known[h.Keys[2].Topic] = true
	if got := p.sendable([]history.Key{0, 2, 0, 2, 1, 0}); !slices.Equal(got, []history.Key{0, 2, 2, 1}) {
		t.Errorf("sends to %v", got)
	}
}

// Every workload plans its keys, and can be found; others say why not.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		got, err := Find(k.Name)
		if (k.New == nil) != (err != nil) || (k.New == nil) != (k.Why != "") {
			t.Errorf("%s: %v, %q", k.Name, err, k.Why)
		}
		if err != nil {
			continue
		}
		o, h := Options{Time: time.Minute}, history.Header{Run: "r", Nodes: 3}
		got.New().Plan(&o, &h)
		if o.Rate <= 0 || o.Concurrency <= 0 || len(h.Keys) == 0 || o.Keys > len(h.Keys) {
			t.Errorf("%s plans %+v with %d keys", k.Name, o, len(h.Keys))
		}
		seen := map[history.Partition]bool{}
		for _, p := range h.Keys {
			if seen[p] {
				t.Errorf("%s: %v is two keys", k.Name, p)
			}
			seen[p] = true
		}
	}
	if _, err := Find("meteor"); err == nil {
		t.Error("an unknown workload was found")
	}
}

// Headers of batches are read as they lie in a log; what is cut off is left out.
func TestParseBatches(t *testing.T) {
	batch := func(base int64, records int32, producer int64, seq int32) []byte {
		b := kmsg.RecordBatch{
			FirstOffset: base, Length: 49, PartitionLeaderEpoch: 6, Magic: 2, LastOffsetDelta: records - 1, Attributes: 1 << 4,
			ProducerID: producer, ProducerEpoch: 3, FirstSequence: seq, NumRecords: records,
		}
		return b.AppendTo(nil)
	}
	log := append(batch(10, 3, 99, 7), batch(13, 1, -1, -1)...)
	want := []check.Batch{
		{Base: 10, Last: 12, Epoch: 6, Producer: 99, PEpoch: 3, Sequence: 7, Txn: true},
		{Base: 13, Last: 13, Epoch: 6, Producer: -1, PEpoch: 3, Sequence: -1, Txn: true},
	}
	if got := parseBatches(log); !slices.Equal(got, want) {
		t.Errorf("read %+v", got)
	}
	for n := range log {
		if got := parseBatches(log[:n]); !slices.Equal(got, want[:len(got)]) || len(got) > 1 || len(got) == 1 && n < 61 {
			t.Errorf("of %d bytes read %+v", n, got)
		}
	}
}

// TestCountsThatFailedMayBeMissing proves that a reader of counted records may miss
// those whose time was over before they were sent, though later ones are there, and
// none that was acknowledged.
func TestCountsThatFailedMayBeMissing(t *testing.T) {
	for name, c := range map[string]struct {
		acked, seen []span
		found       int
	}{
		"all are there":                        {[]span{{1, 9}}, []span{{1, 9}}, 0},
		"some failed in the middle":            {[]span{{1, 4}, {7, 9}}, []span{{1, 4}, {7, 9}}, 0},
		"they are there even so":               {[]span{{1, 4}, {7, 9}}, []span{{1, 9}}, 0},
		"one in the middle is lost":            {[]span{{1, 5}, {7, 9}}, []span{{1, 4}, {7, 9}}, 1},
		"the first is lost":                    {[]span{{1, 9}}, []span{{2, 9}}, 1},
		"acknowledged after what was given up": {[]span{{1, 4}, {7, 9}, {5, 5}}, []span{{1, 4}, {7, 9}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			mine := &counting{}
			w := &counted{}
			w.mu.producers = map[int32]*counting{3: mine}
			for _, s := range c.acked {
				for n := s.from; n <= s.to; n++ {
					mine.ack(n)
				}
			}
			for _, s := range c.seen {
				for n := s.from; n <= s.to; n++ {
					mine.see(n, int64(n))
				}
			}
			w.gaps(&Env{Header: &history.Header{Keys: []history.Partition{{Topic: "t"}}}})
			if w.mu.found != c.found {
				t.Errorf("%d anomalies, want %d: %v", w.mu.found, c.found, w.mu.anomalies)
			}
			if n := mine.lost(span{10, 20}); n != 0 {
				t.Errorf("%d records behind the last are lost, want none", n)
			}
		})
	}
}

// Of members to which brokers assign one dies in two sessions, where these take long.
func TestDeadMembersOfLongSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := groupKind{name: "consumer", assignor: assignServer}
		w, theirs, ours := &groups{}, &Env{}, &Env{Options: Options{Exclusive: true}}
		if !w.mayDie(theirs, server) || w.mayDie(theirs, server) {
			t.Error("the first may die, and no other")
		}
		if !w.mayDie(theirs, groupKind{assignor: assignRange}) || !w.mayDie(ours, server) {
			t.Error("those whose session is short may die")
		}
		time.Sleep(10 * time.Second)
		w.died(server) // it stalled until now
		time.Sleep(2*serverSession - time.Second)
		if w.mayDie(theirs, server) {
			t.Error("the partitions of the first went to others a while ago, and the next may die")
		}
		time.Sleep(time.Second)
		if !w.mayDie(theirs, server) {
			t.Error("the first is forgotten, and no other may die")
		}
	})
}

// A group whose fresh members do not come to the end makes a run invalid.
func TestGroupsThatDoNotComeToTheEnd(t *testing.T) {
	env := &Env{Header: &history.Header{Keys: []history.Partition{{Topic: "t"}, {Topic: "t", Partition: 1}}}, Begun: time.Now()}
	ends := map[history.Key]int64{0: 10, 1: 20}
	w := &groups{}
	if r := w.Results()[0]; r.Verdict != check.Unknown {
		t.Errorf("nobody looked: %+v", r)
	}
	w.caughtUp(env, groupKinds()[0], ends, nil)
	if r := w.Results()[0]; r.Verdict != check.Valid || r.Checked != 2 {
		t.Errorf("all are at the end: %+v", r)
	}
	w.caughtUp(env, groupKinds()[1], ends, map[history.Key]int64{0: noOffset, 1: 19})
	r := w.Results()[0]
	if r.Verdict != check.Invalid || r.Count != 2 || r.Checked != 4 || r.Worst[1].Key != 1 || !strings.Contains(r.Worst[1].Text, "t-1, which ends at 20, offset 19 is committed") {
		t.Errorf("one group is behind: %+v", r)
	}
}
