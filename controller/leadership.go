package controller

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// leadership is one term of this node as leader. It begins once the image has
// everything that earlier leaders committed, and ends with ctx.
//
// State: the gate serialises decisions (who owns what, who may register), so
// that each one sees the effect of the one before; sessions has its own lock;
// everything else belongs to run.
type leadership struct {
	cfg       Config
	log       *slog.Logger
	images    *images
	committer *committer
	sessions  *sessions
	moves     *moves
	quorum    *quorum
	gate      chan struct{} // holds one token while no decision is being made
	suspects  chan suspect
	// cautious until then: nobody led before in the life of this process, so
	// most likely the whole cluster restarts and its brokers are on their way.
	cautious time.Time
	before   *contact // with the last leader, nil if there was none
	// attempts remembers when a fence was last proposed, so that one that is
	// rejected is not proposed in a loop.
	attempts map[metadata.Incarnation]time.Time
	sealing  map[metadata.Incarnation]*sealing // belongs to run
	balance  *balance
	ctx      context.Context
	wg       sync.WaitGroup // everything spawned
	mu       struct {
		sync.Mutex
		ended bool
	}
}

// suspect is a broker whose connection to the leader ended.
type suspect struct {
	inc   metadata.Incarnation
	since time.Time
}

// newLeadership prepares a term.
func newLeadership(ctx context.Context, n *Node, v *voter) *leadership {
	l := &leadership{
		cfg: n.cfg, log: n.log, images: n.images,
		committer: newCommitter(v.raft, n.images),
		sessions:  newSessions(),
		moves:     newMoves(),
		quorum:    newQuorum(n, v),
		before:    v.lost.Load(),
		gate:      make(chan struct{}, 1),
		suspects:  make(chan suspect, 64),
		attempts:  map[metadata.Incarnation]time.Time{},
		sealing:   map[metadata.Incarnation]*sealing{},
		balance:   newBalance(),
		ctx:       ctx,
	}
	l.gate <- struct{}{}
	if !n.followed.Load() {
		l.cautious = time.Now().Add(n.cfg.RestartGrace)
	}
	return l
}

// enter takes the gate; the caller calls the function returned.
func (l *leadership) enter(ctx context.Context) (leave func(), err error) {
	select {
	case <-l.gate:
		return func() { l.gate <- struct{}{} }, nil
	case <-l.ctx.Done():
		return nil, errNotLeader
	case <-ctx.Done():
		return nil, errors.Join(errNotLeader, ctx.Err())
	}
}

// spawn runs f in the background; run waits for it. After the end it does
// nothing.
func (l *leadership) spawn(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.ended {
		l.wg.Go(f)
	}
}

// end waits for everything spawned.
func (l *leadership) end() {
	l.mu.Lock()
	l.mu.ended = true
	l.mu.Unlock()
	l.wg.Wait()
}

// begin prepares for calls. It says whether the term still lasts; if not,
// everything it started has ended.
func (l *leadership) begin() bool {
	l.spawn(func() { l.committer.run(l.ctx) })
	for {
		err := l.initCluster()
		if err == nil {
			break
		}
		if l.ctx.Err() == nil {
			l.log.Warn("cannot initialise cluster metadata, will try again", "err", err)
		}
		select {
		case <-time.After(maxBackoff):
		case <-l.ctx.Done():
			l.end()
			return false
		}
	}
	l.sessions.restart(l.images.image())
	if l.before != nil {
		l.sessions.follows(l.images.image(), *l.before, l.cfg)
	}
	l.moves.restart(l.images.image())
	return true
}

// run does the leader's duties until ctx ends.
func (l *leadership) run() {
	defer l.end()
	l.dialAll()
	l.spawn(func() { l.quorum.run(l.ctx) })
	tick := time.NewTimer(l.cfg.HeartbeatInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		changed := l.images.changed()
		l.reconcile(&last)
		tick.Reset(l.sessions.nextEnd(l.images.image(), time.Now(), l.cfg))
		select {
		case <-changed:
		case <-tick.C:
		case s := <-l.suspects:
			l.spawn(func() { l.investigate(s) })
		case <-l.ctx.Done():
			return
		}
	}
}

// initCluster gives the cluster its id, once in its life.
func (l *leadership) initCluster() error {
	if l.images.image().ClusterID() != "" {
		return nil
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	init := &metadatapb.InitCluster{
		ClusterId: base64.RawURLEncoding.EncodeToString(id[:]), Generation: 1, StoreUrl: l.cfg.StoreURL,
	}
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Features)) {
		init.Features = append(init.Features, &metadatapb.SnapFeature{Name: name, Level: l.cfg.Features[name]})
	}
	_, results, err := l.committer.propose(l.ctx, &metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: init}})
	if err != nil {
		return err
	}
	return results[0].Rejected()
}

// reconcile does what the image and the clock ask for now.
func (l *leadership) reconcile(last *time.Time) {
	now := time.Now()
	if now.Sub(*last) > l.cfg.SessionTimeout/2 {
		// This process was paused: it did not hear anyone, which says nothing
		// about them.
		l.sessions.restart(l.images.image())
	}
	*last = now
	img := l.images.image()
	for _, e := range l.sessions.expired(img, now, l.cfg, l.cautious) {
		if l.mayTry(e.inc, now) {
			l.fence(e.inc, e.reason)
		}
	}
	l.adopt(img, now)
	l.finishMoves()
	l.rebalance(img, now)
}

// sealPatience is how long a live sealer may take before another one is named
// as well (seal-3). One whose store works needs far less, and two at once do no harm.
const sealPatience = 10 * time.Second

// sealing is who was named to seal a WAL in this term, the newest last, and
// since when the newest has been at it.
type sealing struct {
	tried []metadata.Incarnation
	since time.Time
}

// stuck says whether the sealer of a fenced WAL had its time, as one whose way
// to the store is broken while its way to us is not, and somebody else lives who
// could do better.
func (l *leadership) stuck(img *metadata.Image, w metadata.WAL, now time.Time) bool {
	if w.State != metadata.Fenced {
		delete(l.sealing, w.Incarnation)
		return false
	}
	s := l.sealing[w.Incarnation]
	if s == nil {
		s = &sealing{}
		l.sealing[w.Incarnation] = s
	}
	if n := len(s.tried); n == 0 || s.tried[n-1] != w.Sealer {
		s.tried = slices.DeleteFunc(s.tried, func(i metadata.Incarnation) bool { return i == w.Sealer || !img.Live(i) })
		s.tried, s.since = append(s.tried, w.Sealer), now
	}
	if now.Sub(s.since) < sealPatience {
		return false
	}
	for b := range img.Brokers() {
		if !b.Fenced && b.Incarnation != w.Sealer {
			return true
		}
	}
	return false
}

// adopt names new sealers for fenced WALs whose sealer died or does not get
// done, and new owners for partitions that dead incarnations still hold.
func (l *leadership) adopt(img *metadata.Image, now time.Time) {
	for w := range img.WALs() {
		if w.State == metadata.Active {
			continue
		}
		stuck := l.stuck(img, w, now)
		orphaned := w.State == metadata.Fenced && !img.Live(w.Sealer)
		if !orphaned && !stuck && !hasOrphans(img, w.Incarnation) {
			continue
		}
		if !l.mayTry(w.Incarnation, now) {
			continue
		}
		var tried []metadata.Incarnation
		if s := l.sealing[w.Incarnation]; s != nil {
			tried = s.tried
		}
		if stuck {
			l.log.Warn("a sealer does not get done, another one is asked", "broker", w.Incarnation.String(), "sealer", w.Sealer.String())
			l.sealing[w.Incarnation].since = now // if only the same one can be named
		}
		l.submitFence(w.Incarnation, tried, func(img *metadata.Image) bool {
			w, ok := img.WAL(w.Incarnation)
			return ok && w.State != metadata.Active
		})
	}
}

// hasOrphans says whether a dead incarnation still holds partitions that
// others could take. Those of deleted topics stay with it to their end.
func hasOrphans(img *metadata.Image, dead metadata.Incarnation) bool {
	for p := range img.Owned(dead) {
		if !p.Deleting {
			return true
		}
	}
	return false
}

// mayTry spaces out proposals for one incarnation.
func (l *leadership) mayTry(inc metadata.Incarnation, now time.Time) bool {
	if t, ok := l.attempts[inc]; ok && now.Sub(t) < l.cfg.SessionTimeout/3 {
		return false
	}
	l.attempts[inc] = now
	return true
}

// fence ends a live incarnation.
func (l *leadership) fence(inc metadata.Incarnation, reason string) {
	owned := l.images.image().OwnedCount(inc)
	silence, begun := l.sessions.silence(inc), time.Now()
	if l.submitFence(inc, nil, func(img *metadata.Image) bool { return img.Live(inc) }) {
		l.images.count.fenced(silence, begun)
		l.log.Warn("broker fenced; its partitions move to other brokers",
			"broker", inc.String(), "reason", reason, "partitions", owned)
	}
}

// submitFence plans and commits under the gate, if still wanted then. tried are
// sealers to avoid.
func (l *leadership) submitFence(inc metadata.Incarnation, tried []metadata.Incarnation, wanted func(*metadata.Image) bool) bool {
	leave, err := l.enter(l.ctx)
	if err != nil {
		return false
	}
	defer leave()
	img := l.images.image()
	if !wanted(img) {
		return false
	}
	commands := planFence(img, inc, tried)
	if commands == nil {
		return false
	}
	_, results, err := l.propose(commands)
	if err != nil {
		l.log.Warn("cannot fence broker, will try again", "broker", inc.String(), "err", err)
		return false
	}
	for _, r := range results {
		if r.Err != nil {
			l.log.Error("fence was rejected", "broker", inc.String(), "err", r.Err)
			return false
		}
	}
	return true
}

// propose commits commands in order in as many entries as their size asks for.
// It returns when they are applied or the term ends, not when a caller gives up:
// the gate must not open on an image that is about to change.
func (l *leadership) propose(commands []*metadatapb.Command) (metadata.Index, []metadata.Result, error) {
	var index metadata.Index
	results := make([]metadata.Result, 0, len(commands))
	for len(commands) > 0 {
		n := fitting(commands)
		i, r, err := l.committer.propose(l.ctx, commands[:n]...)
		if err != nil {
			if len(results) > 0 && errors.Is(err, errNotLeader) {
				err = errors.New("leadership ended half way")
			}
			return index, results, err
		}
		index, results, commands = i, append(results, r...), commands[n:]
	}
	return index, results, nil
}

// fitting is how many of the commands fit in one entry, one at least.
func fitting(commands []*metadatapb.Command) int {
	size := 0
	for i, c := range commands {
		size += proto.Size(c) + 8
		if size > maxEntry && i > 0 {
			return i
		}
	}
	return len(commands)
}
