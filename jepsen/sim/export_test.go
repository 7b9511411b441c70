package sim

// NewLife begins a process, for tests.
func NewLife(host string) *life { return newLife(host) }

// Die ends it.
func (l *life) Die() { l.die() }
