package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchKey      = 1
	activeParts   = 10
	sessionParts  = 10_000
	sessionPolls  = 4000
	sessionRecord = 100
)

// session measures an incremental fetch session of many partitions of which few
// have records, against one of those few alone.
func (s *scale) session() error {
	topics := names("session", 3*sessionParts/1000)
	if err := s.create(topics, 1000, 10); err != nil {
		return err
	}
	if err := s.awaitAll(topics); err != nil {
		return err
	}
	all, err := s.leaders(topics)
	if err != nil {
		return err
	}
	// The broker that leads most, for ten thousand at one.
	var broker int32
	for b, parts := range all {
		if count(parts) > count(all[broker]) {
			broker = b
		}
	}
	parts := first(all[broker], sessionParts)
	active := []led{{topic: parts[0].topic, id: parts[0].id, numbers: parts[0].numbers[:activeParts]}}
	producer, err := s.newProducer()
	if err != nil {
		return err
	}
	for range 2 * sessionPolls {
		if err := producer.send(broker, active, 1, make([]byte, sessionRecord)); err != nil {
			return err
		}
	}
	pid := s.pids[broker-1]
	var base float64
	for _, set := range [][]led{active, parts, active, parts} {
		f := newFetcher(s, broker, set)
		if err := f.open(); err != nil {
			return err
		}
		for range 20 { // what was sent with the session's first response is old news
			if err := f.poll(); err != nil {
				return err
			}
		}
		s.wire.take(fetchKey)
		cpu, _, err := usage([]int{pid})
		if err != nil {
			return err
		}
		begin, got := time.Now(), f.records
		for range sessionPolls {
			if err := f.poll(); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		after, _, err := usage([]int{pid})
		if err != nil {
			return err
		}
		n, out, in := s.wire.take(fetchKey)
		us := 1e6 * (after - cpu) / float64(n)
		base = cmp.Or(base, us)
		row(fmt.Sprintf("%d active of %d", activeParts, count(set)), "%.0f B request + %.0f B response, %.0f us broker CPU a poll (%.2f of the first), %.2f ms each, %.1f partitions with records in each",
			float64(out)/float64(n), float64(in)/float64(n), us, us/base, took.Seconds()*1000/float64(n), float64(f.records-got)/float64(n))
	}
	return nil
}

func count(parts []led) (n int) {
	for i := range parts {
		n += len(parts[i].numbers)
	}
	return n
}

// first is the first n of some partitions.
func first(parts []led, n int) (out []led) {
	for _, l := range parts {
		l.numbers = l.numbers[:min(n, len(l.numbers))]
		if n -= len(l.numbers); len(l.numbers) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// fetcher is one fetch session.
type fetcher struct {
	s       *scale
	broker  int32
	parts   []led
	session int32
	epoch   int32
	offsets map[[16]byte]map[int32]int64
	moved   map[[16]byte][]int32 // since the last request
	records int                  // partitions that had some, summed over polls
}

func newFetcher(s *scale, broker int32, parts []led) *fetcher {
	return &fetcher{s: s, broker: broker, parts: parts, offsets: map[[16]byte]map[int32]int64{}, moved: map[[16]byte][]int32{}}
}

// open begins the session at the beginning of every log.
func (f *fetcher) open() error {
	for _, l := range f.parts {
		f.offsets[l.id] = map[int32]int64{}
		f.moved[l.id] = slices.Clone(l.numbers)
	}
	return f.poll()
}

// poll sends what changed and takes note of what came. Limits are such that a
// poll takes one batch from each partition that has some.
func (f *fetcher) poll() error {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 50<<20
	req.SessionID, req.SessionEpoch = f.session, f.epoch
	for id, numbers := range f.moved {
		t := kmsg.NewFetchRequestTopic()
		t.TopicID = id
		for _, n := range numbers {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = n, f.offsets[id][n], 2*sessionRecord, -1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	clear(f.moved)
	kresp, err := f.s.Broker(int(f.broker)).Request(f.s.ctx, req)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	if !ok || resp.ErrorCode != 0 || resp.SessionID == 0 {
		return fmt.Errorf("fetch: answered with %T, no session or an error", kresp)
	}
	f.session = resp.SessionID
	f.epoch++
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.ErrorCode != 0 {
				return fmt.Errorf("fetch of partition %d: error %d", p.Partition, p.ErrorCode)
			}
			if len(p.RecordBatches) == 0 {
				continue
			}
			f.records++
			f.offsets[t.TopicID][p.Partition]++ // one record a batch
			f.moved[t.TopicID] = append(f.moved[t.TopicID], p.Partition)
		}
	}
	return nil
}
