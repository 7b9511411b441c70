package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"ponor/metadata"
	"ponor/partition"
)

// Config configures a Node. The zero value of every optional field is its
// default.
type Config struct {
	// NodeID is this process's node id, unique in the cluster, >= 0.
	NodeID metadata.BrokerID
	// Voter makes the node able to vote: a member of the quorum that its join list
	// forms, or one that AddVoter takes into a quorum that exists. It needs
	// ControllerListener and AdvertiseController then.
	Voter bool
	// Join are the controller addresses (host:port) of all voters. Identical
	// lists that name all their nodes form a quorum without another step. Empty
	// on a voter: a quorum of one. Once there is a quorum, the list only says
	// where to look for it: it may be old, and a voter that was added later need
	// not be in it. A node that is no voter needs at least one.
	Join []string
	// ControllerListener takes Raft connections and the cluster's own calls. The
	// Node closes it.
	ControllerListener net.Listener
	// AdvertiseController is the address (host:port) under which other nodes
	// reach ControllerListener; default is the listener's own address, which is
	// right only where that is not a wildcard.
	AdvertiseController string
	// DataDir keeps the Raft log, snapshots and the node's identity. Empty keeps
	// all in memory: a voter that restarts so has lost its vote, so this is for
	// tests and demos. A node that is no voter needs none.
	DataDir string
	// Dial connects to other nodes; default is net.Dialer with TCP keep-alive.
	// A refused connection must be reported as syscall.ECONNREFUSED for a dead
	// process to be noticed at once.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets warnings an operator should see; nil discards.
	Logger *slog.Logger
	// StoreURL is noted in the image when the cluster is made; informative.
	StoreURL string
	// Features are the feature levels that a new cluster begins with, beside
	// those that metadata sets itself. They mean nothing to a cluster that
	// exists.
	Features map[string]int32

	// DefaultPartitions is how many partitions a topic gets that is created
	// through this node without a count; default 1. The dynamic broker config
	// num.partitions goes before it.
	DefaultPartitions int32

	// HeartbeatInterval is how often a registered broker tells the leader that it
	// lives; default 500 ms. Shorter costs idle CPU on the leader.
	HeartbeatInterval time.Duration
	// SessionTimeout is how long the leader waits for a silent broker before it
	// fences it; default 3 s. Shorter than a long GC or disk stall causes
	// takeovers without need, longer leaves partitions of a hung broker (not of
	// a killed one, which is noticed at once) without an owner that long.
	SessionTimeout time.Duration
	// RestartGrace is how long the first leader after a restart of the whole
	// cluster waits for brokers it has not heard of yet, so that the restart does
	// not shuffle all partitions; default 10 s, at least SessionTimeout.
	RestartGrace time.Duration
	// StuckTimeout is the age of a broker's oldest unresolved WAL slot at which
	// it is fenced if the store works for the others; default 15 s.
	StuckTimeout time.Duration
	// ElectionTimeout is Raft's heartbeat and election timeout; default 1 s.
	// It must exceed the worst fsync stall of a voter's disk, because
	// heartbeats queue behind writes (see transport.go). A killed leader is
	// replaced far sooner, see succession.go.
	ElectionTimeout time.Duration
	// SnapshotEntries is after how many Raft entries a snapshot is taken and
	// the log cut; default 131072. Entries hold many commands each.
	SnapshotEntries uint64
	// SnapshotInterval is about how often it is looked whether a snapshot is due;
	// default 2 min.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay after a snapshot, for voters that
	// lag; default 10240.
	TrailingLogs uint64
	// TailBytes bounds the recent entries kept in memory for nodes that follow;
	// default 16 MiB. One that lags more gets a snapshot.
	TailBytes int
}

func (c Config) withDefaults() (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.HeartbeatInterval, 500*time.Millisecond)
	def(&c.SessionTimeout, 3*time.Second)
	def(&c.RestartGrace, max(10*time.Second, c.SessionTimeout))
	def(&c.StuckTimeout, 15*time.Second)
	def(&c.ElectionTimeout, time.Second)
	if c.SnapshotEntries == 0 {
		c.SnapshotEntries = 131072
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 10240
	}
	if c.TailBytes <= 0 {
		c.TailBytes = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}
		c.Dial = d.DialContext
	}
	if c.AdvertiseController == "" && c.ControllerListener != nil {
		c.AdvertiseController = c.ControllerListener.Addr().String()
	}
	return c, c.validate()
}

func (c Config) validate() error {
	switch {
	case c.NodeID < 0:
		return fmt.Errorf("node id %d is negative", c.NodeID)
	case c.Voter && c.ControllerListener == nil:
		return errors.New("a voter needs a controller listener")
	case !c.Voter && len(c.Join) == 0:
		return errors.New("a node that is no voter needs the address of at least one voter to join")
	case c.HeartbeatInterval*2 > c.SessionTimeout:
		return fmt.Errorf("session timeout %v is less than two heartbeat intervals of %v", c.SessionTimeout, c.HeartbeatInterval)
	}
	seen := map[string]bool{}
	for _, a := range c.Join {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("read join address %q: %w", a, err)
		}
		if seen[a] {
			return fmt.Errorf("join address %s is listed twice", a)
		}
		seen[a] = true
	}
	return nil
}

// Stats is what a broker reports with its heartbeats.
type Stats struct {
	// OldestUnresolved is the age of the oldest WAL slot without an outcome.
	OldestUnresolved time.Duration
	// Trouble is why the store does not take its writes, empty if it does, and for
	// how long that has been so.
	Trouble    string
	TroubleFor time.Duration
	// Load is how busy it was lately; nil if that is not known. It is sent when it
	// is another one than before.
	Load *partition.Loads
}
