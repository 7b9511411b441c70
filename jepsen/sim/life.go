package sim

import (
	"context"
	"errors"
	"sync"
)

// errKilled is what a dead process's calls answer, to goroutines of it that
// have not ended yet.
var errKilled = errors.New("this process is dead")

// life is one process from its start to its death, as the network and the store
// see it.
type life struct {
	host string
	dead chan struct{} // closed at its death
	ctx  context.Context
	end  context.CancelFunc
	mu   struct {
		sync.Mutex
		paused chan struct{} // closed when it goes on; nil while it runs
	}
}

func newLife(host string) *life {
	l := &life{host: host, dead: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

func (l *life) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// die ends the process for everybody else at once (Z1).
func (l *life) die() {
	if !l.isDead() {
		close(l.dead)
		l.end()
	}
}

// pause stops its calls to the store until resume (Z2).
func (l *life) pause() (resume func()) {
	ch := make(chan struct{})
	l.mu.Lock()
	l.mu.paused = ch
	l.mu.Unlock()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		if l.mu.paused == ch {
			l.mu.paused = nil
		}
		l.mu.Unlock()
		close(ch)
	})
}

// running waits while the process is paused; waited says if it was.
func (l *life) running() (waited bool, err error) {
	for {
		l.mu.Lock()
		paused := l.mu.paused
		l.mu.Unlock()
		if paused == nil {
			if l.isDead() {
				return waited, errKilled
			}
			return waited, nil
		}
		waited = true
		select {
		case <-paused:
		case <-l.dead:
			return waited, errKilled
		}
	}
}
