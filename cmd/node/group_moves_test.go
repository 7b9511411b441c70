package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTargetsOfAReset(t *testing.T) {
	log := logRange{topic: "t", start: 100, end: 200, at: 150}
	for _, test := range []struct {
		to     string
		old    int64
		want   int64
		remark string
	}{
		{"start", 120, 100, ""},
		{"end", -1, 200, ""},
		{"current", 120, 120, ""},
		{"current", 50, 100, "the log begins there, 50 is before it"},
		{"current", -1, -1, ""},
		{"170", -1, 170, ""},
		{"0", 120, 100, "the log begins there, 0 is before it"},
		{"999", 120, 200, "the log ends there, 999 is beyond it"},
		{"-10", 120, 110, ""},
		{"+10", 120, 130, ""},
		{"-100", 120, 100, "the log begins there, 20 is before it"},
		{"+10", -1, -1, ""},
		{"@1700000000000", -1, 150, ""},
		{"@2026-01-31T12:00:00Z", -1, 150, ""},
		{"@-2h", -1, 150, ""},
	} {
		where, err := parseTarget(test.to, time.Now())
		if err != nil {
			t.Errorf("--to %s: %v", test.to, err)
			continue
		}
		if got, remark := where.resolve(test.old, log); got != test.want || remark != test.remark {
			t.Errorf("--to %s from %d: %d %q, want %d %q", test.to, test.old, got, remark, test.want, test.remark)
		}
	}
	log.at = -1
	if got, remark := (target{toTime, 1}).resolve(5, log); got != 200 || remark == "" {
		t.Errorf("no record from a time on: %d %q, want the end and a remark", got, remark)
	}
	for _, bad := range []string{"", "middle", "@noon", "@+2h", "1.5", "--1"} {
		if where, err := parseTarget(bad, time.Now()); err == nil {
			t.Errorf("--to %q is taken for %v", bad, where)
		}
	}
	now := time.UnixMilli(1_000_000_000)
	if where, _ := parseTarget("@-1m", now); where.n != now.UnixMilli()-60_000 {
		t.Errorf("@-1m is %d", where.n)
	}
}

func TestScopes(t *testing.T) {
	s, err := parseScope([]string{"a", "b:1,3", "b:4"})
	if err != nil || !s.has("a", 9) || !s.has("b", 3) || !s.has("b", 4) || s.has("b", 2) || s.has("c", 0) {
		t.Errorf("scope %v, %v", s, err)
	}
	if all, _ := parseScope(nil); !all.has("any", 1) {
		t.Error("no --topic is not everything")
	}
	for _, bad := range []string{":1", "a:", "a:x", "a:-1"} {
		if s, err := parseScope([]string{bad}); err == nil {
			t.Errorf("--topic %q is taken for %v", bad, s)
		}
	}
	for _, bad := range [][]string{{"a", "a:1"}, {"a:1", "a"}} {
		if _, err := parseScope(bad); err == nil {
			t.Errorf("%q contradict each other and are taken", bad)
		}
	}
	if got := s.missing([]logRange{{topic: "a"}, {topic: "b", partition: 1}, {topic: "b", partition: 4}}); got != "b/3" {
		t.Errorf("missing %q, want b/3", got)
	}
}

func TestOffsetsAsCSV(t *testing.T) {
	want := []move{{Topic: "a", Partition: 0, New: 5}, {Topic: "b", Partition: 12, New: 0}}
	for name, text := range map[string]string{
		"of one group": "a,0,5\nb,12,0\n", "of several": "mine,a,0,5\nother,a,0,6\n\"mine\",b,12,0\n",
	} {
		if got, err := readMoves(strings.NewReader(text), "mine"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	var out bytes.Buffer
	if err := writeMoves(&out, want); err != nil || out.String() != "a,0,5\nb,12,0\n" {
		t.Errorf("written %q, %v", out.String(), err)
	}
	for _, bad := range []string{"", "a,0\n", "a,x,5\n", "a,0,-1\n", "a,0,5\na,0,6\n", "other,a,0,5\n"} {
		if got, err := readMoves(strings.NewReader(bad), "mine"); err == nil {
			t.Errorf("%q is taken for %v", bad, got)
		}
	}
}
