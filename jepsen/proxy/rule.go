package proxy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Action is what happens to a request.
type Action string

// Actions.
const (
	// Hold keeps the request, and with it what follows on its connection, until
	// the rule ends or Wait has passed; then it is delivered, also if the client
	// has given up meanwhile.
	Hold Action = "hold"
	// Drop closes the connection; the broker never sees the request.
	Drop Action = "drop"
	// Lose closes the connection when the broker has answered: the client does
	// not learn what happened.
	Lose Action = "lose-answer"
	// Duplicate sends the request once more on a connection of its own when the
	// broker has answered. The client gets the first answer, after the second, so
	// that nothing happens outside its call. Produce requests of producers that
	// are not idempotent are let pass: their duplicates are legal.
	Duplicate Action = "duplicate"
	// Reset resets the connection after the broker got the request.
	Reset Action = "reset"
)

// Rule says which requests meet which action.
type Rule struct {
	// APIs are the keys of requests it is for, none means all.
	APIs []int16
	// Client must be part of the client id.
	Client string
	// Chance of each request, 0 means 1.
	Chance float64
	// Times is how many requests it is for, 0 for all.
	Times  int
	Action Action
	// Wait is how long a request is held. 0: until the rule ends.
	Wait time.Duration
}

// Applied is an action that happened, for a journal.
type Applied struct {
	At          time.Time     `json:"at"`
	Node        int32         `json:"node"`
	Action      Action        `json:"action"`
	API         string        `json:"api"`
	Version     int16         `json:"version"`
	Correlation int32         `json:"correlation"`
	Client      string        `json:"client"`
	Took        time.Duration `json:"took,omitempty"` // it was held, ns
	Late        bool          `json:"late,omitempty"` // delivered after the client had closed its connection
}

// Counts are how often something happened to requests since the rule began.
type Counts struct {
	Matched int // the action began
	Done    int // and is complete: delivered, lost, answered twice
	Late    int // of those held: delivered after the client was gone
}

// Active is a rule at work.
type Active struct {
	rule  Rule
	ended chan struct{}
	once  sync.Once
	set   *rules

	mu      sync.Mutex
	counts  Counts
	retired bool
}

// Counts so far.
func (a *Active) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// End ends the rule; what it holds is delivered.
func (a *Active) End() {
	a.once.Do(func() { close(a.ended) })
	a.set.remove(a)
}

// Retire has the rule meet no more requests. What it holds stays until its Wait
// has passed, or until the proxy is healed.
func (a *Active) Retire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
}

// meets says whether the rule is for one more request, and counts it.
func (a *Active) meets() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retired || a.rule.Times > 0 && a.counts.Matched >= a.rule.Times {
		return false
	}
	a.counts.Matched++
	return true
}

func (a *Active) add(c Counts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.Done += c.Done
	a.counts.Late += c.Late
}

// rules of one proxy.
type rules struct {
	mu   sync.Mutex
	list []*Active
	seen map[int16]int64
}

func (r *rules) add(rule Rule) *Active {
	a := &Active{rule: rule, ended: make(chan struct{}), set: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, a)
	return a
}

func (r *rules) remove(a *Active) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(x *Active) bool { return x == a })
}

func (r *rules) clear() {
	r.mu.Lock()
	list := slices.Clone(r.list)
	r.mu.Unlock()
	for _, a := range list {
		a.End()
	}
}

// match finds the first rule for a request, nil if there is none.
func (r *rules) match(q *request) *Active {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[int16]int64)
	}
	r.seen[q.api]++
	for _, a := range r.list {
		switch {
		case len(a.rule.APIs) > 0 && !slices.Contains(a.rule.APIs, q.api),
			!strings.Contains(q.client, a.rule.Client),
			a.rule.Chance > 0 && rand.Float64() >= a.rule.Chance,
			a.rule.Action == Duplicate && !q.idempotent():
			continue
		}
		if a.meets() {
			return a
		}
	}
	return nil
}

// Name of an API.
func Name(api int16) string { return kmsg.NameForKey(api) }
