package broker

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/metrics"
)

// Epochs of a fetch session with a meaning of their own (KIP-227).
const (
	initialEpoch = 0  // a full fetch that wants a session
	finalEpoch   = -1 // a full fetch without one, or the end of one
)

// sessionIdle is how long a session must have been unused, or have existed, for
// another to take its place. It is Kafka's
// min.incremental.fetch.session.eviction.ms.
const sessionIdle = 2 * time.Minute

// session is one incremental fetch session (KIP-227): the partitions that a
// consumer reads and what it was told of them, so that each request and each
// response carry only what changed. The fields up to dead belong to the cache's
// lock; the rest belongs to the request that has the session checked out.
type session struct {
	id       int32
	epoch    int32 // the next request's
	used     time.Time
	created  time.Time
	size     int // partitions at the end of the last request
	busy     bool
	dead     bool        // no longer in the cache
	detached func() bool // stops watching the connection

	byID bool // topics are named by id: version 13 and newer
	set  *fetchSet
}

// sessionCache holds the sessions of all connections, at most slots of them. A
// session ends when its client ends it, when its connection does, or when it is
// evicted for another; the client then begins anew with a full fetch.
type sessionCache struct {
	slots   int
	evicted metrics.Counter

	mu struct {
		sync.Mutex
		byID map[int32]*session
	}
}

func newSessionCache(slots int) *sessionCache {
	c := &sessionCache{slots: slots}
	c.mu.byID = make(map[int32]*session)
	return c
}

// checkout takes a session for one request, moves its epoch on, and keeps other
// requests from it until checkin.
func (c *sessionCache) checkout(id, epoch int32, byID bool) (*session, *kerr.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.byID[id]
	switch {
	case s == nil:
		return nil, kerr.FetchSessionIDNotFound
	case s.busy || s.epoch != epoch:
		return nil, kerr.InvalidFetchSessionEpoch
	case s.byID != byID:
		return nil, kerr.FetchSessionTopicIDError
	}
	s.busy = true
	if s.epoch == math.MaxInt32 {
		s.epoch = 0 // epochs wrap to 1; 0 begins a session
	}
	s.epoch++
	return s, nil
}

// checkin gives a session back after a request. A session without partitions
// ends, as in Kafka.
func (c *sessionCache) checkin(s *session) {
	c.mu.Lock()
	s.busy, s.used, s.size = false, time.Now(), s.set.len()
	if s.size == 0 && !s.dead {
		c.removeLocked(s)
	}
	dead := s.dead
	c.mu.Unlock()
	if dead {
		s.set.close()
	}
}

// create makes a session for set, checked out, if the cache has or gets room.
// It ends with ctx, the connection's.
func (c *sessionCache) create(ctx context.Context, set *fetchSet, byID bool) *session {
	c.mu.Lock()
	victim, ok := c.makeRoomLocked(set.len())
	if !ok {
		c.mu.Unlock()
		return nil
	}
	now := time.Now()
	s := &session{epoch: 1, used: now, created: now, size: set.len(), busy: true, byID: byID, set: set}
	for s.id == 0 || c.mu.byID[s.id] != nil {
		s.id = rand.Int32()
	}
	c.mu.byID[s.id] = s
	s.detached = context.AfterFunc(ctx, func() { c.end(s.id) })
	c.mu.Unlock()
	if victim != nil {
		victim.set.close()
	}
	return s
}

// makeRoomLocked evicts a session if none is free: the least recently used one
// if that is idle, or else a smaller one that has had its time. A consumer of
// many partitions gains most from a session.
func (c *sessionCache) makeRoomLocked(size int) (victim *session, ok bool) {
	if len(c.mu.byID) < c.slots {
		return nil, true
	}
	now := time.Now()
	var smallest *session
	for _, s := range c.mu.byID {
		if s.busy {
			continue
		}
		if victim == nil || s.used.Before(victim.used) {
			victim = s
		}
		if now.Sub(s.created) > sessionIdle && (smallest == nil || s.size < smallest.size) {
			smallest = s
		}
	}
	switch {
	case victim != nil && now.Sub(victim.used) > sessionIdle:
	case smallest != nil && smallest.size < size:
		victim = smallest
	default:
		return nil, false
	}
	c.evicted.Inc()
	c.removeLocked(victim)
	return victim, true
}

// end removes a session by id; unknown ones are fine.
func (c *sessionCache) end(id int32) {
	c.mu.Lock()
	s := c.mu.byID[id]
	if s == nil {
		c.mu.Unlock()
		return
	}
	c.removeLocked(s)
	busy := s.busy
	c.mu.Unlock()
	if !busy {
		s.set.close()
	}
}

func (c *sessionCache) removeLocked(s *session) {
	delete(c.mu.byID, s.id)
	s.dead = true
	s.detached()
}

// update applies what an incremental request says about the partitions of the
// session: new and changed ones, then forgotten ones.
func (s *session) update(req *kmsg.FetchRequest) {
	s.set.add(req)
	s.set.forget(req.ForgottenTopics)
}
