package group_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"ponor/coordinator/group"
)

// crowd are many clients that send heartbeats when they are told to, or at once after
// an assignment, as clients do to say that they have it.
type crowd struct {
	b     *bench
	waits []*waiting
	beats int
}

// waiting is a client and when it sends its next heartbeat.
type waiting struct {
	c  *subscriber
	at time.Time
}

// come has a client join after a while.
func (w *crowd) come(c *subscriber, after time.Duration) {
	w.waits = append(w.waits, &waiting{c, w.b.now.Add(after)})
}

// live has the clients send heartbeats for so long, or until done says true.
func (w *crowd) live(d time.Duration, done func() bool) {
	const roundTrip = 5 * time.Millisecond
	for end := w.b.now.Add(d); ; {
		next := w.waits[0]
		for _, x := range w.waits {
			if x.at.Before(next.at) {
				next = x
			}
		}
		if next.at.After(end) {
			w.b.pass(end.Sub(w.b.now))
			return
		}
		w.b.pass(next.at.Sub(w.b.now))
		w.beats++
		resp := next.c.beat()
		next.at = w.b.now.Add(time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond)
		if resp.Assignment != nil {
			next.at = w.b.now.Add(roundTrip)
		}
		if done != nil && done() {
			return
		}
	}
}

// restsFor makes every group a large one that keeps an assignment for so long.
func restsFor(d time.Duration) func(*group.Config) {
	return func(c *group.Config) { c.Consumer.SmallGroup, c.Consumer.AssignmentInterval = -1, d }
}

// written counts the records in the log whose key has a version, since one was the n-th.
func (b *bench) written(n int, version int16) (count int) {
	for _, r := range b.log[n:] {
		if int16(binary.BigEndian.Uint16(r.Key)) == version {
			count++
		}
	}
	return count
}

// epochs are the group's and the assignment's.
func (b *bench) epochs() [2]int32 {
	d := b.describe()
	return [2]int32{d.Epoch, d.AssignmentEpoch}
}

const keyTarget, keyTargetEpoch = 7, 6

// A thousand members come within two seconds; each has its share some heartbeats
// later, of few assignments.
func TestALargeGroupSettles(t *testing.T) {
	const members, each = 1000, 10
	b := newBench(t)
	b.topics.put("t", members*each)
	w := &crowd{b: b}
	begin := b.now
	for i := range members {
		w.come(b.subscriber(fmt.Sprintf("m%04d", i), "t"), time.Duration(i)*2*time.Millisecond)
	}
	settled := func() bool {
		return !slices.ContainsFunc(w.waits, func(x *waiting) bool { return len(x.c.owned) != each })
	}
	w.live(10*time.Second, settled)
	if took := b.now.Sub(begin); !settled() || took > 4*time.Second {
		t.Errorf("after %v and %d heartbeats all have their share: %v", took, w.beats, settled())
	}
	// 16 while the group is small, then one a second, and each target is written when
	// it changes only.
	if n := b.written(0, keyTargetEpoch); n > 20 {
		t.Errorf("%d assignments were made", n)
	}
	if n := b.written(0, keyTarget); n > 3*members {
		t.Errorf("%d targets were written", n)
	}
	if got := b.epochs(); got != [2]int32{members, members} {
		t.Errorf("epochs are %v, want one for each member", got)
	}
	b.sameAfterReplay()
}

// Who comes to a quiet group is assigned for at once; who comes within the rest has an
// epoch, and its share when the rest is over, with all others of that time.
func TestALargeGroupRestsBetweenAssignments(t *testing.T) {
	b := newBench(t)
	b.topics.put("t", 40)
	var all []*subscriber
	come := func(n int) []*subscriber {
		var came []*subscriber
		for range n {
			c := b.subscriber(fmt.Sprintf("m%02d", len(all)), "t")
			c.beat()
			came, all = append(came, c), append(all, c)
		}
		return came
	}
	come(16)
	if got := b.epochs(); got != [2]int32{16, 16} {
		t.Fatalf("epochs of a small group are %v, want an assignment for each member", got)
	}
	b.settle(all...)
	come(1)
	if got := b.epochs(); got != [2]int32{17, 17} {
		t.Fatalf("epochs after one came to a quiet group are %v, want an assignment at once", got)
	}
	b.settle(all...)
	come(1)
	b.pass(100 * time.Millisecond)
	n, asked := len(b.log), b.topics.asked
	late := come(2)
	if got := b.topics.asked - asked; got != 0 {
		t.Errorf("for members that read what others read topics were looked at %d times", got)
	}
	if got := b.epochs(); got != [2]int32{20, 18} || b.describe().State != "Assigning" {
		t.Fatalf("within the rest epochs are %v, state %s", got, b.describe().State)
	}
	if b.written(n, keyTarget)+b.written(n, keyTargetEpoch) != 0 {
		t.Errorf("within the rest targets were written")
	}
	for _, c := range late {
		if c.epoch != 18 || c.told == nil || len(c.told) != 0 {
			t.Errorf("C4: %s is told %v at epoch %d within the rest, want nothing at 18", c.id, c.told, c.epoch)
		}
	}
	n = len(b.log)
	for _, c := range []*subscriber{late[0], all[0]} {
		if resp := c.beat(); resp.HeartbeatIntervalMillis != 901 {
			t.Errorf("%s is told to come again in %d ms, want when the rest is over", c.id, resp.HeartbeatIntervalMillis)
		}
	}
	if got := b.written(n, 3) + b.written(n, 5); got != 0 {
		t.Errorf("heartbeats within the rest wrote %d epochs and subscriptions", got)
	}
	b.sameAfterReplay()
	b.pass(899 * time.Millisecond)
	late[0].beat()
	if got := b.epochs(); got != [2]int32{20, 18} {
		t.Errorf("epochs before the rest is over are %v", got)
	}
	b.pass(time.Millisecond)
	late[1].beat()
	if got := b.epochs(); got != [2]int32{20, 20} || late[1].epoch != 20 {
		t.Errorf("epochs after the rest are %v", got)
	}
	b.settle(all...)
	for _, c := range all {
		if len(c.owned) != 2 {
			t.Errorf("%s reads %d partitions in the end", c.id, len(c.owned))
		}
	}
	b.sameAfterReplay()
}

// Who takes over does not know how long the group has rested, and makes the assignment
// that is due. Who came within the rest, and has no target yet, is known.
func TestACoordinatorThatLoadsAssignsWhatIsDue(t *testing.T) {
	b := newBench(t, restsFor(15*time.Second))
	b.topics.put("t", 4)
	one, two := b.subscriber("one", "t"), b.subscriber("two", "t")
	one.beat()
	two.beat()
	if got := b.epochs(); got != [2]int32{2, 1} || two.epoch != 1 {
		t.Fatalf("within the rest epochs are %v, the new member is at %d", got, two.epoch)
	}
	b.failOver()
	if got := b.epochs(); got != [2]int32{2, 1} || b.describe().State != "Assigning" {
		t.Fatalf("who loaded has epochs %v, state %s", got, b.describe().State)
	}
	resp := two.beat()
	answers(t, resp, nil)
	if got := b.epochs(); got != [2]int32{2, 2} || two.epoch != 2 {
		t.Fatalf("after the first heartbeat at who loaded epochs are %v, the member is at %d", got, two.epoch)
	}
	b.failOver() // in the middle of the reconciliation
	for range 3 {
		one.beat()
		two.beat()
	}
	if len(one.owned) != 2 || len(two.owned) != 2 {
		t.Errorf("they read %v and %v", one.numbers("t"), two.numbers("t"))
	}
	b.sameAfterReplay()
	// Nobody knows when the assignment was made, so the next is made at once; then the
	// group rests again.
	b.subscriber("three", "t").beat()
	b.subscriber("four", "t").beat()
	if got := b.epochs(); got != [2]int32{4, 3} {
		t.Errorf("epochs are %v after two more came", got)
	}
}

// A member shall not have to read what it has unsubscribed from, however long its
// group rests.
func TestWhoUnsubscribesWaitsForNoRest(t *testing.T) {
	b := newBench(t, restsFor(15*time.Second))
	b.topics.put("foo", 2)
	b.topics.put("bar", 2)
	one := b.subscriber("one", "foo")
	one.beat()
	subscribe := func(topics ...string) {
		req := one.next()
		req.SubscribedTopicNames = topics
		one.take(b.beat(req))
	}
	subscribe("bar", "foo")
	if got := b.epochs(); got != [2]int32{2, 1} || len(one.owned) != 2 {
		t.Errorf("after it subscribed to more epochs are %v; want that to wait", got)
	}
	subscribe("bar")
	if got := b.epochs(); got != [2]int32{3, 3} || len(one.told) != 0 {
		t.Fatalf("after it unsubscribed epochs are %v, it shall read %v", got, one.told)
	}
	one.beat()
	if len(one.numbers("bar")) != 2 || len(one.owned) != 2 {
		t.Errorf("it reads %v", one.owned)
	}
}

// A classic member of a consumer group joins again when there is a target to join for,
// not before.
func TestAClassicMemberIsToldOfTargetsNotOfEpochs(t *testing.T) {
	b, one, two := stable(t, restsFor(15*time.Second))
	fresh := b.subscriber("fresh", "foo")
	fresh.beat()
	for range 4 {
		b.pass(time.Second)
		one.live()
		two.live()
		fresh.beat()
	}
	if len(fresh.owned) == 0 || b.describe().State != "Stable" {
		t.Fatalf("the group is %s, the new member reads %v", b.describe().State, fresh.owned)
	}
	before := b.epochs()
	late := b.subscriber("late", "foo")
	late.beat()
	generation := one.generation
	if err := one.heartbeat(); err != nil {
		t.Fatalf("within the rest a classic member is told %v", err)
	}
	one.join() // as it may at any time
	if resp := one.sync(); resp == nil || resp.ErrorCode != 0 {
		t.Fatalf("within the rest a classic member that joined again gets %+v", resp)
	}
	if got := b.epochs(); got != [2]int32{before[0] + 1, before[1]} || one.generation != generation {
		t.Fatalf("within the rest epochs went from %v to %v, a classic member from generation %d to %d", before, got, generation, one.generation)
	}
	for range 4 {
		b.pass(12 * time.Second)
		one.live()
		two.live()
		fresh.beat()
		late.beat()
	}
	if len(late.owned) != 1 || len(one.owned) != 1 || b.describe().State != "Stable" {
		t.Errorf("the group is %s, a classic member reads %v, the last one %v", b.describe().State, one.owned, late.owned)
	}
}

func TestTheRestIsConfigured(t *testing.T) {
	for _, c := range []struct {
		what    string
		configs map[string]string
		of      string // the group's own
		want    time.Duration
	}{
		{"default", nil, "", time.Second},
		{"all groups", map[string]string{"group.consumer.assignment.interval.ms": "3000"}, "", 3 * time.Second},
		{"not at all", map[string]string{"group.consumer.assignment.interval.ms": "0"}, "", 0},
		{"one group", nil, "2000", 2 * time.Second},
		{"one group not at all", nil, "0", 0},
		{"too long", nil, "60000", 15 * time.Second},
		{"bounds", map[string]string{"group.consumer.min.assignment.interval.ms": "4000", "group.consumer.max.assignment.interval.ms": "5000"}, "1", 4 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			cfg, err := group.ConfigFrom(func(name string) (string, bool) { v, ok := c.configs[name]; return v, ok })
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, func(to *group.Config) {
				to.Consumer = cfg.Consumer
				to.Consumer.SmallGroup = -1
				to.Consumer.Of = func(string) group.ConsumerSettings {
					return group.ConsumerSettingsFrom(func(name string) (string, bool) {
						return c.of, c.of != "" && name == "consumer.assignment.interval.ms"
					})
				}
			})
			b.topics.put("t", 2)
			answers(t, b.beat(firstBeat("one", "t")), nil)
			answers(t, b.beat(firstBeat("two", "t")), nil)
			if c.want > 0 {
				b.pass(c.want - time.Millisecond)
				answers(t, b.beat(request("one", 1)), nil)
				if got := b.epochs(); got[1] != 1 {
					t.Errorf("it rests less than %v", c.want)
				}
				b.pass(time.Millisecond)
				answers(t, b.beat(request("one", 1)), nil)
			}
			if got := b.epochs(); got[1] != 2 {
				t.Errorf("it rests longer than %v", c.want)
			}
		})
	}
}
