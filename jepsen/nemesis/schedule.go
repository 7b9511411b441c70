package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/jepsen/cluster"
	"ponor/jepsen/history"
)

// Schedule composes faults at random: quiet for a while, then a random subset
// of them for a while.
type Schedule struct {
	Nemeses []Nemesis
	// Env makes what one of them works with.
	Env func(name string) *Env
	// Record is given every event, in the order in which they ended.
	Record func(*history.Event)
	// Every is the mean of a quiet or a faulty time, default four seconds.
	Every time.Duration

	mu struct {
		sync.Mutex
		on []string
	}
}

const (
	defaultEvery = 4 * time.Second
	// doTimeout bounds one Start, undoTimeout one Stop, which may have to end a
	// node that drains and wait for its return.
	doTimeout   = 15 * time.Second
	undoTimeout = 75 * time.Second
)

// On are the faults that are on now.
func (s *Schedule) On() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.on)
}

func (s *Schedule) set(name string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.mu.on = append(s.mu.on, name)
		return
	}
	if i := slices.Index(s.mu.on, name); i >= 0 {
		s.mu.on = slices.Delete(s.mu.on, i, i+1)
	}
}

// Run hurts until the context ends, then undoes what is on. It returns how many
// faults were started, and those that could not be undone.
func (s *Schedule) Run(ctx context.Context, rng *rand.Rand) (int, error) {
	if s.Every == 0 {
		s.Every = defaultEvery
	}
	envs := make(map[string]*Env)
	for _, n := range s.Nemeses {
		envs[n.Name()] = s.Env(n.Name())
	}
	started := 0
	happened := map[string]bool{}
	for len(s.Nemeses) > 0 && sleep(ctx, spread(rng, s.Every)) {
		var on []Nemesis
		for _, n := range subset(rng, s.Nemeses, happened) {
			ok, undo := s.start(ctx, n, envs[n.Name()])
			if ok {
				started++
				happened[n.Name()] = true
			}
			if undo {
				on = append(on, n)
			}
		}
		sleep(ctx, spread(rng, s.Every))
		rng.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
		slices.SortStableFunc(on, func(a, b Nemesis) int { return rank(a) - rank(b) })
		var errs []error
		for _, n := range on {
			errs = append(errs, s.stop(n, envs[n.Name()]))
		}
		if err := errors.Join(errs...); err != nil {
			return started, err
		}
	}
	return started, nil
}

// rank orders the undoing of faults: that of some takes a cluster that works.
func rank(n Nemesis) int {
	switch n.(type) {
	case *voters, *drain, *restart:
		return 1
	}
	return 0
}

// start says whether a fault began, and whether there is something to undo.
func (s *Schedule) start(ctx context.Context, n Nemesis, env *Env) (ok, undo bool) {
	ctx, cancel := context.WithTimeout(ctx, doTimeout)
	defer cancel()
	s.set(n.Name(), true)
	at := env.Now()
	e, err := n.Start(ctx, env)
	if errors.Is(err, errUnmet) && s.withdraw(n, env) {
		return false, false
	}
	if len(e.Target) == 0 && err == nil {
		return false, true // all nodes were another's
	}
	s.record(e, n.Name(), "start", at, env.Now(), err)
	return err == nil, true
}

// withdraw undoes a fault that nothing met, as if it had not been tried: nobody
// asked while it was on, mostly because of another one.
func (s *Schedule) withdraw(n Nemesis, env *Env) bool {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	if _, err := n.Stop(ctx, env); err != nil {
		return false
	}
	s.set(n.Name(), false)
	return true
}

func (s *Schedule) stop(n Nemesis, env *Env) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	at := env.Now()
	e, err := n.Stop(ctx, env)
	s.set(n.Name(), false)
	if len(e.Target) == 0 && err == nil {
		return nil
	}
	s.record(e, n.Name(), "stop", at, env.Now(), err)
	if err != nil {
		return fmt.Errorf("a fault could not be undone: %s: %w", n.Name(), err)
	}
	return nil
}

func (s *Schedule) record(e history.Event, name, phase string, at, end int64, err error) {
	e.Fault, e.Phase, e.At, e.End = name, phase, at, end
	if err != nil {
		e.Err = err.Error()
	}
	s.Record(&e)
}

// Heal resumes and starts every node and waits until all serve. It is the last
// event of a run.
func Heal(ctx context.Context, env *Env, record func(*history.Event)) error {
	if can := env.Cluster.Can; env.Cluster.Logs() == "" && !can("kill") && !can("stop") && !can("pause") {
		return nil // we have no hand on its nodes
	}
	at := env.Now()
	var errs []error
	var proof []string
	if c, ok := env.Cluster.(interface{ Heal() error }); ok {
		errs = append(errs, c.Heal())
	}
	for _, n := range env.Cluster.Nodes() {
		if env.Cluster.Paused(n) {
			errs = append(errs, env.Cluster.Resume(ctx, n))
		}
		errs = append(errs, startDown(ctx, env, n))
	}
	errs = append(errs, cluster.WaitReady(ctx, env.Cluster))
	for _, n := range env.Cluster.Nodes() {
		proof = append(proof, env.Cluster.State(n))
	}
	err := errors.Join(errs...)
	e := history.Event{Target: nodeNames(env.Cluster.Nodes()), Proof: strings.Join(proof, ", "), At: at, End: env.Now(), Fault: "heal", Phase: "heal"}
	if err != nil {
		e.Err = err.Error()
	}
	record(&e)
	return err
}

// subset draws a random set of at least one: mostly one, sometimes more. What has
// not happened yet has its turn first, so that a short run shows all it names.
func subset(rng *rand.Rand, all []Nemesis, happened map[string]bool) []Nemesis {
	list := slices.Clone(all)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(a, b Nemesis) int {
		switch x, y := happened[a.Name()], happened[b.Name()]; {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	})
	n := 1
	for n < len(list) && rng.IntN(3) == 0 {
		n++
	}
	return list[:n]
}

// spread draws a time around the mean, from a tenth to two and a half times it:
// short pauses and long ones break different things.
func spread(rng *rand.Rand, mean time.Duration) time.Duration {
	f := rng.Float64()
	return time.Duration(float64(mean) * (0.1 + 2.4*f*f + 0.4*f))
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
