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

// Seen is what a process says, in a file beside the script's with this suffix, of
// the script that it follows.
type Seen struct {
	Serial int   `json:"serial"`
	Hits   []int `json:"hits"` // calls that met each of the rules
}

// SeenSuffix is added to the name of a script's file.
const SeenSuffix = ".seen"

// pollEvery is how long a change of a file may go unnoticed.
const pollEvery = 50 * time.Millisecond

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
	var told []byte
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		said, err := json.Marshal(Seen{Serial: serial, Hits: b.hits()})
		if err == nil && !bytes.Equal(said, told) && replaceFile(file+SeenSuffix, said) == nil {
			told = said
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := os.ReadFile(file)
		if err != nil || bytes.Equal(now, text) {
			continue
		}
		s, rules, next, err := parse(now)
		if err != nil {
			continue
		}
		b.replace(rules)
		close(end)
		text, serial, end = now, s.Serial, next
	}
}

// WriteScript replaces a script's file whole.
func WriteScript(file string, s Script) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode faults: %w", err)
	}
	return replaceFile(file, b)
}

// ReadSeen reads what a process says of the script in a file.
func ReadSeen(file string) (Seen, error) {
	var s Seen
	b, err := os.ReadFile(file + SeenSuffix)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

func replaceFile(file string, b []byte) error {
	temp := file + ".tmp"
	if err := os.WriteFile(temp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, file)
}
