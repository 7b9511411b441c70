package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"ponor/metadata"
)

const (
	// raftTimeout bounds one call of Raft's transport.
	raftTimeout = 10 * time.Second
	// logCache is how many entries are kept in front of the bolt store, so that
	// replication to voters that are up to date reads no disk.
	logCache = 1024
)

// voter is this node's part in the quorum: a Raft and what it stands on.
type voter struct {
	id        raft.ServerID      // node and directory (K12)
	self      raft.ServerAddress // where others reach it
	directory DirectoryID
	log       logHistory
	raft      *raft.Raft
	transport *transport
	hangUp    context.CancelFunc // ends Raft's calls
	notify    chan bool          // leadership gained and lost, in order
	terms     chan struct{}      // closed once nothing waits for an entry any more
	closers   []io.Closer
	fresh     bool // no Raft state was found at start
	// lastLeader is the address (host:port) of whoever led last; it stays when
	// Raft knows none.
	lastLeader atomic.Value
	// lost is the last contact with the leader that was lost last, nil before.
	lost atomic.Pointer[contact]
}

// contact is when a leader was heard of.
type contact struct {
	address string // host:port
	at      time.Time
}

// newVoter opens the stores and starts Raft, which does nothing before it has
// a configuration: its own, or one that a bootstrapped leader brings.
func newVoter(cfg Config, m *mux, machine raft.FSM, cluster func() string) (_ *voter, err error) {
	v := &voter{notify: make(chan bool, 16), terms: make(chan struct{})}
	defer func() {
		if err != nil {
			v.closeStores()
		}
	}()
	logs, stable, snaps, err := v.openStores(cfg)
	if err != nil {
		return nil, err
	}
	had, err := raft.HasExistingState(logs, stable, snaps)
	if err != nil {
		return nil, fmt.Errorf("read raft state: %w", err)
	}
	v.fresh = !had
	if err := v.identify(cfg, logs, stable, snaps); err != nil {
		return nil, err
	}
	cache, err := raft.NewLogCache(logCache, logs)
	if err != nil {
		return nil, fmt.Errorf("make raft log cache: %w", err)
	}
	logger := newRaftLogger(cfg.Logger)
	ctx, hangUp := context.WithCancel(context.Background())
	v.hangUp = hangUp
	layer := &raftLayer{ctx: ctx, mux: m, self: v.self, dial: cfg.Dial, greeting: func() greeting {
		return greeting{cluster: cluster(), generation: v.log.generation()}
	}}
	v.transport = &transport{id: v.id, self: v.self, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: layer, MaxPool: 3, Timeout: raftTimeout, Logger: logger,
		// No pipelines: in v1.7.3 a pipeline whose reader gave up (a response timed
		// out while its connection could still be written to, or the follower
		// refused) is found out by a select that may just as well send once more,
		// and that send waits for ever. The follower then gets no entries until the
		// leader changes, and Shutdown never returns. Entries hold many commands
		// each, so one request in flight is enough.
		MaxRPCsInFlight: 1,
	})}
	rc := raftConfig(cfg)
	rc.LocalID = v.id
	rc.Logger, rc.NotifyCh = logger, v.notify
	v.raft, err = raft.NewRaft(rc, machine, cache, stable, snaps, v.transport)
	if err != nil {
		hangUp()
		_ = v.transport.Close()
		return nil, fmt.Errorf("start raft: %w", err)
	}
	return v, nil
}

// observe notes who leads, and when a leader that is lost was heard of. That is
// read before this voter gives anybody its vote, which Raft counts as contact, or
// a little later, which only gives the lost one more time.
func (v *voter) observe(o raft.Observation) {
	led, ok := o.Data.(raft.LeaderObservation)
	if !ok {
		return
	}
	if led.LeaderAddr != "" {
		_, address := dialAddress(led.LeaderAddr)
		v.lastLeader.Store(address)
	} else if address, ok := v.lastLeader.Load().(string); ok {
		v.lost.Store(&contact{address: address, at: v.raft.LastContact()})
	}
}

func raftConfig(cfg Config) *raft.Config {
	rc := raft.DefaultConfig()
	rc.HeartbeatTimeout, rc.ElectionTimeout = cfg.ElectionTimeout, cfg.ElectionTimeout
	rc.LeaderLeaseTimeout = cfg.ElectionTimeout / 2
	// How soon followers hear by Raft that an entry is committed. The leader pushes
	// committed entries itself (follow.go), so Raft's default of 50 ms would only
	// wake three idle processes forty times a second.
	rc.CommitTimeout = cfg.ElectionTimeout
	// Entries may be a MiB, and a voter that lags must get what one call brings
	// within raftTimeout.
	rc.MaxAppendEntries = 64
	rc.SnapshotThreshold = cfg.SnapshotEntries
	rc.TrailingLogs = cfg.TrailingLogs
	if cfg.SnapshotInterval > 0 {
		rc.SnapshotInterval = cfg.SnapshotInterval
	}
	// A leader that was removed goes on as a node without a vote.
	rc.ShutdownOnRemove = false
	rc.LogLevel = "WARN"
	return rc
}

func (v *voter) openStores(cfg Config) (raft.LogStore, raft.StableStore, raft.SnapshotStore, error) {
	if cfg.DataDir == "" {
		mem := raft.NewInmemStore()
		return mem, mem, raft.NewInmemSnapshotStore(), nil
	}
	bolt, err := openLog(cfg.DataDir)
	if err != nil {
		return nil, nil, nil, err
	}
	v.closers = append(v.closers, bolt)
	snaps, err := openSnapshots(cfg.DataDir, newRaftLogger(cfg.Logger))
	if err != nil {
		return nil, nil, nil, err
	}
	// The names of both, also if a process that was killed made them.
	if err := syncDir(cfg.DataDir); err != nil {
		return nil, nil, nil, fmt.Errorf("sync controller directory: %w", err)
	}
	if err := forgetHalfBootstrap(bolt, snaps); err != nil {
		return nil, nil, nil, err
	}
	return bolt, bolt, snaps, nil
}

// identify says who this server is, and of which history its log is.
func (v *voter) identify(cfg Config, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore) (err error) {
	if v.directory, err = storedDirectory(stable, v.fresh); err != nil {
		return err
	}
	v.id = serverID(cfg.NodeID, v.directory)
	v.self = raftAddress(v.id, cfg.AdvertiseController)
	first, err := logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("read raft log: %w", err)
	}
	list, err := snaps.List()
	if err != nil {
		return fmt.Errorf("list raft snapshots: %w", err)
	}
	if first > 1 && len(list) == 0 {
		return fmt.Errorf("the Raft log begins at entry %d, but the snapshot of what came before is gone: move the directory away and start with an empty one, the quorum brings this voter back", first)
	}
	return v.log.open(stable, v.fresh)
}

// shutdown hands leadership over if there is someone to take it, so that a
// planned stop costs no election timeout, and ends Raft.
//
// It waits for the term to end first. A Raft that shuts down forgets the entries
// on their way to the state machine without an answer, and who waits for one
// waits for ever; a Raft that goes on answers, if only with the loss of its
// lease when the others are out of reach.
func (v *voter) shutdown() error {
	<-v.terms
	if v.raft.State() == raft.Leader && len(v.voters()) > 1 {
		// Best effort: without it the others elect after their timeout.
		_ = v.raft.LeadershipTransfer().Error()
	}
	ended := v.raft.Shutdown()
	v.hangUp() // on servers that do not answer
	return errors.Join(ended.Error(), v.transport.Close())
}

func (v *voter) closeStores() {
	for _, c := range v.closers {
		_ = c.Close()
	}
}

// servers is the current configuration, empty before there is one.
func (v *voter) servers() []raft.Server {
	f := v.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// voters are those servers that have a vote.
func (v *voter) voters() []raft.Server {
	return slices.DeleteFunc(slices.Clone(v.servers()), func(s raft.Server) bool { return s.Suffrage != raft.Voter })
}

// voterIDs are the nodes that have a vote.
func (v *voter) voterIDs() []metadata.BrokerID {
	var ids []metadata.BrokerID
	for _, s := range v.voters() {
		ids = append(ids, nodeID(s.ID))
	}
	return ids
}

// votes says whether this server has a vote, as far as it knows.
func (v *voter) votes() bool {
	return slices.ContainsFunc(v.voters(), func(s raft.Server) bool { return s.ID == v.id })
}

// leader is who Raft believes leads; ok is false when it knows none.
func (v *voter) leader() (id metadata.BrokerID, address string, ok bool) {
	addr, sid := v.raft.LeaderWithID()
	if addr == "" {
		return -1, "", false
	}
	_, address = dialAddress(addr)
	return nodeID(sid), address, true
}
