package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	moveRounds = 100
	moveRate   = 1000 // records/s
	manyParts  = 1000
	manyRate   = 2 // records/s in each partition
	rollParts  = 100
	rollRate   = 10 // records/s in each partition
)

// moves moves one partition again and again under an idempotent producer, an
// empty one and a large one, and says what a move reads and writes.
func (f *failover) moves() error {
	for _, size := range slices.Compact([]int64{0, f.o.bulk}) {
		topic := fmt.Sprintf("move-%d", size>>20)
		if err := f.topic(topic, 1, 1); err != nil {
			return err
		}
		name := "empty partition"
		if size > 0 {
			name = fmt.Sprintf("partition of %.1f GB", float64(size)/1e9)
			all, err := f.leaders([]string{topic})
			if err != nil {
				return err
			}
			if err := f.fill(1, all[1], size); err != nil {
				return err
			}
			pause(f.ctx, 5*time.Second) // until it is packed
		}
		rounds := moveRounds
		if f.metrics == nil && size > 0 {
			rounds = 6 // a copy takes seconds
		}
		if f.metrics != nil {
			if err := f.movedBytes(name, topic); err != nil {
				return err
			}
		}
		p, err := f.newPace(topic, 1, moveRate, patient)
		if err != nil {
			return err
		}
		if err := f.movesUnder(name+", franz-go", topic, rounds, &p.ackLog); err != nil {
			return err
		}
		if err := p.finish(); err != nil {
			return err
		}
		if !haveLibrdkafka() {
			row("pause, "+name+", librdkafka", "not measured: set PYTHON_CLIENTS to a Python with confluent-kafka")
			continue
		}
		for _, backoff := range []string{"5", "100"} {
			l, err := f.newLibrdkafka(topic, 1, moveRate, "retry.backoff.ms="+backoff)
			if err != nil {
				return err
			}
			err = f.movesUnder(name+", librdkafka, retry.backoff.ms "+backoff, topic, rounds, &l.ackLog)
			if err := errors.Join(err, l.stop()); err != nil {
				return err
			}
		}
	}
	return nil
}

// movesUnder moves a partition round and prints the pauses that a producer saw.
func (f *failover) movesUnder(name, topic string, rounds int, seen *ackLog) error {
	if err := seen.awaitAfter(f.ctx, time.Now().Add(2*time.Second)); err != nil {
		return err
	}
	var pauses, took spread
	for i := range rounds {
		from := time.Now()
		if err := f.reassign(topic, map[int32][]int32{0: {int32(i+1)%nodes + 1}}); err != nil {
			return err
		}
		took = append(took, time.Since(from))
		pause(f.ctx, 150*time.Millisecond)
		to := time.Now()
		if err := seen.awaitAfter(f.ctx, to); err != nil { // nothing is cut off
			return err
		}
		pauses = append(pauses, seen.pauses(from, to)[0])
	}
	row("pause, "+name, "%s", pauses.sorted())
	row("until it is moved, "+name, "%s", took.sorted())
	return nil
}

// movedBytes says what moves read and write while nobody produces.
func (f *failover) movedBytes(name, topic string) error {
	const rounds = 21
	read := func() (r, w float64, err error) {
		if r, err = metric(f.metrics, "ponor_store_request_bytes_total", `op="get`); err != nil {
			return 0, 0, err
		}
		w, err = metric(f.metrics, "ponor_store_request_bytes_total", `op="put`)
		return r, w, err
	}
	r, w, err := read()
	if err != nil {
		return err
	}
	for i := range rounds {
		if err := f.reassign(topic, map[int32][]int32{0: {int32(i+1)%nodes + 1}}); err != nil {
			return err
		}
	}
	r2, w2, err := read()
	if err != nil {
		return err
	}
	row("bytes read / written a move, "+name, "%.0f / %.0f", (r2-r)/rounds, (w2-w)/rounds)
	return nil
}

// many moves 1,000 partitions at once, under a light load on all of them.
func (f *failover) many() error {
	const topic = "many"
	if err := f.topic(topic, manyParts, 1); err != nil {
		return err
	}
	p, err := f.newPace(topic, manyParts, manyRate, patient)
	if err != nil {
		return err
	}
	p.calm()
	for to := int32(2); to <= nodes; to++ {
		lists := map[int32][]int32{}
		for n := range int32(manyParts) {
			lists[n] = []int32{to}
		}
		from := time.Now()
		if err := f.reassign(topic, lists); err != nil {
			return err
		}
		took := time.Since(from)
		pause(f.ctx, time.Second)
		if err := p.awaitAfter(f.ctx, from.Add(took)); err != nil {
			return err
		}
		row(fmt.Sprintf("%d partitions moved to node %d", manyParts, to), "in %.2f s; pause %s", took.Seconds(), spreadOf(p.pauses(from, from.Add(took)), nil))
	}
	return p.finish()
}

// drain stops a node that has 1,000 partitions.
func (f *failover) drain() error {
	const topic = "drain"
	if err := f.topic(topic, manyParts, 2, 3, 1); err != nil {
		return err
	}
	p, err := f.newPace(topic, manyParts, manyRate, patient)
	if err != nil {
		return err
	}
	p.calm()
	from := time.Now()
	took, err := f.terminate(1)
	if err != nil {
		return err
	}
	if err := p.awaitAfter(f.ctx, from.Add(took)); err != nil {
		return err
	}
	pause(f.ctx, time.Second)
	row(fmt.Sprintf("node with %d partitions stopped", manyParts), "in %.2f s; pause %s", took.Seconds(), spreadOf(p.pauses(from, from.Add(took)), nil))
	if err := f.again(1); err != nil {
		return err
	}
	if err := f.awaitBrokers(); err != nil {
		return err
	}
	return p.finish()
}

// roll restarts every node in turn.
func (f *failover) roll() error {
	const topic = "roll"
	if err := f.topic(topic, rollParts); err != nil {
		return err
	}
	p, err := f.newPace(topic, rollParts, rollRate, patient)
	if err != nil {
		return err
	}
	p.calm()
	var all spread
	for at := range nodes {
		from := time.Now()
		took, err := f.terminate(at)
		if err != nil {
			return err
		}
		if err := f.again(at); err != nil {
			return err
		}
		if err := f.awaitBrokers(); err != nil {
			return err
		}
		up := time.Since(from)
		pause(f.ctx, 5*time.Second) // its partitions come home
		if err := p.awaitAfter(f.ctx, time.Now()); err != nil {
			return err
		}
		s := spreadOf(p.pauses(from, time.Now()), nil)
		row(fmt.Sprintf("node %d restarted", at+1), "stopped in %.2f s, back in %.2f s; pause %s", took.Seconds(), up.Seconds(), s)
		all = append(all, s...)
	}
	row("pause of a partition in a restart", "%s", all.sorted())
	return p.finish()
}

// entries counts entries of the Raft log under loads on ever more partitions.
func (f *failover) entries() error {
	for _, n := range []int{1, 100, 1000, 10_000} {
		topics := names(fmt.Sprintf("entries-%d", n), max(1, n/perTopic))
		if err := f.create(topics, min(n, perTopic), topicsAtOnce); err != nil {
			return err
		}
		if err := f.awaitAll(topics); err != nil {
			return err
		}
		l, err := f.newEvenLoad(topics)
		if err != nil {
			return err
		}
		if err := l.run(5 * time.Second); err != nil {
			return err
		}
		for _, load := range []struct {
			name string
			do   func() error
		}{
			{"no load", func() error { pause(f.ctx, 10*time.Second); return f.ctx.Err() }},
			{fmt.Sprintf("%d records/s", loadRate), func() error { return l.run(15 * time.Second) }},
		} {
			w, err := f.watch(load.do)
			if err != nil {
				return err
			}
			row(fmt.Sprintf("%d partitions, %s", n, strings.TrimSpace(load.name)), "%.2f Raft entries/s, %d WAL puts/s", float64(w.entries)/w.seconds, int64(float64(w.slots)/w.seconds))
		}
	}
	return nil
}
