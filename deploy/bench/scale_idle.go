package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	settle = 10 * time.Second // after a change, before it is measured
	watch  = 20 * time.Second
	// idleConsumers wait at the end of the log at a time.
	idleConsumers = 1000
)

// idle measures a cluster that nobody uses, one with many idle partitions, and
// one whose consumers wait at the end of the log.
func (s *scale) idle() error {
	report := func(name string) error {
		pause(s.ctx, settle)
		w, err := s.rest(watch)
		if err == nil {
			row(name, "%s", w)
		}
		return err
	}
	if err := report("fresh"); err != nil {
		return err
	}
	topics := []string{"idle-0000"}
	if err := s.create(topics, 1000, 1); err != nil {
		return err
	}
	if err := s.awaitAll(topics); err != nil {
		return err
	}
	if err := report("1,000 idle partitions"); err != nil {
		return err
	}
	for _, wait := range []time.Duration{30 * time.Second, 500 * time.Millisecond} {
		stop, err := s.consumers(topics[0], 1000, wait)
		if err != nil {
			return err
		}
		err = report(fmt.Sprintf("and %d consumers, max.wait %v", idleConsumers, wait))
		stop()
		if err != nil {
			return err
		}
	}
	return report("and gone again")
}

// consumers starts clients that each wait for one partition, until stop.
func (s *scale) consumers(topic string, partitions int, wait time.Duration) (stop func(), err error) {
	var clients []*kgo.Client
	var polls sync.WaitGroup
	ctx, cancel := context.WithCancel(s.ctx)
	stop = func() {
		cancel()
		polls.Wait()
		for _, c := range clients {
			c.Close()
		}
	}
	for i := range idleConsumers {
		c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(s.bootstrap, ",")...), kgo.FetchMaxWait(wait),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {int32(i % partitions): kgo.NewOffset().AtEnd()}}))
		if err != nil {
			stop()
			return nil, fmt.Errorf("start consumer: %w", err)
		}
		clients = append(clients, c)
		polls.Go(func() {
			for ctx.Err() == nil {
				c.PollFetches(ctx)
			}
		})
	}
	return stop, nil
}
