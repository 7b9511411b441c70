package group_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator/group"
)

// beating is a heartbeat that may be held.
type beating struct {
	r    *rig
	held *group.Held
	resp *kmsg.HeartbeatResponse
	at   time.Time // of the answer
}

func (r *rig) hold(id string, generation int32) *beating {
	r.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, grp, id, generation
	b := &beating{r: r}
	held, records := r.m.HoldHeartbeat(r.now, req, func(resp *kmsg.HeartbeatResponse) {
		if b.resp != nil {
			r.t.Fatalf("Heartbeat of %q was answered twice", id)
		}
		b.resp, b.at = resp, r.now
	})
	r.wrote(records)
	if b.held = held; (held == nil) == (b.resp == nil) {
		r.t.Fatalf("Heartbeat of %q: held %t, answered %t", id, held != nil, b.resp != nil)
	}
	return b
}

// waits says that it is not answered.
func (b *beating) waits() {
	b.r.t.Helper()
	if b.resp != nil {
		b.r.t.Fatalf("Heartbeat is answered (%v)", kerr.ErrorForCode(b.resp.ErrorCode))
	}
}

// says checks the answer, which must be there.
func (b *beating) says(want *kerr.Error) {
	b.r.t.Helper()
	if b.resp == nil {
		b.r.t.Fatalf("Heartbeat is not answered, want %v", want)
	}
	code(b.r.t, "Heartbeat", b.resp.ErrorCode, want)
}

func (r *rig) release(b *beating, gone bool) {
	r.t.Helper()
	r.wrote(r.m.Release(b.held, gone))
}

const beat = 3 * time.Second

// beats has a member send heartbeats until its interval is known, each answered at once.
func (r *rig) beats(id string, generation int32) {
	r.t.Helper()
	r.hold(id, generation).says(nil)
	r.pass(beat)
}

// What begins a rebalance, or takes a member out, answers heartbeats that are held.
func TestHeldHeartbeatsHearOfARebalance(t *testing.T) {
	for name, begin := range map[string]func(r *rig, ids []string, generation int32) (others, own *kerr.Error){
		"a new member": func(r *rig, _ []string, _ int32) (others, own *kerr.Error) {
			r.joinNew()
			return kerr.RebalanceInProgress, kerr.RebalanceInProgress
		},
		"a member leaves": func(r *rig, ids []string, _ int32) (others, own *kerr.Error) {
			r.leave(nil, member(ids[0]))
			return kerr.RebalanceInProgress, kerr.UnknownMemberID
		},
		"the leader joins again": func(r *rig, ids []string, _ int32) (others, own *kerr.Error) {
			r.join(ids[0])
			return kerr.RebalanceInProgress, kerr.RebalanceInProgress
		},
		"a member by KIP-848": func(r *rig, _ []string, _ int32) (others, own *kerr.Error) {
			req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, grp, "new", 1000
			req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			resp, records := r.m.ConsumerGroupHeartbeat(r.now, group.Caller{}, req)
			r.wrote(records)
			code(r.t, "ConsumerGroupHeartbeat", resp.ErrorCode, nil)
			return kerr.RebalanceInProgress, kerr.RebalanceInProgress
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ids, generation := r.stable(3)
			for _, id := range ids {
				r.hold(id, generation).says(nil)
			}
			r.pass(beat)
			var held []*beating
			for _, id := range ids {
				held = append(held, r.hold(id, generation))
			}
			r.pass(time.Second)
			for _, b := range held {
				b.waits()
			}
			others, own := begin(r, ids, generation)
			held[0].says(own)
			held[1].says(others)
			held[2].says(others)
		})
	}
}

// A session ends when it would without holds: the heartbeat counts from its arrival. The
// others hear of the end at once.
func TestAHeldHeartbeatIsHeardWhenItArrives(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(2)
	for range 2 {
		r.hold(ids[1], generation)
		r.pass(beat)
	}
	silent := r.now.Add(-beat) // ids[1] is not heard after that; sessions take 10 s
	var last *beating
	for r.now.Before(silent.Add(10*time.Second - time.Millisecond)) {
		last = r.hold(ids[0], generation)
		r.pass(min(beat, silent.Add(10*time.Second-time.Millisecond).Sub(r.now)))
	}
	r.is("Stable", 2)
	last.waits()
	r.pass(time.Millisecond)
	r.is("PreparingRebalance", 1)
	last.says(kerr.RebalanceInProgress)
}

// Nothing is held before the interval is known; then it is held until shortly before the
// next is due, for at most half of what the session leaves, and five seconds.
func TestHowLongAHeartbeatIsHeld(t *testing.T) {
	for _, c := range []struct{ session, interval, atLeast, atMost time.Duration }{
		{45 * time.Second, 3 * time.Second, 2700 * time.Millisecond, 2900 * time.Millisecond},
		{45 * time.Second, 300 * time.Millisecond, 250 * time.Millisecond, 290 * time.Millisecond},
		{45 * time.Second, 15 * time.Second, 4900 * time.Millisecond, 5 * time.Second},
		{10 * time.Second, 3 * time.Second, 2700 * time.Millisecond, 2900 * time.Millisecond},
		{6 * time.Second, 3 * time.Second, 1450 * time.Millisecond, 1500 * time.Millisecond},
		{10 * time.Second, 9500 * time.Millisecond, 200 * time.Millisecond, 250 * time.Millisecond},
		{45 * time.Second, 40 * time.Millisecond, 0, 0},
	} {
		r := newRig(t)
		id, j := r.joinNew(func(q *kmsg.JoinGroupRequest) { q.SessionTimeoutMillis = int32(c.session.Milliseconds()) })
		r.pass(3 * time.Second)
		generation := j.ok().Generation
		r.sync(id, generation, id).gets("for " + id)
		r.hold(id, generation).says(nil)
		r.pass(c.interval)
		for range 3 {
			begun := r.now
			b := r.hold(id, generation)
			r.pass(c.interval)
			b.says(nil)
			if d := b.at.Sub(begun); d < c.atLeast || d > c.atMost {
				t.Errorf("session %v, interval %v: held for %v, want %v to %v", c.session, c.interval, d, c.atLeast, c.atMost)
			}
		}
	}
}

// One gap that is too long or too short is forgotten.
func TestTheIntervalOfHeartbeatsIsLearnt(t *testing.T) {
	r := newRig(t, func(c *group.Config) { c.InitialRebalanceDelay = time.Second })
	ids, generation := r.stable(1)
	held := func(next time.Duration) time.Duration {
		t.Helper()
		begun := r.now
		b := r.hold(ids[0], generation)
		r.pass(next)
		b.says(nil)
		return b.at.Sub(begun)
	}
	held(beat)
	held(2 * beat) // it missed one
	if d := held(beat); d > beat {
		t.Errorf("after a pause it is held for %v", d)
	}
	r.hold(ids[0], generation)
	r.pass(beat / 10) // it was late before
	for range 3 {
		held(beat)
	}
	if d := held(beat); d < beat*9/10 {
		t.Errorf("three heartbeats after one that came early it is held for %v", d)
	}
	// The gap over a rebalance is no interval: clients begin anew.
	b := r.hold(ids[0], generation)
	id, j := r.joinNew()
	b.says(kerr.RebalanceInProgress)
	own := r.join(ids[0])
	generation = own.ok().Generation
	r.sync(id, j.ok().Generation)
	r.sync(ids[0], generation, ids[0], id)
	r.pass(beat / 3)
	if d := held(beat); d < beat*9/10 {
		t.Errorf("a heartbeat soon after a rebalance is held for %v", d)
	}
}

// A heartbeat that is released is answered with what is so, and only once; if its
// connection ended, the member has none held any more: it may not wait that long.
func TestReleasedHeartbeats(t *testing.T) {
	r := newRig(t)
	ids, generation := r.stable(1)
	r.beats(ids[0], generation)
	b := r.hold(ids[0], generation)
	b.waits()
	r.release(b, false)
	b.says(nil)
	r.release(b, false) // does nothing
	r.pass(beat)
	b = r.hold(ids[0], generation)
	b.waits()
	other := r.hold(ids[0], generation) // over another connection
	b.says(nil)
	r.release(b, true) // which says nothing of the one that is held now
	other.waits()
	r.pass(beat)
	other.says(nil)
	r.release(other, true)
	for range 2 {
		b = r.hold(ids[0], generation)
		b.waits()
		r.pass(beat)
	}
	b = r.hold(ids[0], generation)
	r.release(b, true)
	for range 5 {
		r.pass(beat)
		r.hold(ids[0], generation).says(nil)
	}
}

// Clients that do not leave when they are closed would wait for the answer then, and of
// other kinds of groups nobody has looked. Neither is held, nor is what is no good news.
func TestHeartbeatsThatAreNotHeld(t *testing.T) {
	for name, edit := range map[string]func(*kmsg.JoinGroupRequest){
		"a static member": static("s"),
		"Kafka Streams":   protocols("stream"),
		"Kafka Connect":   func(q *kmsg.JoinGroupRequest) { q.ProtocolType = "connect" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			j := r.join("", edit)
			if j.resp != nil && j.resp.ErrorCode == kerr.MemberIDRequired.Code {
				j = r.join(j.resp.MemberID, edit)
			}
			r.pass(10 * time.Second)
			id, generation := j.ok().MemberID, j.ok().Generation
			r.syncWith(id, generation, func(*kmsg.SyncGroupRequest) {}).fails(nil)
			for range 4 {
				r.hold(id, generation).says(nil)
				r.pass(beat)
			}
		})
	}
	r := newRig(t)
	ids, generation := r.stable(2)
	for range 2 {
		r.hold(ids[0], generation)
		r.pass(beat)
	}
	r.hold(ids[0], generation-1).says(kerr.IllegalGeneration)
	r.hold("x", generation).says(kerr.UnknownMemberID)
	r.leave(nil, member(ids[1]))
	r.hold(ids[0], generation).says(kerr.RebalanceInProgress)
	own := r.join(ids[0])
	r.hold(ids[0], own.ok().Generation).says(nil) // not stable before the leader has assigned
	r.sync(ids[0], own.ok().Generation, ids[0]).gets("for " + ids[0])
	r.hold(ids[0], own.ok().Generation).waits()
}

// A thousand that are held end with few ticks.
func TestManyHeldHeartbeatsEndTogether(t *testing.T) {
	r := newRig(t)
	r.loose = true
	ids, generation := r.stable(1000)
	r.beatAll(ids, generation)
	held := 0
	for _, b := range r.beatAll(ids, generation) {
		if b.resp == nil {
			held++
		}
	}
	if held < 900 {
		t.Fatalf("%d of 1000 heartbeats are held", held)
	}
	ticks := 0
	for end := r.now.Add(beat); ; ticks++ {
		next := r.m.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		r.now = next
		r.m.Tick(r.now)
	}
	if ticks > 200 {
		t.Errorf("%d ticks for 1000 heartbeats over 3 s", ticks)
	}
}

// beatAll has members send a heartbeat each, spread over an interval.
func (r *rig) beatAll(ids []string, generation int32) []*beating {
	r.t.Helper()
	var all []*beating
	for _, id := range ids {
		all = append(all, r.hold(id, generation))
		r.pass(beat / time.Duration(len(ids)))
	}
	return all
}
