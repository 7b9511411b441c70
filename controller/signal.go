package controller

import (
	"log/slog"
	"sync"
	"time"
)

// signal tells any number of waiters that something changed.
type signal struct {
	mu struct {
		sync.Mutex
		next  chan struct{}
		hooks map[int]func()
		id    int
	}
}

func newSignal() *signal {
	s := &signal{}
	s.mu.next = make(chan struct{})
	s.mu.hooks = map[int]func(){}
	return s
}

// changed is closed at the next notify.
func (s *signal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.next
}

// onChange calls f, which must be quick, at every notify until stop.
func (s *signal) onChange(f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.id++
	id := s.mu.id
	s.mu.hooks[id] = f
	return func() {
		s.mu.Lock()
		delete(s.mu.hooks, id)
		s.mu.Unlock()
	}
}

func (s *signal) notify() {
	s.mu.Lock()
	close(s.mu.next)
	s.mu.next = make(chan struct{})
	hooks := make([]func(), 0, len(s.mu.hooks))
	for _, f := range s.mu.hooks {
		hooks = append(hooks, f)
	}
	s.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// warnEvery is how often a problem that persists is logged.
const warnEvery = 10 * time.Second

// warner logs a persisting problem at once, when its text changes, and then
// every warnEvery.
type warner struct {
	out *slog.Logger
	mu  struct {
		sync.Mutex
		last map[string]warned
	}
}

type warned struct {
	text string
	at   time.Time
}

func newWarner(l *slog.Logger) *warner {
	w := &warner{out: l}
	w.mu.last = map[string]warned{}
	return w
}

// log warns of msg; the last attribute is the reason by which repetitions are
// recognised.
func (w *warner) log(msg string, args ...any) {
	text := ""
	if len(args) > 0 {
		switch v := args[len(args)-1].(type) {
		case error:
			text = v.Error()
		case string:
			text = v
		}
	}
	w.mu.Lock()
	before, ok := w.mu.last[msg]
	now := time.Now()
	if ok && before.text == text && now.Sub(before.at) < warnEvery {
		w.mu.Unlock()
		return
	}
	w.mu.last[msg] = warned{text, now}
	w.mu.Unlock()
	w.out.Warn(msg, args...) //nolint:sloglint // every caller passes a constant
}
