package jepsen

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"ponor/jepsen/history"
)

// teller writes to the user: lines that stay, and on a terminal one last line
// that is written anew.
type teller struct {
	terminal bool
	mu       struct {
		sync.Mutex
		out io.Writer
		// status: the last line is one.
		status bool
	}
}

// tellEvery is how many seconds pass between two states where there is no
// terminal.
const tellEvery = 10

func newTeller(out io.Writer, terminal bool) *teller {
	t := &teller{terminal: terminal}
	t.mu.out = out
	return t
}

// line stays.
func (t *teller) line(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.status {
		_, _ = fmt.Fprint(t.mu.out, "\r\x1b[K")
		t.mu.status = false
	}
	_, _ = fmt.Fprintf(t.mu.out, format+"\n", args...)
}

// status of the n-th second.
func (t *teller) status(n int, text string) {
	if !t.terminal {
		if n%tellEvery == 0 {
			t.line("%s", text)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprint(t.mu.out, "\r\x1b[K"+text)
	t.mu.status = true
}

// eventText is an event in one line.
func eventText(e *history.Event) string {
	target := strings.Join(e.Target, ", ")
	if target == "" {
		target = "nothing"
	}
	if e.Phase == "heal" && e.Err == "" {
		return "everything is undone, all nodes serve"
	}
	text := e.Fault
	switch {
	case e.Phase == "heal":
		text = "not everything could be undone"
	case e.Phase == "stop" && e.Err == "":
		text += " is undone"
	case e.Phase == "stop":
		text += " could not be undone"
	case e.Err != "":
		text += " could not be done"
	}
	text += ": " + target
	switch {
	case e.Err != "" && e.Proof != "":
		text += ": " + e.Err + " (" + e.Proof + ")"
	case e.Err != "":
		text += ": " + e.Err
	case e.Proof != "":
		text += " (" + e.Proof + ")"
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// line is the state of the run in one line; now is 0 when the load has ended.
func (r *run) line(now time.Duration) string {
	s := r.env.Sample()
	ok, fail, info := r.env.Outcomes()
	var b strings.Builder
	switch {
	case now > 0 && r.ending.Load(): // clients wait for what is under way, and faults are undone
		b.WriteString("load ends    ")
	case now > 0:
		fmt.Fprintf(&b, "%7s left  ", (r.o.Time - now).Round(time.Second))
		fmt.Fprintf(&b, "%5.0f op/s  ", r.rate(ok+fail+info, now))
	default:
		b.WriteString("load ended:  ")
	}
	fmt.Fprintf(&b, "ok %d  fail %d  info %d  acked %d  unseen %d  up %d", ok, fail, info, s.Acked, s.Unseen, s.Up)
	if on := r.sched.On(); len(on) > 0 {
		fmt.Fprintf(&b, "  now: %s", strings.Join(on, ", "))
	}
	return b.String()
}

// rate of operations since it was asked last.
func (r *run) rate(ops int64, now time.Duration) float64 {
	per := float64(ops-r.said.ops) / max(0.001, (now-r.said.at).Seconds())
	r.said.ops, r.said.at = ops, now
	return per
}
