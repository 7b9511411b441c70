// Package process assembles one Ponor node out of every other package and runs
// it: the only place that knows every type. Whoever starts a node (the command
// line, the simulation) opens what touches the outside, the store, the
// listeners and the dialer, and hands it in.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ponor/broker"
	"ponor/controller"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/locallog"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
)

// listenerName is the name of the one client listener.
const listenerName = "PLAINTEXT"

// defaultCache is CacheBytes if it is not said, in bytes.
const defaultCache = 256 << 20

// drainTimeout bounds what an orderly exit still waits for once partitions were
// handed over: appends and requests under way. Nobody was told yet that they
// succeeded, and what is in the store is found by whoever seals the WAL.
const drainTimeout = 3 * time.Second

// Config is what a node is made of. Bucket, Clients and NodeID are required;
// the zero value of the rest is its default.
type Config struct {
	// NodeID is unique in the cluster.
	NodeID metadata.BrokerID
	// Version is told to the cluster, informative.
	Version string
	// Bucket is the store, opened and probed. The node does not close it.
	Bucket objstore.Bucket
	// StoreURL names the store to people.
	StoreURL string
	// Clients is the listener for Kafka clients; Quorum the one for the
	// metadata quorum, nil on a node that has no vote. The node closes both.
	Clients, Quorum net.Listener
	// Advertise is the address, host:port, that clients are told; default is
	// the listener's.
	Advertise string
	// AdvertiseQuorum is the address that other nodes dial for the quorum;
	// default is the listener's.
	AdvertiseQuorum string
	// Join are the controllers of the cluster; empty for a single node.
	Join []string
	// DataDir keeps the quorum's log and local logs; empty keeps the quorum in
	// memory and serves no local topics.
	DataDir string
	// Zone is Kafka's broker.rack.
	Zone string
	// Dial reaches other nodes; nil is TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// SessionTimeout is how long a silent broker keeps its partitions; default
	// 3 s.
	SessionTimeout time.Duration
	// CacheBytes is the memory for records, default 256 MiB: three quarters for
	// recent ones, the rest for what is read back from the store.
	CacheBytes int64
	// WALBudget: see Budget of sharedlog.Config.
	WALBudget int64
	// PackBytes: see sharedlog.Config.
	PackBytes int64
	// MaxConns bounds client connections; default see rpc.ServerConfig.
	MaxConns int
	// TuneLogs, TunePartitions and TuneController may change what no other field
	// does, just before use; nil changes nothing. The simulation shortens periods
	// with them.
	TuneLogs       func(*sharedlog.Config)
	TunePartitions func(*partition.SetConfig)
	TuneController func(*controller.Config)
	// GenerationEvery is how often the node looks whether the cluster was restored from
	// a backup since, upon which it ends; default GenerationEvery.
	GenerationEvery time.Duration
	// AutoCreateTopics and DefaultPartitions are Kafka's
	// auto.create.topics.enable and num.partitions.
	AutoCreateTopics  bool
	DefaultPartitions int32

	// Level is the log level that clients may change; Logger nil discards.
	Level  *slog.LevelVar
	Logger *slog.Logger
}

// Node is one running process: its parts, in the order in which they start.
type Node struct {
	cfg    Config
	log    *slog.Logger
	ctl    *controller.Node
	local  *locallog.Store
	hosted hosted
	groups *coordinator.Shards[*group.Machine]
	meters *meters
	now    atomic.Pointer[life] // nil between incarnations

	ready    chan struct{} // closed when clients are served
	draining chan struct{} // closed when the node begins to stop
	aborted  context.Context
	abort    context.CancelFunc
	leaving  sync.Once
	leaveBy  time.Time // once leaving
}

// New checks the configuration and opens the quorum's stores. It owns the
// listeners from then on, also when it fails.
func New(cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, meters: &meters{store: counted.New(cfg.Bucket)}, log: cfg.Logger, ready: make(chan struct{}), draining: make(chan struct{})}
	n.aborted, n.abort = context.WithCancel(context.Background())
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	c := controller.Config{
		NodeID: cfg.NodeID, Voter: cfg.Quorum != nil, Join: cfg.Join,
		ControllerListener: cfg.Quorum, AdvertiseController: cfg.AdvertiseQuorum, Dial: cfg.Dial,
		Logger: n.log, StoreURL: cfg.StoreURL, DefaultPartitions: cfg.DefaultPartitions, SessionTimeout: cfg.SessionTimeout, HeartbeatInterval: cfg.SessionTimeout / 6,
	}
	if cfg.DataDir != "" && cfg.Quorum != nil {
		c.DataDir = filepath.Join(cfg.DataDir, "metadata")
	}
	if cfg.TuneController != nil {
		cfg.TuneController(&c)
	}
	var err error
	if n.ctl, err = controller.New(c); err != nil {
		n.closeListeners()
		return nil, err
	}
	return n, nil
}

// Ready is closed when clients are served.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Abort makes Run, whose context must have ended, give up whatever it still
// wanted to hand over. It ends the goroutines of a node, as the system does with
// those of a process that was killed.
func (n *Node) Abort() { n.abort() }

// step bounds one step of the end of an incarnation, and all of those of an exit,
// after the end of ctx, together.
func (n *Node) step(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Now().Add(drainTimeout)
	if ctx.Err() != nil {
		n.leaving.Do(func() { n.leaveBy = limit })
		limit = n.leaveBy
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	unlink := context.AfterFunc(n.aborted, cancel)
	return ctx, func() { unlink(); cancel() }
}

// Controller is the node's part in the metadata quorum.
func (n *Node) Controller() *controller.Node { return n.ctl }

func (n *Node) closeListeners() {
	for _, l := range []net.Listener{n.cfg.Clients, n.cfg.Quorum} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// advertised is the address that clients are told to dial.
func (n *Node) advertised() (metadata.Endpoint, error) {
	addr := n.cfg.Advertise
	if addr == "" {
		addr = n.cfg.Clients.Addr().String()
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return metadata.Endpoint{}, fmt.Errorf("advertise %q: write host:port", addr)
	}
	p, err := strconv.ParseInt(port, 10, 32)
	if err != nil || p < 1 || p > 65535 {
		return metadata.Endpoint{}, fmt.Errorf("advertise %q: port %q", addr, port)
	}
	return metadata.Endpoint{Name: listenerName, Host: host, Port: int32(p), Security: listenerName}, nil
}

// Run serves until ctx ends, then hands over in order: clients, partitions,
// store, quorum.
func (n *Node) Run(ctx context.Context) (err error) {
	defer n.closeListeners()
	endpoint, err := n.advertised()
	if err != nil {
		n.ctl.Close()
		return err
	}
	n.log.Info("starting", "version", n.cfg.Version, "listen", n.cfg.Clients.Addr().String(),
		"clients_dial", endpoint.Address(), "store", n.cfg.StoreURL,
		"quorum", n.cfg.Join, "broker", n.cfg.NodeID, "zone", n.cfg.Zone)
	ctlCtx, stopCtl := context.WithCancel(context.WithoutCancel(ctx))
	ctlDone := make(chan error, 1)
	go func() { ctlDone <- n.ctl.Run(ctlCtx) }()
	defer func() {
		stopCtl()
		err = errors.Join(err, <-ctlDone)
		n.ctl.Close()
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // the controller's end is the node's
		select {
		case e := <-ctlDone:
			ctlDone <- nil
			cancel(fmt.Errorf("controller: %w", e))
		case <-ctlCtx.Done():
		}
	}()
	err = n.serve(ctx, endpoint)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// serve waits for the cluster's identity, then answers clients while one
// incarnation after another hosts partitions.
func (n *Node) serve(ctx context.Context, endpoint metadata.Endpoint) (err error) {
	if err := n.waitCluster(ctx); err != nil {
		return ignoreCancel(ctx, err)
	}
	if err := n.claimStore(ctx); err != nil {
		return ignoreCancel(ctx, err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer n.beside(ctx, func(ctx context.Context) { n.endIfRestored(ctx, end) })()
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, objstore.ErrRestored) {
			err = cause
		}
	}()
	if err := n.openLocal(); err != nil {
		return err
	}
	if n.local != nil {
		defer func() {
			closeCtx, cancel := n.step(ctx)
			defer cancel()
			if err := n.local.Close(closeCtx); err != nil {
				n.log.Warn("closing local logs", "err", err)
			}
		}()
	}
	n.groups = n.coordinate()
	defer n.groups.Close()
	defer n.beside(ctx, n.tellDeletions)()
	api := n.broker()
	server, err := rpc.NewServer(n.serverConfig(append(append(api.APIs(listenerName), n.ctl.OperatorAPIs()...), n.metricsAPI(), n.groupAPI(), n.aheadAPI())))
	if err != nil {
		return fmt.Errorf("set up the server: %w", err)
	}
	n.meters.serving(api, server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.WithoutCancel(ctx), n.cfg.Clients) }()
	err = n.host(ctx, endpoint)
	close(n.draining)
	drain, cancel := n.step(ctx)
	defer cancel()
	if e := server.Shutdown(drain); e != nil {
		n.log.Warn("requests are cut off by the stop", "err", e)
	}
	if e := <-served; e != nil && !errors.Is(e, rpc.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve clients: %w", e))
	}
	return err
}

// writeStall is how long a client may take for 256 KiB of a reply. Replies to
// Fetch pin memory that the WAL's cache would reuse, for all the time that they
// are on their way: 26 KB/s is slow enough for a consumer.
const writeStall = 10 * time.Second

// serverConfig is how clients are served.
func (n *Node) serverConfig(apis []rpc.API) rpc.ServerConfig {
	return rpc.ServerConfig{APIs: apis, Logger: n.log, MaxConns: n.cfg.MaxConns, WriteStall: writeStall, OnReply: n.meters.requests.served}
}

// logsDir has the local logs.
func (n *Node) logsDir() string { return filepath.Join(n.cfg.DataDir, "logs") }

// openLocal opens the store of local logs; a node without a data directory
// has none.
func (n *Node) openLocal() error {
	if n.cfg.DataDir == "" {
		return nil
	}
	local, err := locallog.New(locallog.Config{Dir: n.logsDir()})
	if err != nil {
		return fmt.Errorf("open local logs: %w", err)
	}
	n.local = local
	return nil
}

// broker makes the API surface over this node's parts.
func (n *Node) broker() *broker.Broker {
	cfg := broker.Config{
		NodeID: n.cfg.NodeID, Meta: n.ctl, Partitions: &n.hosted, Admin: n.ctl, Groups: n.groups,
		AutoCreateTopics: n.cfg.AutoCreateTopics, StoreName: n.cfg.StoreURL, Draining: n.draining,
		BrokerConfigs: map[string]string{
			"broker.id": strconv.Itoa(int(n.cfg.NodeID)), "node.id": strconv.Itoa(int(n.cfg.NodeID)),
			"num.partitions":            strconv.Itoa(int(n.cfg.DefaultPartitions)),
			"auto.create.topics.enable": strconv.FormatBool(n.cfg.AutoCreateTopics),
			"broker.rack":               n.cfg.Zone,
		},
		LogLevel: n.cfg.Level, Logger: n.log,
	}
	if n.local != nil {
		cfg.LocalDir = n.logsDir()
	}
	return broker.New(cfg)
}

// host registers and hosts partitions until ctx ends; each time the
// registration ends (fenced while paused or cut off) it starts over as a new
// incarnation.
func (n *Node) host(ctx context.Context, endpoint metadata.Endpoint) error {
	reg := controller.Registration{Endpoints: []metadata.Endpoint{endpoint}, Zone: n.cfg.Zone, Version: n.cfg.Version}
	for ctx.Err() == nil {
		inc, err := n.ctl.Register(ctx, reg)
		if err != nil {
			return ignoreCancel(ctx, err)
		}
		n.meters.registrations.Inc()
		n.log.Info("registered", "broker", n.cfg.NodeID, "incarnation", inc.String())
		if err := n.live(ctx, inc); err != nil {
			return ignoreCancel(ctx, err)
		}
	}
	return nil
}

var errRegistrationEnded = errors.New("the cluster has ended the registration of this broker")

// logs is how an incarnation keeps its shared logs.
func (n *Node) logs(inc metadata.Incarnation) sharedlog.Config {
	cache := n.cfg.CacheBytes
	if cache == 0 {
		cache = defaultCache
	}
	logs := sharedlog.Config{Bucket: n.meters.store, Metrics: &n.meters.logs, Meta: n.ctl, Incarnation: inc,
		CacheBytes: cache - cache/4, ReadCacheBytes: cache / 4, Budget: n.cfg.WALBudget, PackBytes: n.cfg.PackBytes, Logger: n.log}
	if n.cfg.TuneLogs != nil {
		n.cfg.TuneLogs(&logs)
	}
	return logs
}

// partitions configures the partitions of one incarnation.
func (n *Node) partitions(inc metadata.Incarnation, shared *sharedlog.Store) partition.SetConfig {
	set := partition.SetConfig{Meta: n.ctl, Incarnation: inc, Shared: shared, Proof: shared, Metrics: &n.meters.partitions, Logger: n.log,
		Opened: n.groups.Opened, Closed: n.groups.Closed}
	if n.local != nil {
		set.Local = n.local
	}
	if n.cfg.TunePartitions != nil {
		n.cfg.TunePartitions(&set)
	}
	return set
}

// live is the life of one incarnation.
func (n *Node) live(ctx context.Context, inc metadata.Incarnation) error {
	fenced := n.ctl.Fenced()
	shared, err := sharedlog.New(n.logs(inc))
	if err != nil {
		return fmt.Errorf("open shared logs: %w", err)
	}
	set := partition.NewSet(n.partitions(inc, shared))
	meter := partition.NewMeter(set, controller.MaxBusiest)
	n.ctl.SetStats(func() controller.Stats {
		s := controller.Stats{OldestUnresolved: shared.OldestUnresolved(), Load: meter.Loads()}
		if since, err := shared.Trouble(); err != nil {
			s.Trouble, s.TroubleFor = troubleText(err), time.Since(since)
		}
		return s
	})
	n.ctl.SetSealer(guardedSealer{shared, n})
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	defer context.AfterFunc(n.aborted, stopStore)() // partitions wait for their logs as long as there is a store
	storeDone := make(chan error, 1)
	go func() { storeDone <- shared.Run(storeCtx) }()
	setCtx, stopSet := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSet()
	setDone := make(chan error, 1)
	go func() { setDone <- set.Run(setCtx) }()
	// What waits for a store that hangs must not hold up the end of the
	// incarnation, in whatever state this is.
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-fenced:
			shared.Fence(errRegistrationEnded)
		case <-storeCtx.Done():
		}
	}()
	mover := newMover(n, set)
	moved := make(chan struct{})
	go func() { defer close(moved); mover.run(setCtx) }()
	n.ctl.SetMover(mover.offer)
	n.hosted.store(set)
	n.now.Store(&life{inc: inc, shared: shared, set: set})
	n.markReady()
	select {
	case <-ctx.Done():
		n.drain(ctx, inc, fenced, shared.Fenced())
	case <-fenced:
		n.log.Warn("registration ended: another broker has the partitions now", "incarnation", inc.String())
	case <-shared.Fenced():
		n.log.Warn("write-ahead log is fenced: another broker has the partitions now", "incarnation", inc.String())
	}
	n.hosted.store(nil)
	n.now.Store(nil)
	closeCtx, cancel := n.step(ctx)
	defer cancel()
	stopSet()
	select { // partitions wait for their logs as long as those wait for the store
	case err = <-setDone:
		setDone <- nil
	case <-closeCtx.Done():
	}
	err = errors.Join(err, shared.Close(closeCtx))
	stopStore()
	if e := <-storeDone; e != nil && storeCtx.Err() == nil {
		err = errors.Join(err, e)
	}
	err = errors.Join(err, <-setDone)
	<-watched
	<-moved // a hand-over ends with the store at the latest
	if err != nil {
		n.log.Warn("closing an incarnation", "incarnation", inc.String(), "err", err)
	}
	if ctx.Err() == nil { // the store may know before the image does
		return n.waitFenced(ctx, inc, fenced, shared.FencedErr)
	}
	return nil
}

// markReady announces once that clients are served.
func (n *Node) markReady() {
	select {
	case <-n.ready:
	default:
		close(n.ready)
		n.log.Info("ready for clients", "listen", n.cfg.Clients.Addr().String())
	}
}

// waitFenced waits until the image shows that the incarnation ended. If the
// quorum says that it lives, nobody has fenced it but its own store, which no
// longer knows what it wrote (a failed fsync, foreign content under its name).
// Only a new process starts from what is really there, and while this one
// heartbeats nobody takes its partitions: that is an error.
func (n *Node) waitFenced(ctx context.Context, inc metadata.Incarnation, fenced <-chan struct{}, why func() error) error {
	ask, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-fenced:
			stop()
		case <-ask.Done():
		}
	}()
	// Without a quorum there is no answer, but nowhere to register either. Who put
	// a fence into the WAL saw the incarnation end first, so one answer is enough.
	if img, err := n.ctl.Barrier(ask); err == nil && img.Live(inc) {
		return fmt.Errorf("incarnation %s cannot go on, restart this node: %w", inc, why())
	}
	select {
	case <-fenced:
	case <-ctx.Done():
	}
	return nil
}

// hosted is the partition set of the present incarnation, for the API surface.
type hosted struct{ set atomic.Pointer[partition.Set] }

func (h *hosted) store(s *partition.Set) { h.set.Store(s) }

// Get returns a partition that can serve now.
func (h *hosted) Get(topic metadata.TopicID, number int32) (*partition.Partition, error) {
	if s := h.set.Load(); s != nil {
		return s.Get(topic, number)
	}
	return nil, fmt.Errorf("%w: this broker is not registered at the moment", partition.ErrNotLeader)
}

// Await is Get that waits a while for a partition that is opening.
func (h *hosted) Await(ctx context.Context, topic metadata.TopicID, number int32) (*partition.Partition, error) {
	if s := h.set.Load(); s != nil {
		return s.Await(ctx, topic, number)
	}
	return nil, fmt.Errorf("%w: this broker is not registered at the moment", partition.ErrNotLeader)
}
