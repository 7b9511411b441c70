package broker

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
	"ponor/partition"
)

// partKey names a partition the way the client did: by topic name up to version
// 12, by topic id from version 13.
type partKey struct {
	name   string
	id     metadata.TopicID
	number int32
}

// fetchPart is one partition that a consumer fetches.
type fetchPart struct {
	key partKey

	// What the client asked for.
	offset       int64
	maxBytes     int32
	leaderEpoch  int32 // -1 unknown
	fetchedEpoch int32 // -1 unknown

	// sentHigh and sentStart are what the client was last told; -1 before, and
	// after an error, so that recovery is always told.
	sentHigh, sentStart int64

	watched *partition.Partition // where the set's waiter is registered for it
	queued  bool                 // in fetchSet.ready
	missing bool                 // unknown topic or partition at the last look
	gone    bool                 // forgotten by the client
}

// fetchSet is what one consumer fetches. It lives for one request or, in a
// session, for many, and belongs to one request at a time.
//
// ready holds the partitions worth looking at, in the order of their turns: new
// or changed by the client, in error, with more data than was returned, or
// woken by their partition. All others have been found at their end and are
// watched, so an incremental fetch over ten thousand partitions costs what the
// ready ones cost.
type fetchSet struct {
	index   map[partKey]*fetchPart
	ready   []*fetchPart
	waiter  *partition.Waiter // nil: nothing is watched
	watched map[*partition.Partition]*fetchPart
	woken   []*partition.Partition
	swept   time.Time // when everything was last queued
}

// sweepAge is how long a partition of a session may go without being looked at.
// It must be: a broker that the cluster has given up hears no news, and only a
// look proves that it still owns the partition.
const sweepAge = 5 * time.Second

// len is the number of partitions.
func (s *fetchSet) len() int { return len(s.index) }

// reset empties a set that was closed and keeps its memory.
func (s *fetchSet) reset() {
	clear(s.index)
	clear(s.ready)
	*s = fetchSet{index: s.index, ready: s.ready[:0], woken: s.woken}
}

// add puts the partitions of a request into the set, or changes those it has.
func (s *fetchSet) add(req *kmsg.FetchRequest) {
	if s.index == nil {
		s.index = make(map[partKey]*fetchPart)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		// One allocation for all of a topic that are new.
		fresh := make([]fetchPart, len(t.Partitions))
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			key := partKey{t.Topic, t.TopicID, rp.Partition}
			p := s.index[key]
			if p == nil {
				p = &fresh[j]
				p.key, p.sentHigh, p.sentStart = key, -1, -1
				s.index[key] = p
			}
			p.offset, p.maxBytes = rp.FetchOffset, rp.PartitionMaxBytes
			p.leaderEpoch, p.fetchedEpoch = -1, -1
			if req.Version >= 9 {
				p.leaderEpoch = rp.CurrentLeaderEpoch
			}
			if req.Version >= 12 {
				p.fetchedEpoch = rp.LastFetchedEpoch
			}
			s.queue(p)
		}
	}
}

// forget takes partitions out; unknown ones are fine.
func (s *fetchSet) forget(topics []kmsg.FetchRequestForgottenTopic) {
	for i := range topics {
		t := &topics[i]
		for _, n := range t.Partitions {
			key := partKey{t.Topic, t.TopicID, n}
			if p := s.index[key]; p != nil {
				delete(s.index, key)
				s.unwatch(p)
				p.gone = true
			}
		}
	}
	s.ready = slices.DeleteFunc(s.ready, func(p *fetchPart) bool { return p.gone })
}

// queue marks a partition worth looking at.
func (s *fetchSet) queue(p *fetchPart) {
	if !p.queued {
		p.queued = true
		s.ready = append(s.ready, p)
	}
}

// sweep queues everything now and then.
func (s *fetchSet) sweep() {
	now := time.Now()
	if now.Sub(s.swept) < sweepAge {
		return
	}
	s.swept = now
	for _, p := range s.index {
		s.queue(p)
	}
}

// listen begins to watch every partition that is looked at from now on.
func (s *fetchSet) listen() {
	if s.waiter == nil {
		s.waiter = partition.NewWaiter()
		s.watched = make(map[*partition.Partition]*fetchPart)
	}
}

// watch has the partition wake the set for p.
func (s *fetchSet) watch(p *fetchPart, part *partition.Partition) {
	if s.waiter == nil || p.watched == part {
		return
	}
	s.unwatch(p)
	part.Watch(s.waiter)
	p.watched, s.watched[part] = part, p
}

func (s *fetchSet) unwatch(p *fetchPart) {
	if p.watched != nil {
		p.watched.Unwatch(s.waiter)
		delete(s.watched, p.watched)
		p.watched = nil
	}
}

// wake queues the partitions that have news.
func (s *fetchSet) wake() {
	if s.waiter == nil {
		return
	}
	s.woken = s.waiter.Take(s.woken[:0])
	for _, part := range s.woken {
		if p := s.watched[part]; p != nil {
			s.queue(p)
		}
	}
	clear(s.woken)
}

// close ends all registrations.
func (s *fetchSet) close() {
	if s.waiter != nil {
		s.waiter.Close()
	}
}
