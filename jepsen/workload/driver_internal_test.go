package workload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// envFake has the test's own binary be a driver; its value is how it behaves.
const envFake = "JEPSEN_FAKE_DRIVER"

func TestMain(m *testing.M) {
	if how, ok := os.LookupEnv(envFake); ok {
		fakeDriver(how)
		return
	}
	os.Exit(m.Run())
}

// fakeDriver is a client of a cluster that is its own memory: one log for each
// partition, and a group in which it is alone.
func fakeDriver(how string) {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	read := func() (q request) {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		if json.Unmarshal(line, &q) != nil {
			os.Exit(1)
		}
		return q
	}
	say := func(r any) { _ = out.Encode(r) }
	tell := func(event string, parts []driverPartition, gen int32) {
		say(reply{Event: event, Partitions: parts, Member: "m", Generation: gen})
		if q := read(); q.Do != "noted" {
			os.Exit(1)
		}
	}
	logs := map[history.Partition][]driverRecord{}
	var pos map[history.Partition]int64
	var topics []string
	for {
		q := read()
		if fail, ok := strings.CutPrefix(how, q.Do+" "); ok {
			switch fail {
			case "dies":
				os.Exit(3)
			case "hangs":
				time.Sleep(time.Hour) // not for ever: that would be a deadlock, and end it
			case "raves":
				fmt.Fprintln(os.Stdout, "Exception in thread main")
				continue
			case "gossips":
				say(reply{Event: "eclipse"})
				continue
			}
		}
		switch q.Do {
		case "open":
			say(reply{Client: "fake 1"})
		case "send":
			var r reply
			for _, rec := range q.Records {
				part := history.Partition{Topic: rec.Topic, Partition: rec.Partition}
				a := driverAnswer{}
				switch how {
				case "send refused":
					a.driverError = driverError{Name: "_QUEUE_FULL", Unsent: true}
				case "send too large":
					a.driverError = driverError{Name: "MESSAGE_TOO_LARGE"}
				case "send forgets":
					continue
				default:
					rec.Offset = int64(len(logs[part]))
					logs[part] = append(logs[part], rec)
					a.Offset = rec.Offset
				}
				r.Answers = append(r.Answers, a)
			}
			say(r)
		case "assign":
			pos = map[history.Partition]int64{}
			for _, p := range q.Partitions {
				pos[history.Partition{Topic: p.Topic, Partition: p.Partition}] = max(0, p.Offset)
			}
			say(reply{})
		case "subscribe":
			pos, topics = nil, q.Topics
			say(reply{})
		case "poll":
			r := reply{Member: "m", Generation: 7}
			if pos == nil {
				pos = map[history.Partition]int64{}
				var parts []driverPartition
				for _, topic := range topics {
					parts = append(parts, driverPartition{Topic: topic}, driverPartition{Topic: topic, Partition: 1})
					pos[history.Partition{Topic: topic}], pos[history.Partition{Topic: topic, Partition: 1}] = 0, 0
				}
				tell("assigned", parts, 7)
			}
			if how == "poll out of range" {
				r.Errors, r.Fatal = []driverError{{Name: "OFFSET_OUT_OF_RANGE"}}, true
			}
			for part, next := range pos {
				r.Records = append(r.Records, logs[part][min(int(next), len(logs[part])):]...)
				pos[part] = int64(len(logs[part]))
			}
			say(r)
		case "commit":
			var r reply
			for _, p := range q.Partitions {
				r.Answers = append(r.Answers, driverAnswer{driverPartition: p})
			}
			if how == "commit in a rebalance" {
				r = reply{Failed: &driverError{Name: "REBALANCE_IN_PROGRESS"}}
			}
			say(r)
		case "leave":
			if topics != nil {
				tell("revoked", []driverPartition{{Topic: topics[0]}, {Topic: topics[0], Partition: 1}}, 7)
			}
			topics = nil
			say(reply{})
		}
	}
}

// driven is a process whose client is a fake driver, and what is written down of it.
func driven(t *testing.T, how string) (*process, func() []history.Op) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &history.Header{Run: "r"}
	keysOf(h, 4)
	var file bytes.Buffer
	e := &Env{Header: h, History: history.NewWriter(&file, *h), Run: 9, Begun: time.Now()}
	e.Driver, e.DriverLog = fmt.Sprintf("%s='%s' '%s'", envFake, how, self), filepath.Join(t.TempDir(), "clients.log")
	e.Init()
	e.OpTimeout = time.Second
	p := e.newProcess(rand.New(rand.NewPCG(1, 1)), []string{"127.0.0.1:1"})
	t.Cleanup(func() { p.crash(); e.Close() })
	return p, func() []history.Op {
		if err := e.History.Flush(); err != nil {
			t.Fatal(err)
		}
		got, err := history.Read(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		return got.Ops
	}
}

// A driver sends, reads by assignment and as a member, commits and leaves, and the
// history has all of it.
func TestDriver(t *testing.T) {
	p, ops := driven(t, "")
	if got := p.send([]history.Key{0, 0, 1}); got != history.OK {
		t.Errorf("send: %s", got)
	}
	if err := p.assign([]history.Key{0, 1, 2}, true); err != nil {
		t.Fatal(err)
	}
	if op := p.poll(time.Millisecond, 10); len(op.Polls) != 3 || op.Type != history.OK {
		t.Errorf("polled %+v", op)
	}
	p.send([]history.Key{1})
	if err := p.assign([]history.Key{1}, false); err != nil {
		t.Fatal(err)
	}
	op := p.poll(time.Millisecond, 10)
	if len(op.Polls) != 1 || op.Polls[0].Offset != 1 || op.Polls[0].Value != 4 || op.Polls[0].Damage != "" {
		t.Errorf("polled %+v where it had been", op.Polls)
	}
	if err := p.subscribe(member{group: "g", topics: []string{p.env.Header.Keys[0].Topic}}, []history.Key{0, 1}); err != nil {
		t.Fatal(err)
	}
	op = p.poll(time.Millisecond, 10)
	if len(op.Polls) != 4 || op.Member != "m" || op.Gen != 7 || len(op.Rebalance) != 1 || op.Rebalance[0].Kind != "assigned" || !slices.Equal(op.Rebalance[0].Keys, []history.Key{0, 1}) {
		t.Errorf("the member polled %+v", op)
	}
	if got := p.commitPolled(op); got != history.OK {
		t.Errorf("commit: %s", got)
	}
	(&groups{}).leave(p.env, p)
	last := ops()
	if op := last[len(last)-1]; op.F != history.Leave || len(op.Rebalance) != 1 || op.Rebalance[0].Kind != "revoked" || op.Rebalance[0].Gen != 7 {
		t.Errorf("left: %+v", op)
	}
	if op := last[len(last)-2]; op.F != history.Commit || op.Type != history.OK || len(op.Offsets) != 2 || op.Offsets[0].Offset != 2 {
		t.Errorf("committed: %+v", op)
	}
}

// What a driver does wrong, or what happens to it, ends its process and nothing
// else, with an unknown effect. Only what it says was never sent has none.
func TestDriverOutcomes(t *testing.T) {
	for _, test := range []struct {
		how  string
		want history.Outcome
		err  error // that a later operation gives
	}{
		{"open dies", history.Info, errDead},
		{"open raves", history.Info, errDead},
		{"send dies", history.Info, errDead},
		{"send hangs", history.Info, errDead},
		{"send raves", history.Info, errDead},
		{"send gossips", history.Info, errDead},
		{"send forgets", history.Info, nil},
		{"send too large", history.Info, nil}, // it was perhaps repeated
		{"send refused", history.Fail, nil},
	} {
		t.Run(test.how, func(t *testing.T) {
			t.Parallel()
			p, ops := driven(t, test.how)
			if d := p.client.(*driver); strings.HasSuffix(test.how, "hangs") {
				d.patience = 100 * time.Millisecond
			}
			if got := p.send([]history.Key{0, 0}); got != test.want {
				t.Errorf("send: %s, want %s: %s", got, test.want, ops()[0].Err)
			}
			if err := p.assign([]history.Key{0}, true); !errors.Is(err, test.err) || err != nil && test.err == nil {
				t.Errorf("then assign: %v", err)
			} else if op := ops()[1]; (op.Type == history.Info) != (err != nil) {
				t.Errorf("then assign: %+v", op)
			}
		})
	}
}

// A consumer that cannot go on is closed, and so is one whose driver has died.
func TestDriverPolls(t *testing.T) {
	for how, dead := range map[string]bool{"poll out of range": false, "poll dies": true} {
		p, _ := driven(t, how)
		if err := p.assign([]history.Key{0}, true); err != nil {
			t.Fatal(err)
		}
		if op := p.poll(time.Millisecond, 10); op.Type != history.Fail || p.consuming {
			t.Errorf("%s: %+v, still consuming %v", how, op, p.consuming)
		}
		if err := p.assign([]history.Key{0}, true); errors.Is(err, errDead) != dead {
			t.Errorf("%s: then assign: %v", how, err)
		}
	}
}

// A commit that came in a rebalance has an unknown effect, and its member goes on.
func TestDriverCommitsInRebalance(t *testing.T) {
	p, ops := driven(t, "commit in a rebalance")
	p.send([]history.Key{0})
	if err := p.subscribe(member{group: "g", topics: []string{p.env.Header.Keys[0].Topic}}, []history.Key{0, 1}); err != nil {
		t.Fatal(err)
	}
	if got := p.commitPolled(p.poll(time.Millisecond, 10)); got != history.Fail {
		t.Errorf("commit: %s", got)
	}
	list := ops()
	if op := list[len(list)-1]; op.Type != history.Info || !strings.Contains(op.Err, kerr.RebalanceInProgress.Message) {
		t.Errorf("committed: %+v", op)
	}
}

// A driver is tried before it is used.
func TestTryDriver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := TryDriver(t.Context(), fmt.Sprintf("%s= '%s'", envFake, self), ""); err != nil || got != "fake 1" {
		t.Errorf("it is %q, %v", got, err)
	}
	log := filepath.Join(t.TempDir(), "log")
	if _, err := TryDriver(t.Context(), "echo no such library >&2; exit 1", log); !errors.Is(err, errDead) {
		t.Errorf("one that ends at once: %v", err)
	}
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "no such library") {
		t.Errorf("its log has %q, %v", b, err)
	}
}

// Whoever tries a driver that does not answer need not wait for it.
func TestTryDriverEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := filepath.Join(t.TempDir(), "log")
	done := make(chan error)
	go func() {
		_, err := TryDriver(ctx, "echo here >&2; exec sleep 3600", log)
		done <- err
	}()
	for b := []byte(nil); len(b) == 0; b, _ = os.ReadFile(log) {
		select {
		case err := <-done:
			t.Fatalf("it ended by itself: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// nowhere is a cluster that clients need not find.
type nowhere struct{ cluster.Cluster }

func (nowhere) Bootstrap() []string { return []string{"127.0.0.1:1"} }

// A program that takes long to start has done something before its life is over.
func TestQueueProcessesDoSomething(t *testing.T) {
	p, ops := driven(t, "")
	p.env.Cluster = nowhere{}
	q := &queue{} // its processes live no longer than they must
	q.mu.active, q.mu.writes = p.env.allKeys(), make([]int, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.thread(ctx, p.env, newPacer(1000), p.rng)
	}()
	for p.env.processes.Load() < 4 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	did := map[int32]int{}
	for _, op := range ops() {
		if op.F == history.Crash && op.Process < 4 && did[op.Process] == 0 {
			t.Errorf("process %d crashed before it did anything", op.Process)
		}
		did[op.Process]++
	}
}
