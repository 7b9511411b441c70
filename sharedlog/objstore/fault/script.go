package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ponor/internal/steer"
	"ponor/sharedlog/objstore"
)

// Script is a set of rules in a file, for a process that somebody else tests. An
// empty list is no fault.
type Script struct {
	Serial int    `json:"serial"` // of this content of the file
	Rules  []Line `json:"rules"`
}

// Line is a Rule in a Script; times are nanoseconds.
type Line struct {
	Ops    []Op          `json:"ops,omitempty"`
	Key    string        `json:"key,omitempty"`
	Chance float64       `json:"chance,omitempty"`
	Delay  time.Duration `json:"delay,omitempty"`
	Median time.Duration `json:"median,omitempty"`
	P99    time.Duration `json:"p99,omitempty"`
	// Hang until the file changes, whatever the call's context says.
	Hang bool `json:"hang,omitempty"`
	// Fails: "unavailable" or "full", before the call has an effect; "lost", after
	// it had; "late", before a put that lands Late later.
	Fails string        `json:"fails,omitempty"`
	Late  time.Duration `json:"late,omitempty"`
	Stale time.Duration `json:"stale,omitempty"`
}

// Seen is what a process says of the script that it follows; see steer.
type Seen struct {
	Serial int   `json:"serial"`
	Hits   []int `json:"hits"` // calls that met each of the rules
}

// Errors that scripts inject.
var (
	errUnavailable = errors.New("503 (injected)")
	errLost        = errors.New("connection reset (injected)")
)

func (l Line) rule(end <-chan struct{}) (Rule, error) {
	r := Rule{Ops: l.Ops, Key: l.Key, Chance: l.Chance, Delay: l.Delay, Latency: Latency{Median: l.Median, P99: l.P99}, Stale: l.Stale}
	for _, op := range l.Ops {
		if !slices.Contains([]Op{PutNew, Put, GetRange, GetTail, Head, List, Delete, Settle}, op) {
			return r, fmt.Errorf("unknown op %q", op)
		}
	}
	if l.Hang {
		r.Hold, r.HoldHard = end, true
	}
	switch l.Fails {
	case "":
	case "unavailable":
		r.Before = errUnavailable
	case "full":
		r.Before = fmt.Errorf("%w (injected)", objstore.ErrFull)
	case "lost":
		r.After = errLost
	case "late":
		r.After, r.Late = errLost, l.Late
	default:
		return r, fmt.Errorf("unknown failure %q", l.Fails)
	}
	return r, nil
}

// Follow does what the script in a file says and, until the context ends, what
// later contents of the file say. The file must be there and right; a later
// content that is not changes nothing. What the rules met is written beside it.
func (b *Bucket) Follow(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read faults: %w", err)
	}
	s, rules, end, err := parse(text)
	if err != nil {
		return fmt.Errorf("read faults in %s: %w", file, err)
	}
	b.replace(rules)
	b.follows.Go(func() { b.follow(ctx, file, text, s.Serial, end) })
	return nil
}

func parse(text []byte) (Script, []Rule, chan struct{}, error) {
	var s Script
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, nil, nil, err
	}
	end := make(chan struct{})
	rules := make([]Rule, len(s.Rules))
	for i, l := range s.Rules {
		var err error
		if rules[i], err = l.rule(end); err != nil {
			return s, nil, nil, err
		}
	}
	return s, rules, end, nil
}

// replace ends all rules and adds others, in one step.
func (b *Bucket) replace(rules []Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.rules = nil
	for _, r := range rules {
		b.mu.rules = append(b.mu.rules, &active{Rule: r})
	}
}

func (b *Bucket) follow(ctx context.Context, file string, text []byte, serial int, end chan struct{}) {
	defer func() { close(end) }() // nothing hangs for ever
	seen := func() any { return Seen{Serial: serial, Hits: b.hits()} }
	steer.Follow(ctx, file, text, seen, func(now []byte) error {
		s, rules, next, err := parse(now)
		if err != nil {
			return err
		}
		b.replace(rules)
		close(end)
		serial, end = s.Serial, next
		return nil
	})
}

// WriteScript replaces a script's file whole.
func WriteScript(file string, s Script) error {
	if err := steer.Write(file, s); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}

// ReadSeen reads what a process says of the script in a file.
func ReadSeen(file string) (Seen, error) {
	var s Seen
	return s, steer.ReadSeen(file, &s)
}
