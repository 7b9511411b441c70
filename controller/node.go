package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/rpc"
)

// Node is a process's part in the controller: its image of the cluster, its
// vote if it has one, its registration as a broker, and its way to the leader.
// All methods are safe for concurrent use. Those that need the leader wait for
// one, and work only while Run does.
type Node struct {
	cfg     Config
	log     *slog.Logger
	warn    *warner
	images  *images
	dir     *dataDir
	mux     *mux                  // nil without a controller listener
	vote    atomic.Pointer[voter] // nil without a vote, and before Run
	server  *server
	client  *client
	own     *own
	process metadata.Nonce // of this process, for Hello

	producers *producerIDs
	leading   atomic.Pointer[leadership] // nil while another node leads, or this one is not ready
	followed  atomic.Bool                // another node has led in this process's life
	role      *signal                    // the leader changed, here or elsewhere
	member    *signal                    // this process registered
	sealers   *signal

	closing  chan struct{} // closed when Run ends or Close is called
	stop     context.CancelCauseFunc
	ctx      context.Context // ended by stop
	running  atomic.Bool
	finished chan struct{} // closed when Run has ended
	close    sync.Once

	mu struct {
		sync.Mutex
		member *membership
		nonces map[metadata.Nonce]bool // every one this process registered with
		stats  func() Stats
		mover  func([]Move)
		sealer Sealer
	}
}

// New checks the configuration, locks the data directory and opens Raft's
// stores. Nothing happens on the network before Run.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure controller: %w", err)
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger, warn: newWarner(cfg.Logger), images: newImages(cfg.TailBytes),
		producers: newProducerIDs(),
		role:      newSignal(), member: newSignal(), sealers: newSignal(),
		closing: make(chan struct{}), finished: make(chan struct{}),
	}
	if _, err := rand.Read(n.process[:]); err != nil {
		return nil, fmt.Errorf("draw nonce: %w", err)
	}
	n.mu.nonces = map[metadata.Nonce]bool{}
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	n.server, n.client, n.own = &server{node: n}, newClient(n), newOwn(n)
	n.images.observe, n.images.installed, n.images.advanced = n.own.observe, n.own.installed, n.advanced
	if n.dir, err = openDataDir(cfg.DataDir, cfg.NodeID); err != nil {
		return nil, err
	}
	if cfg.ControllerListener != nil {
		n.mux = newMux(cfg.ControllerListener)
		n.mux.welcome = n.welcome
	}
	return n, nil
}

// advanced sees each new image, and the entry that made it unless a snapshot
// did.
func (n *Node) advanced(img *metadata.Image, e *metadatapb.Entry, results []metadata.Result) {
	n.own.advanced(img)
	if l := n.leading.Load(); l != nil {
		l.moves.observe(e, results)
	}
	if wished(img, e, n.cfg.NodeID) {
		n.AskMoves()
	}
}

// fail ends Run with err.
func (n *Node) fail(err error) { n.stop(err) }

// Run does everything until ctx ends or the node must stop: ErrSuperseded,
// ErrWentBack, ErrWrongCluster, ErrDiverged, a directory from before the metadata
// was restored, or trouble with its disk. Leaving
// in order, a leader hands over first.
func (n *Node) Run(ctx context.Context) error {
	if !n.running.CompareAndSwap(false, true) {
		return errors.New("run controller: it ran before")
	}
	defer close(n.finished)
	defer n.shut()
	unlink := context.AfterFunc(ctx, func() { n.stop(context.Cause(ctx)) })
	defer unlink()

	var wg sync.WaitGroup
	defer wg.Wait()
	loops, cancel := context.WithCancel(n.ctx)
	defer cancel()
	spawn := func(f func(context.Context)) {
		wg.Add(1)
		go func() { defer wg.Done(); f(loops) }()
	}
	endServer, err := n.serve(spawn)
	if err != nil {
		return err
	}
	defer endServer()
	if err := n.startRaft(spawn); err != nil {
		return err
	}
	spawn(n.runIdentity)
	spawn(n.runFollow)
	spawn(n.runMembership)
	spawn(n.runHeartbeats)
	spawn(n.runSealing)
	spawn(n.runProducerIDs)
	spawn(n.own.run)

	<-n.ctx.Done()
	err = context.Cause(n.ctx)
	if v := n.vote.Load(); v != nil {
		if e := v.shutdown(); e != nil {
			n.log.Warn("raft did not stop cleanly", "err", e)
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// serve starts the controller listener, if there is one, and returns what ends
// it.
func (n *Node) serve(spawn func(func(context.Context))) (end func(), err error) {
	if n.mux == nil {
		return func() {}, nil
	}
	srv, err := rpc.NewServer(rpc.ServerConfig{APIs: n.APIs(), Logger: n.log, Linger: 10 * time.Millisecond})
	if err != nil {
		return nil, fmt.Errorf("make controller server: %w", err)
	}
	n.mux.rpc = srv.ServeConn
	spawn(func(ctx context.Context) {
		if err := n.mux.run(ctx); err != nil {
			n.fail(fmt.Errorf("serve controller listener: %w", err))
		}
	})
	return func() {
		n.mux.close()
		srv.Close()
	}, nil
}

func (n *Node) startRaft(spawn func(func(context.Context))) error {
	if !n.cfg.Voter {
		return nil
	}
	v, err := newVoter(n.cfg, n.mux, &fsm{images: n.images, fail: n.fail}, n.clusterID)
	if err != nil {
		return err
	}
	n.vote.Store(v)
	observations := make(chan raft.Observation, 64)
	v.raft.RegisterObserver(raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	spawn(func(ctx context.Context) {
		for {
			select {
			case o := <-observations:
				v.observe(o)
				n.role.notify()
			case <-ctx.Done():
				return
			}
		}
	})
	spawn(func(ctx context.Context) { defer close(v.terms); n.runTerms(ctx, v) })
	spawn(func(ctx context.Context) { n.bootstrap(ctx, v) })
	return nil
}

// runTerms leads while Raft says so.
func (n *Node) runTerms(ctx context.Context, v *voter) {
	end := func() {}
	for {
		select {
		case leader := <-v.notify:
			end()
			end = func() {}
			if leader {
				end = n.beginTerm(ctx, v)
			}
		case <-ctx.Done():
			end()
			return
		}
	}
}

// beginTerm leads in the background; end stops that and waits.
func (n *Node) beginTerm(ctx context.Context, v *voter) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Everything that earlier leaders committed is applied after this.
		if err := v.raft.Barrier(0).Error(); err != nil || ctx.Err() != nil {
			return
		}
		l := newLeadership(ctx, n, v)
		if !l.begin() {
			return
		}
		n.leading.Store(l)
		n.role.notify()
		n.log.Info("leading the cluster", "broker", n.cfg.NodeID)
		l.run()
		n.leading.Store(nil)
		n.role.notify()
	}()
	return func() { cancel(); <-done }
}

// runIdentity binds the data directory to the cluster once its id is known.
func (n *Node) runIdentity(ctx context.Context) {
	for {
		changed := n.Changed()
		if id := n.Image().ClusterID(); id != "" {
			err := n.dir.claim(id)
			if v := n.vote.Load(); v != nil && err == nil {
				err = n.dir.writeMetaProperties(id, n.cfg.NodeID, v.directory)
			}
			if err != nil {
				n.fail(err)
			}
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends Run and waits for it, or releases what New took if Run was never
// called.
func (n *Node) Close() {
	n.stop(ErrClosed)
	if n.running.CompareAndSwap(false, true) {
		n.shut()
		close(n.finished)
	}
	<-n.finished
}

// shut releases everything; the loops have ended.
func (n *Node) shut() {
	n.close.Do(func() {
		n.stop(ErrClosed)
		close(n.closing)
		n.client.close()
		if n.mux != nil {
			n.mux.close()
		}
		if v := n.vote.Load(); v != nil {
			v.closeStores()
		}
		n.dir.close()
	})
}

// Image is the newest image this process knows (K1).
func (n *Node) Image() *metadata.Image { return n.images.image() }

// Changed is closed at the next change of the image. Fetch it before looking
// at the image, and again each time.
func (n *Node) Changed() <-chan struct{} { return n.images.changed() }

// Wait returns when the local image is at or above index.
func (n *Node) Wait(ctx context.Context, index metadata.Index) error {
	return n.images.wait(ctx, index)
}

// clusterID is the cluster this process belongs to, empty while unknown.
func (n *Node) clusterID() string {
	if id := n.Image().ClusterID(); id != "" {
		return id
	}
	return n.dir.clusterID()
}

// raftLeader is who this voter's Raft follows.
func (n *Node) raftLeader() (metadata.BrokerID, string, bool) {
	v := n.vote.Load()
	if v == nil {
		return -1, "", false
	}
	return v.leader()
}

// leaderHint is the leader as far as this node knows.
func (n *Node) leaderHint() (metadata.BrokerID, string, bool) {
	if id, address, ok := n.raftLeader(); ok {
		return id, address, true
	}
	n.client.mu.Lock()
	address := n.client.mu.leader
	n.client.mu.Unlock()
	if v := n.vote.Load(); address == "" || v == nil && n.cfg.Voter || v != nil && v.votes() {
		return -1, "", false
	}
	for b := range n.Image().Brokers() {
		if b.Voter && b.ControllerAddress == address {
			return b.ID, address, true
		}
	}
	return -1, address, true
}
