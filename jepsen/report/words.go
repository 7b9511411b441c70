package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"ponor/jepsen/check"
)

// sentence says the verdict's reason.
func (r *run) sentence() string {
	var bad, looked, without, tolerated int
	var names []string
	for i := range r.results {
		c := &r.results[i]
		switch {
		case c.Verdict == check.Invalid:
			bad++
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, plural(c.Count, "anomaly", "anomalies")))
		case skipped(*c):
			without++
			continue
		default:
			tolerated += c.Count
		}
		looked++
	}
	switch {
	case r.verdict == check.Invalid && bad == 0 && len(r.why()) == 0:
		return "No check says why."
	case r.verdict == check.Invalid && bad == 0:
		return "A promise was broken, though no check says so."
	case r.verdict == check.Invalid:
		if len(names) > 4 {
			names = append(names[:4:4], fmt.Sprintf("%d more", bad-4))
		}
		return fmt.Sprintf("%d of %s failed: %s.", bad, plural(looked, "check", "checks"), list(names))
	case r.verdict == check.Unknown:
		if n := len(r.missing()); n > 1 { // they follow
			return fmt.Sprintf("Nothing wrong was found, but the run could not show what was asked, for %s.", plural(n, "reason", "reasons"))
		}
		return "Nothing wrong was found, but the run could not show what was asked."
	}
	s := fmt.Sprintf("%s looked at %s", plural(looked, "check", "checks"), plural(len(r.Ops), "operation", "operations"))
	if n := len(r.faults); n > 0 {
		s += " through " + plural(n, "fault", "faults")
	} else {
		s += " of a run without faults"
	}
	s += " and found nothing wrong."
	if tolerated > 0 {
		s += fmt.Sprintf(" %s of a kind that a log allows %s counted.", plural(tolerated, "anomaly", "anomalies"), verb(tolerated, "was", "were"))
	}
	if without > 0 {
		s += fmt.Sprintf(" %s unknown.", plural(without, "optional check stays", "optional checks stay"))
	}
	return s
}

// why is what the caller says of the run.
func (r *run) why() []string {
	var out []string
	for _, s := range r.extra.Why {
		out = append(out, strings.TrimSuffix(short(s), "."))
	}
	return out
}

// missing says what keeps a run from being valid though nothing wrong was found,
// and what a reader of any verdict should know about the run.
func (r *run) missing() []string {
	out := r.why()
	switch {
	case len(r.results) == 0:
		out = append(out, "no check ran")
	case len(r.Ops) == 0:
		out = append(out, "the history has no operations")
	case len(r.records) == 0:
		out = append(out, "no record was acknowledged")
	}
	for i := range r.results {
		if c := &r.results[i]; c.Verdict == check.Unknown && !skipped(*c) {
			why := short(c.Note)
			if why == "" && c.Checked == 0 {
				why = "it had nothing to look at"
			}
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.ID, c.Name, strings.TrimSuffix(why, ".")), ": "))
		}
	}
	for _, s := range r.troubles {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// command repeats the run.
func (r *run) command() string {
	if r.extra.Command != "" {
		return clean(r.extra.Command)
	}
	words := []string{"ponor", "jepsen", "run", "--workload", quote(r.Header.Workload)}
	if len(r.Header.Nemesis) > 0 {
		words = append(words, "--nemesis", quote(strings.Join(r.Header.Nemesis, ",")))
	}
	words = append(words, "--seed", strconv.FormatUint(r.Header.Seed, 10))
	for _, k := range sortedKeys(r.Header.Settings) {
		words = append(words, "--"+quote(clean(k)), quote(clean(r.Header.Settings[k])))
	}
	return strings.Join(words, " ")
}

func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/=@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// clean makes a string from outside one line that does nothing to a terminal.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return utf8.RuneError
	}, strings.Join(strings.Fields(s), " "))
}

// short is clean, and bounded.
func short(s string) string { return cut(s, 240) }

// cut bounds a clean string to a number of bytes.
func cut(s string, most int) string {
	s = clean(s)
	if len(s) <= most {
		return s
	}
	for !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// list joins words: "a, b and c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func plural(n int, one, many string) string { return count(n) + " " + verb(n, one, many) }

// count is a whole number with its thousands parted.
func count[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// clock is a time of the run: "1:02.345", "1:00:02.345".
func clock(ns int64) string {
	t := time.Duration(ns).Truncate(time.Millisecond)
	h, m, s := int(t.Hours()), int(t.Minutes())%60, t.Seconds()-60*math.Floor(t.Minutes())
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%06.3f", h, m, s)
	}
	return fmt.Sprintf("%d:%06.3f", m, s)
}

// tick is a time of the run that is a whole number of the axis's steps.
func tick(ns int64, step time.Duration) string {
	s := clock(ns)
	if step >= time.Second {
		return s[:len(s)-4]
	}
	return s[:len(s)-2]
}

// span is a length of time with about three digits: "3 ms", "4.21 s", "5 min 3 s".
func span(ns int64) string {
	t := time.Duration(ns)
	switch {
	case t == 0:
		return "0"
	case t < time.Millisecond:
		return digits(float64(t)/1e3) + " µs"
	case t < time.Second:
		return digits(float64(t)/1e6) + " ms"
	case t < 2*time.Minute:
		return digits(t.Seconds()) + " s"
	}
	t = t.Round(time.Second)
	h, m, s := int(t.Hours()), int(t.Minutes())%60, int(t.Seconds())%60
	parts := make([]string, 0, 2)
	for _, p := range []struct {
		n    int
		unit string
	}{{h, "h"}, {m, "min"}, {s, "s"}} {
		if p.n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.unit))
		}
	}
	return strings.Join(parts, " ")
}

// digits is a number with three digits at most behind which nothing is left out
// but a fraction.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1e15:
		return strconv.FormatFloat(x, 'g', 3, 64)
	case a >= 100 || a == math.Trunc(a):
		return count(int64(math.Round(x)))
	case a >= 10:
		return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	case a >= 0.01:
		return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".")
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}
