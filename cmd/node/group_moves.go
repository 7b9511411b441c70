package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// move is one offset to be changed; -1 is none.
type move struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       int64  `json:"offset"`
	New       int64  `json:"new_offset"`
	Remark    string `json:"remark,omitempty"`
}

// scope is which partitions a command is about, by topic; an empty list is all of a
// topic, and nil everything.
type scope map[string][]int32

// parseScope reads TOPIC or TOPIC:PARTITION,... arguments.
func parseScope(args []string) (scope, error) {
	if len(args) == 0 {
		return nil, nil
	}
	s := scope{}
	for _, arg := range args {
		topic, list, some := strings.Cut(arg, ":")
		if topic == "" {
			return nil, usagef("--topic %q: write TOPIC or TOPIC:PARTITION,..., such as orders:0,3", arg)
		}
		if before, ok := s[topic]; ok && (!some || len(before) == 0) {
			return nil, usagef("--topic %q: all of topic %s is named already", arg, topic)
		}
		s[topic] = append(s[topic], []int32{}...)
		if !some {
			continue
		}
		for text := range strings.SplitSeq(list, ",") {
			p, err := strconv.ParseInt(text, 10, 32)
			if err != nil || p < 0 {
				return nil, usagef("--topic %q: %q is not a partition; write TOPIC:PARTITION,..., such as orders:0,3", arg, text)
			}
			s[topic] = append(s[topic], int32(p))
		}
	}
	return s, nil
}

func scopeOf(moves []move) scope {
	s := scope{}
	for _, m := range moves {
		s[m.Topic] = append(s[m.Topic], m.Partition)
	}
	return s
}

func (s scope) has(topic string, partition int32) bool {
	list, ok := s[topic]
	return s == nil || ok && (len(list) == 0 || slices.Contains(list, partition))
}

// topics are those named; nil is every topic.
func (s scope) topics() []string {
	var list []string
	for t := range s {
		list = append(list, t)
	}
	slices.Sort(list)
	return list
}

// missing is a partition that is named and is not there, "" for none.
func (s scope) missing(logs []logRange) string {
	for _, t := range s.topics() {
		for _, p := range s[t] {
			if !slices.ContainsFunc(logs, func(l logRange) bool { return l.topic == t && l.partition == p }) {
				return fmt.Sprintf("%s/%d", t, p)
			}
		}
	}
	return ""
}

// logRange is what a partition holds.
type logRange struct {
	topic      string
	partition  int32
	start, end int64
	at         int64 // the first offset from the time asked for
}

func (l logRange) compare(o logRange) int {
	return cmp.Or(cmp.Compare(l.topic, o.topic), cmp.Compare(l.partition, o.partition))
}

// targetKind says what a target's number is.
type targetKind int

const (
	toStart targetKind = iota
	toEnd
	toCurrent
	toOffset // n
	toBy     // the current one and n
	toTime   // n, Unix ms
)

// target is where offsets shall go.
type target struct {
	kind targetKind
	n    int64
}

// parseTarget reads --to.
func parseTarget(text string, now time.Time) (target, error) {
	switch text {
	case "start", "earliest":
		return target{kind: toStart}, nil
	case "end", "latest":
		return target{kind: toEnd}, nil
	case "current":
		return target{kind: toCurrent}, nil
	}
	if at, ok := strings.CutPrefix(text, "@"); ok {
		ms, err := parseMoment(at, now)
		if err != nil {
			return target{}, usagef("--to %q: after @ write a time such as 2026-01-31T12:00:00Z, Unix milliseconds, or how long ago, such as -2h", text)
		}
		return target{toTime, ms}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return target{}, usagef("--to %q: start, end, current, an offset, +N, -N or @TIME", text)
	case text[0] == '+' || text[0] == '-':
		return target{toBy, n}, nil
	}
	return target{toOffset, n}, nil
}

// parseMoment reads a time as Unix ms.
func parseMoment(text string, now time.Time) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return ms, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d <= 0 {
		return now.Add(d).UnixMilli(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("parse time %q: %w", text, err)
	}
	return t.UnixMilli(), nil
}

// resolve is the new offset, within the log; -1 if it is relative to one that is not
// there.
func (t target) resolve(old int64, l logRange) (offset int64, remark string) {
	switch t.kind {
	case toStart:
		return l.start, ""
	case toEnd:
		return l.end, ""
	case toTime:
		if l.at < 0 || l.at >= l.end {
			return l.end, "no record from that time on"
		}
		return max(l.at, l.start), ""
	case toOffset:
		offset = t.n
	case toCurrent:
		offset = old
	case toBy:
		offset = old + t.n
	}
	switch {
	case old < 0 && t.kind != toOffset:
		return -1, ""
	case offset < l.start:
		return l.start, fmt.Sprintf("the log begins there, %d is before it", offset)
	case offset > l.end:
		return l.end, fmt.Sprintf("the log ends there, %d is beyond it", offset)
	}
	return offset, ""
}

// readMoves reads CSV lines TOPIC,PARTITION,OFFSET, or GROUP,TOPIC,PARTITION,OFFSET of
// which those of other groups are left out.
func readMoves(in io.Reader, group string) ([]move, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	var moves []move
	for {
		row, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && len(moves) == 0:
			return nil, fmt.Errorf("no offset of group %s in it; write lines TOPIC,PARTITION,OFFSET", group)
		case errors.Is(err, io.EOF):
			return moves, nil
		case err != nil:
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(row) == 4 {
			if row[0] != group {
				continue
			}
			row = row[1:]
		}
		if len(row) != 3 {
			return nil, fmt.Errorf("line %d: %d fields; write TOPIC,PARTITION,OFFSET", line, len(row))
		}
		partition, perr := strconv.ParseInt(row[1], 10, 32)
		offset, oerr := strconv.ParseInt(row[2], 10, 64)
		if err := errors.Join(perr, oerr); err != nil || partition < 0 || offset < 0 {
			return nil, fmt.Errorf("line %d: %q,%q are not a partition and an offset", line, row[1], row[2])
		}
		m := move{Topic: row[0], Partition: int32(partition), New: offset}
		if slices.ContainsFunc(moves, func(o move) bool { return o.Topic == m.Topic && o.Partition == m.Partition }) {
			return nil, fmt.Errorf("line %d: %s/%d is there twice", line, m.Topic, m.Partition)
		}
		moves = append(moves, m)
	}
}

// writeMoves writes what readMoves and kafka-consumer-groups read.
func writeMoves(out io.Writer, moves []move) error {
	w := csv.NewWriter(out)
	for _, m := range moves {
		if err := w.Write([]string{m.Topic, strconv.Itoa(int(m.Partition)), strconv.FormatInt(m.New, 10)}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
