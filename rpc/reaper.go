package rpc

import (
	"errors"
	"time"
)

// Why the reaper closes a connection.
var (
	errIdle      = errors.New("idle too long")
	errHandshake = errors.New("no request after connecting")
	errReadStall = errors.New("peer stalled within a request")
	errWriteSlow = errors.New("peer does not read its replies")
)

// reap closes connections that overstayed one of the limits. One ticker for all
// connections instead of deadlines saves two timer operations per request; the
// price is that a limit is kept only to a quarter of the shortest one. It ends
// with the last connection, so that an idle server has no timer.
func (s *Server) reap() {
	tick := min(s.cfg.IdleTimeout, s.cfg.HandshakeTimeout, s.cfg.ReadStall, s.cfg.WriteStall) / 4
	t := time.NewTicker(max(tick, time.Millisecond))
	defer t.Stop()
	var conns []*Conn
	for {
		select {
		case <-t.C:
		case <-s.ended:
			return
		}
		s.mu.Lock()
		if len(s.open) == 0 {
			s.reaping = false
			s.mu.Unlock()
			s.workers.trim(true)
			return
		}
		conns = conns[:0]
		for c := range s.open {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		s.workers.trim(false)
		now := s.clock()
		for _, c := range conns {
			if err := c.overdue(now); err != nil {
				c.fail(err)
			}
		}
		clear(conns)
	}
}

// overdue says which limit c has overstayed at now.
func (c *Conn) overdue(now int64) error {
	cfg := &c.srv.cfg
	since := func(t int64, limit time.Duration) bool { return t != 0 && now-t > int64(limit) }
	idle := c.inflight.Load() == 0
	switch {
	case since(c.reading.Load(), cfg.ReadStall):
		return errReadStall
	case since(c.writing.Load(), cfg.WriteStall):
		return errWriteSlow
	case !c.greeted.Load() && since(c.opened, cfg.HandshakeTimeout):
		return errHandshake
	case idle && since(c.active.Load(), cfg.IdleTimeout):
		return errIdle
	}
	return nil
}
