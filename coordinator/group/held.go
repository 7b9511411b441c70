package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/coordinator"
)

// A member hears of a rebalance with the answer to a heartbeat, and sends one every few
// seconds. So that it hears at once, the answer to a heartbeat of a stable group is held
// until a rebalance begins, or until shortly before the next heartbeat is due. That is for
// clients that send the next one an interval after they sent the last, and do nothing else
// later because an answer is missing; the caller knows which do.
//
// The interval is not in the protocol. It is learnt for each member from its heartbeats,
// and none is held before it is known. What a client does if it has no answer in time is
// bounded thrice: a hold ends before the interval does, takes at most half of what the
// session has beyond the interval, for a client counts its session from answers, and never
// more than maxHold, for clients have request timeouts. A member whose connection ends in
// a hold, as one with a shorter request timeout would do, has none any more.
//
// A static member is not held: when it is closed it sends no LeaveGroup, and Java's waits
// for the answers it has not got.

const (
	// maxHold is the longest hold. Request timeouts are 30 s by default.
	maxHold = 5 * time.Second
	// minHold is the shortest that is worth it.
	minHold = 50 * time.Millisecond
	// holdMargin is the part of the interval before whose end a hold is over, and so the
	// share of time in which a member does not hear at once. It has room for the way to
	// the client: librdkafka skips a heartbeat that is due while one is not answered.
	holdMargin = 16
	// holdSlack is how much earlier a hold may end than was said, so that many end with one
	// Tick.
	holdSlack = 20 * time.Millisecond
	// holdNever is the name that the assignors of Kafka Streams have. Its clients do not
	// leave their group when they are closed, as static members.
	holdNever = "stream"
)

// pulse is how often a member sends heartbeats, and one that is held. A nil one is of a
// member with none held.
type pulse struct {
	last time.Time        // heartbeat of this generation while the group was stable; zero before
	gaps [3]time.Duration // between heartbeats, the newest first; 0 is not known
	off  bool             // a connection ended during a hold
	held *Held            // nil for none
}

// Held is a heartbeat whose answer is held.
type Held struct {
	pulse *pulse
	reply func(*kmsg.HeartbeatResponse)
	until time.Time
}

// beat notes a heartbeat.
func (p *pulse) beat(now time.Time) {
	if !p.last.IsZero() {
		p.gaps = [3]time.Duration{now.Sub(p.last), p.gaps[0], p.gaps[1]}
	}
	p.last = now
}

// interval is the shortest of the last gaps, 0 if it is not known. One that was too long,
// or too short, counts for three heartbeats at most.
func (p *pulse) interval() (shortest time.Duration) {
	for _, gap := range p.gaps {
		if gap > 0 && (shortest == 0 || gap < shortest) {
			shortest = gap
		}
	}
	return shortest
}

// hold is for how long a heartbeat may be held now.
func (p *pulse) hold(session time.Duration) time.Duration {
	interval := p.interval()
	if interval == 0 || p.off {
		return 0
	}
	return min(interval-interval/holdMargin, (session-interval)/2, maxHold)
}

// until is when the hold ends, zero for none.
func (p *pulse) until() time.Time {
	if p == nil || p.held == nil {
		return time.Time{}
	}
	return p.held.until
}

// end answers what was held for long enough.
func (p *pulse) end(now time.Time) {
	if at := p.until(); !at.IsZero() && !at.After(now.Add(holdSlack)) {
		p.finish(nil)
	}
}

// finish answers what is held.
func (p *pulse) finish(code *kerr.Error) {
	if p == nil || p.held == nil {
		return
	}
	reply := p.held.reply
	p.held = nil
	reply(heartbeatAnswer(code))
}

// interrupt tells the member of a rebalance. Its next heartbeat is not due an interval
// after the last: clients count anew.
func (p *pulse) interrupt() {
	if p != nil {
		p.finish(rebalanceInProgress)
		p.last = time.Time{}
	}
}

// HoldHeartbeat is Heartbeat, and may hold the answer. It replies at once if it returns no
// Held. What is held is answered when the group is not stable any more, when it has been
// held for long enough, or by Release.
func (m *Machine) HoldHeartbeat(now time.Time, req *kmsg.HeartbeatRequest, reply func(*kmsg.HeartbeatResponse)) (*Held, []coordinator.Record) {
	resp, records := m.Heartbeat(now, req)
	if resp.ErrorCode == 0 {
		if c := m.find(req.Group).classic(); c != nil {
			if h := c.hold(now, c.member(req.MemberID), reply); h != nil {
				return h, records
			}
		}
	}
	reply(resp)
	return nil, records
}

// hold holds the answer to a heartbeat if it may.
func (c *classicGroup) hold(now time.Time, m *member, reply func(*kmsg.HeartbeatResponse)) *Held {
	if c.st != stateStable || c.protoType != consumerProtocol || m.static() || c.protocol == nil || *c.protocol == holdNever {
		return nil
	}
	if m.pulse == nil {
		m.pulse = new(pulse)
	}
	p := m.pulse
	p.finish(nil) // by another connection: its client has given that up
	p.beat(now)
	d := p.hold(m.sessionTimeout)
	if d < minHold {
		return nil
	}
	p.held = &Held{pulse: p, reply: reply, until: now.Add(d)}
	c.m.wakeBy(c.g, p.held.until)
	return p.held
}

// Release answers what is held, if it still is. gone says that its connection ended.
func (m *Machine) Release(h *Held, gone bool) []coordinator.Record {
	if h.pulse.held == h { // else something has come of it
		h.pulse.off = h.pulse.off || gone
		h.pulse.finish(nil)
	}
	return m.take()
}

func heartbeatAnswer(code *kerr.Error) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = codeOf(code)
	return resp
}
