package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
)

// sessions is who the leader has heard of lately. It is volatile: a new leader
// starts with all timers full, but for that of the leader before it.
type sessions struct {
	mu struct {
		sync.Mutex
		byBroker map[metadata.BrokerID]*session
	}
}

// session is the leader's knowledge of one live incarnation.
type session struct {
	inc   metadata.Incarnation
	last  time.Time // of contact, or when the timer was restarted
	heard bool      // since the leader began
	ended time.Time // when the connection that carried its heartbeats ended
	conn  *rpc.Conn // which carries the heartbeats; nil if none or local
	local bool      // the broker is this process
	stats Stats
	index metadata.Index
}

func newSessions() *sessions {
	s := &sessions{}
	s.mu.byBroker = map[metadata.BrokerID]*session{}
	return s
}

// restart gives every live broker a full timer (seal-4).
func (s *sessions) restart(img *metadata.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for b := range img.Brokers() {
		if !b.Fenced {
			s.ensureLocked(b.Incarnation, now).last = now
		}
	}
}

// follows has the session of the broker that led before us run since we last
// heard of its process. One that hangs would otherwise be given a session after
// the election, which began with its silence. One that lives and only lost its
// office has a heartbeat interval to say so, and takes milliseconds.
func (s *sessions) follows(img *metadata.Image, before contact, cfg Config) {
	for b := range img.Brokers() {
		if b.Voter && !b.Fenced && b.ControllerAddress == before.address && b.ID != cfg.NodeID {
			s.follow(b.Incarnation, before.at, cfg)
		}
	}
}

func (s *sessions) follow(inc metadata.Incarnation, heard time.Time, cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := time.Now().Add(cfg.HeartbeatInterval - cfg.SessionTimeout)
	if heard.Before(least) {
		heard = least
	}
	s.ensureLocked(inc, time.Now()).last = heard
}

func (s *sessions) ensureLocked(inc metadata.Incarnation, now time.Time) *session {
	e := s.mu.byBroker[inc.Broker]
	if e == nil || e.inc != inc {
		e = &session{inc: inc, last: now}
		s.mu.byBroker[inc.Broker] = e
	}
	return e
}

// touch notes a heartbeat or registration. It reports whether conn is new to
// the session, and must be watched then. A nil conn is this process itself.
func (s *sessions) touch(inc metadata.Incarnation, conn *rpc.Conn, stats Stats, index metadata.Index) (watch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.ensureLocked(inc, now)
	if stats.Load == nil {
		stats.Load = e.stats.Load // no news of it
	}
	e.last, e.heard, e.stats, e.index, e.local = now, true, stats, index, conn == nil
	watch = conn != nil && e.conn != conn
	e.conn = conn
	return watch
}

// lost forgets a connection that ended. It reports whether it was the one in
// use.
func (s *sessions) lost(inc metadata.Incarnation, conn *rpc.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.byBroker[inc.Broker]
	if e == nil || e.inc != inc || e.conn != conn {
		return false
	}
	e.conn, e.ended = nil, time.Now()
	return true
}

// silence is how long there was no sign of life: a heartbeat or a connection.
func (s *sessions) silence(inc metadata.Incarnation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.byBroker[inc.Broker]
	if e == nil || e.inc != inc {
		return 0
	}
	if e.ended.After(e.last) {
		return time.Since(e.ended)
	}
	return time.Since(e.last)
}

// contactAfter says whether an incarnation was heard of after t.
func (s *sessions) contactAfter(inc metadata.Incarnation, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.byBroker[inc.Broker]
	return e != nil && e.inc == inc && e.heard && e.last.After(t)
}

// liveness of the process behind an incarnation, for cmd-6.
type liveness int

const (
	gone    liveness = iota // silent for the session timeout
	unsure                  // its connection ended, or this leader has not heard of it yet
	beating                 // it heartbeats
)

// liveness says whether another process heartbeats under an incarnation.
func (s *sessions) liveness(inc metadata.Incarnation, timeout time.Duration) liveness {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.byBroker[inc.Broker]
	switch {
	case e == nil || e.inc != inc || time.Since(e.last) > timeout:
		return gone
	case !e.heard, e.conn == nil && !e.local:
		return unsure
	}
	return beating
}

type expiry struct {
	inc    metadata.Incarnation
	reason string
}

// expired lists live incarnations that are to be fenced now: silent for the
// session timeout, or unable to write to the store while the others can.
func (s *sessions) expired(img *metadata.Image, now time.Time, cfg Config, cautious time.Time) []expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []expiry
	var stuck *session
	troubled, fine := 0, 0
	for b := range img.Brokers() {
		if b.Fenced {
			continue
		}
		e := s.ensureLocked(b.Incarnation, now)
		silent := now.Sub(e.last)
		switch {
		case silent > cfg.SessionTimeout && (e.heard || now.After(cautious)):
			out = append(out, expiry{e.inc, fmt.Sprintf("no heartbeat for %v", silent.Round(time.Millisecond))})
		case !e.heard:
		case e.stats.OldestUnresolved < cfg.StuckTimeout/3:
			fine++
		default:
			troubled++
			if e.stats.OldestUnresolved > cfg.StuckTimeout {
				stuck = e
			}
		}
	}
	// Only when it is alone: otherwise the store is in trouble, not the broker.
	if stuck != nil && troubled == 1 && fine > 0 {
		out = append(out, expiry{stuck.inc, fmt.Sprintf("its writes to the store hang for %v while other brokers' succeed",
			stuck.stats.OldestUnresolved.Round(time.Millisecond))})
	}
	return out
}

// nextEnd is how long until the first session ends if nothing is heard of its
// broker, HeartbeatInterval at most: what is silent is fenced then, not at some
// tick after.
func (s *sessions) nextEnd(img *metadata.Image, now time.Time, cfg Config) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := cfg.HeartbeatInterval
	for b := range img.Brokers() {
		if b.Fenced {
			continue
		}
		// One that has ended and is not fenced is tried again at ticks.
		if left := cfg.SessionTimeout - now.Sub(s.ensureLocked(b.Incarnation, now).last); left >= 0 {
			next = min(next, left+time.Nanosecond)
		}
	}
	return next
}

// list is a copy for status.
func (s *sessions) list() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]session, 0, len(s.mu.byBroker))
	for _, e := range s.mu.byBroker {
		out = append(out, *e)
	}
	return out
}

// loads is what the brokers reported, as far as they did.
func (s *sessions) loads() map[metadata.BrokerID]*partition.Loads {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[metadata.BrokerID]*partition.Loads, len(s.mu.byBroker))
	for id, e := range s.mu.byBroker {
		if e.stats.Load != nil {
			out[id] = e.stats.Load
		}
	}
	return out
}

const (
	// probeTimeout bounds a dial that asks whether a process is there.
	probeTimeout = time.Second
	// probePause is how long a broker whose listener refuses has to show that
	// it lives before it is asked a second time. A live one reconnects within
	// milliseconds.
	probePause = 200 * time.Millisecond
	// probeAgain is how soon one whose listener accepts is asked again, twice as
	// long each time up to probePause.
	probeAgain = 5 * time.Millisecond
)

// watch waits for the end of the connection that carries a broker's
// heartbeats.
func (l *leadership) watch(inc metadata.Incarnation, conn *rpc.Conn) {
	l.spawn(func() {
		select {
		case <-conn.Context().Done():
		case <-l.ctx.Done():
			return
		}
		if l.sessions.lost(inc, conn) {
			l.suspect(inc)
		}
	})
}

func (l *leadership) suspect(inc metadata.Incarnation) {
	select {
	case l.suspects <- suspect{inc: inc, since: time.Now()}:
	default: // the session timeout will do
	}
}

// dialAll asks every registered broker at once whether it is there: a new
// leader need not wait a session for those that died with the old one. After a
// restart of this very process it does not ask, since all may be starting.
func (l *leadership) dialAll() {
	if time.Now().Before(l.cautious) {
		return
	}
	for b := range l.images.image().Brokers() {
		if !b.Fenced && b.ID != l.cfg.NodeID {
			s := suspect{inc: b.Incarnation, since: time.Now()}
			l.spawn(func() { l.investigate(s) })
		}
	}
}

// investigate fences a broker if its process is certainly gone: its listener
// refuses and it has not been heard of. Everything less certain is left to the
// session timeout. A false alarm would be safe, but costs a takeover.
//
// A listener that accepts proves nothing. A process that is killed closes its
// sockets one after the other, the listener often after the connection that
// carried its heartbeats. So the broker is asked until it is heard of, or
// refuses, or its session ends.
func (l *leadership) investigate(s suspect) {
	for refusals, pause := 0, probeAgain; ; {
		b, ok := l.images.image().Broker(s.inc.Broker)
		if !ok || b.Incarnation != s.inc || b.Fenced {
			return
		}
		address, needed := probed(b)
		if address == "" {
			return
		}
		refused := l.refuses(address)
		if l.sessions.contactAfter(s.inc, s.since) || time.Since(s.since) > l.cfg.SessionTimeout {
			return
		}
		wait := pause
		if refused {
			if refusals++; refusals == needed {
				l.fence(s.inc, "its process is gone: connection closed and "+address+" refuses")
				return
			}
			wait = probePause
		}
		pause = min(2*pause, probePause)
		select {
		case <-time.After(wait):
		case <-l.ctx.Done():
			return
		}
	}
}

// probed is where to ask for a broker's process, and how many refusals are proof.
func probed(b metadata.Broker) (address string, refusals int) {
	switch {
	case b.Voter && b.ControllerAddress != "":
		// Raft itself uses this address, so it is known to be right.
		return b.ControllerAddress, 1
	case len(b.Endpoints) > 0:
		// Advertised to clients, perhaps wrongly: a live broker behind a wrong
		// address must get the time to reconnect.
		return clientAddress(b), 2
	}
	return "", 0
}

func (l *leadership) refuses(address string) bool {
	ctx, cancel := context.WithTimeout(l.ctx, probeTimeout)
	defer cancel()
	c, err := l.cfg.Dial(ctx, "tcp", address)
	if err == nil {
		c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
