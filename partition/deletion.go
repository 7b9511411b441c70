package partition

import (
	"context"
	"fmt"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// doomed is a topic that is being deleted and of which we own partitions.
type doomed struct {
	logs map[int32]commitlog.ID
	done bool // TopicsGone was accepted
}

// reapRetry is how long the reaper rests after a failure.
const reapRetry = time.Second

// doom notes a partition of a deleted topic. hosting.mu is held.
func (s *Set) doom(part metadata.Partition) {
	d := s.hosting.doomed[part.Topic]
	if d == nil {
		d = &doomed{logs: make(map[int32]commitlog.ID)}
		s.hosting.doomed[part.Topic] = d
	}
	if _, ok := d.logs[part.Number]; !ok {
		d.logs[part.Number], d.done = part.ID(), false // also one that a dead owner left us
	}
}

// reapTopics deletes topics: once every partition of one is closed here, its
// logs are removed and TopicsGone says that this incarnation will never append
// to them again (del-1). A crash in between leaves the topic in the image, and
// the next incarnation starts over.
func (s *Set) reapTopics(ctx context.Context) {
	for {
		select {
		case <-s.reap:
		case <-ctx.Done():
			return
		}
		if err := s.reapReady(ctx); err != nil && ctx.Err() == nil {
			s.host.logger().Warn("topic deletion failed, it will be tried again", "err", err)
			rest(ctx, reapRetry)
			poke(s.reap)
		}
	}
}

// reapReady deletes every topic that is ready for it.
func (s *Set) reapReady(ctx context.Context) error {
	ready := s.closedTopics()
	if len(ready) == 0 {
		return nil
	}
	gone := &metadatapb.TopicsGone{}
	img := s.cfg.Meta.Image()
	for topic, logs := range ready {
		for _, id := range logs {
			if err := s.removeLog(ctx, id); err != nil {
				return err
			}
		}
		if _, ok := img.TopicByID(topic); ok { // else nobody waits for us
			gone.TopicIds = append(gone.TopicIds, topic[:])
		}
	}
	if err := s.submitGone(ctx, gone); err != nil {
		return err
	}
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	for topic := range ready {
		s.hosting.doomed[topic].done = true
	}
	return nil
}

// submitGone tells the cluster, if there is something to tell.
func (s *Set) submitGone(ctx context.Context, gone *metadatapb.TopicsGone) error {
	if len(gone.TopicIds) == 0 {
		return nil
	}
	r, err := s.cfg.Meta.SubmitOwn(ctx, &metadatapb.Command{Body: &metadatapb.Command_TopicsGone{TopicsGone: gone}})
	if err != nil {
		return fmt.Errorf("submit TopicsGone: %w", err)
	}
	if r.Err != nil {
		return fmt.Errorf("submit TopicsGone: %w", r.Err)
	}
	return nil
}

// closedTopics lists the doomed topics that have nothing open here, and forgets
// those that the image no longer has.
func (s *Set) closedTopics() map[metadata.TopicID][]commitlog.ID {
	img := s.cfg.Meta.Image()
	s.hosting.mu.Lock()
	defer s.hosting.mu.Unlock()
	ready := make(map[metadata.TopicID][]commitlog.ID)
	for topic, d := range s.hosting.doomed {
		if d.done {
			if _, ok := img.TopicByID(topic); !ok {
				delete(s.hosting.doomed, topic)
			}
			continue
		}
		var logs []commitlog.ID
		for number, id := range d.logs {
			if s.hosting.m[key{topic, number}] != nil {
				logs = nil // still open: the worker pokes us when it is not
				break
			}
			logs = append(logs, id)
		}
		if logs != nil {
			ready[topic] = logs
		}
	}
	return ready
}

// removeLog removes a log wherever it may be: the topic's config, which would
// tell, may be gone.
func (s *Set) removeLog(ctx context.Context, id commitlog.ID) error {
	for _, store := range []commitlog.Store{s.cfg.Shared, s.cfg.Local} {
		if store == nil {
			continue
		}
		if err := store.Remove(ctx, id); err != nil {
			return fmt.Errorf("remove the log of %s: %w", id, err)
		}
	}
	return nil
}
