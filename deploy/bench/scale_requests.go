package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	loadRecord  = 1000 // bytes
	loadRate    = 5000 // records/s, in all
	loadTick    = 20 * time.Millisecond
	loadWarmup  = 30 * time.Second
	loadMeasure = 60 * time.Second
)

// requests puts the same load, spread evenly over all partitions, on clusters
// with ever more partitions and counts requests to the store.
func (s *scale) requests() error {
	for _, n := range []int{10, 100, 1000, 10_000} {
		topics := names(fmt.Sprintf("load-%d", n), max(1, n/perTopic))
		if err := s.create(topics, min(n, perTopic), topicsAtOnce); err != nil {
			return err
		}
		if err := s.awaitAll(topics); err != nil {
			return err
		}
		l, err := s.newEvenLoad(topics)
		if err != nil {
			return err
		}
		if err := l.run(loadWarmup); err != nil {
			return err
		}
		w, err := s.watch(func() error { return l.run(loadMeasure) })
		if err != nil {
			return err
		}
		var all float64
		by := map[string]float64{}
		for k, v := range w.requests {
			all += v
			by[k] += v / w.seconds
		}
		detail := ""
		for _, k := range slices.Sorted(maps.Keys(by)) {
			if by[k] > 0 {
				detail += fmt.Sprintf("%s %.2f  ", k, by[k])
			}
		}
		row(fmt.Sprintf("%d partitions", n), "%.1f store requests/s, %.2f Raft entries/s, %.1f %% CPU, %.0f records/s: %s",
			all/w.seconds, float64(w.entries)/w.seconds, 100*w.cpu/w.seconds, float64(l.sent)/(loadWarmup+loadMeasure).Seconds(), detail)
	}
	return nil
}

// evenLoad sends the same requests at the same pace whatever the partitions: in
// each tick one to every broker, with as many records, each for the partition
// whose turn it is.
type evenLoad struct {
	*producer
	brokers []int32
	led     map[int32][]part
	turn    map[int32]*int // one sender each
	sent    int64
}

// part is one partition.
type part struct {
	led
	number int32
}

func (s *scale) newEvenLoad(topics []string) (*evenLoad, error) {
	all, err := s.leaders(topics)
	if err != nil {
		return nil, err
	}
	l := &evenLoad{led: map[int32][]part{}, turn: map[int32]*int{}}
	if l.producer, err = s.newProducer(); err != nil {
		return nil, err
	}
	l.brokers = slices.Sorted(maps.Keys(all))
	for b, list := range all {
		l.turn[b] = new(int)
		for _, x := range list {
			for _, n := range x.numbers {
				l.led[b] = append(l.led[b], part{x, n})
			}
		}
	}
	return l, nil
}

// run sends for so long.
func (l *evenLoad) run(d time.Duration) error {
	value := make([]byte, loadRecord)
	_, _ = rand.Read(value)
	each := int(loadRate * loadTick / time.Second / time.Duration(len(l.brokers)))
	end := time.Now().Add(d)
	failures := make(chan error, len(l.brokers))
	var sent [nodes]int64
	for i, b := range l.brokers {
		go func() { // waited for below
			for next := time.Now(); next.Before(end); next = next.Add(loadTick) {
				pause(l.s.ctx, time.Until(next))
				counts := map[int]int{}
				for range each {
					counts[*l.turn[b]%len(l.led[b])]++
					*l.turn[b]++
				}
				if err := l.sendTo(b, counts, value); err != nil {
					failures <- err
					return
				}
				sent[i] += int64(each)
			}
			failures <- nil
		}()
	}
	var failed error
	for range l.brokers {
		if err := <-failures; err != nil {
			failed = err
		}
	}
	for _, n := range sent {
		l.sent += n
	}
	return failed
}

// sendTo sends one request with a batch for each of some of a broker's
// partitions, by their places in led.
func (l *evenLoad) sendTo(broker int32, counts map[int]int, value []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	for _, at := range slices.Sorted(maps.Keys(counts)) { // those of a topic lie together
		x := l.led[broker][at]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != x.id {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = x.topic, x.id
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, l.batch(x.topic, x.number, counts[at], value))
	}
	return l.produce(broker, req)
}

// storeRequests are the nodes' requests to the store so far, by operation and
// class of object.
func (s *scale) storeRequests() (map[string]float64, error) {
	out := map[string]float64{}
	for _, addr := range s.metrics {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			rest, ok := strings.CutPrefix(scan.Text(), "ponor_store_requests_total{")
			labels, value, found := strings.Cut(rest, "} ")
			if !ok || !found {
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				resp.Body.Close()
				return nil, fmt.Errorf("read metrics: %w", err)
			}
			out[labels] += n
		}
		resp.Body.Close()
	}
	return out, nil
}
