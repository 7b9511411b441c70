package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"ponor/broker"
	"ponor/controller"
	"ponor/locallog"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
)

// listenerName is the name of the one client listener.
const listenerName = "PLAINTEXT"

// drainTimeout bounds each step of an orderly exit.
const drainTimeout = 10 * time.Second

// node is one running process: its parts, in the order in which they start.
type node struct {
	set    settings
	log    *slog.Logger
	level  *slog.LevelVar
	bucket objstore.Bucket
	ownsBk bool
	ctl    *controller.Node
	local  *locallog.Store
	hosted hosted

	clients net.Listener
	quorum  net.Listener // nil on a node that is no controller

	ready chan struct{} // closed when clients are served
}

// newNode opens what can fail early: store, directories and ports. A nil bucket
// is opened from the settings.
func newNode(ctx context.Context, set settings, bucket objstore.Bucket, log *slog.Logger, level *slog.LevelVar) (*node, error) {
	n := &node{set: set, log: log, level: level, bucket: bucket, ready: make(chan struct{})}
	ok := false
	defer func() {
		if !ok {
			n.release()
		}
	}()
	var err error
	if n.bucket == nil {
		if n.bucket, err = openStore(ctx, set.Store, fmt.Sprint("node-", set.NodeID), log); err != nil {
			return nil, err
		}
		n.ownsBk = true
	}
	var lc net.ListenConfig
	if n.clients, err = lc.Listen(ctx, "tcp", set.Listen); err != nil {
		return nil, fmt.Errorf("listen for clients: %w; choose another --listen or stop what has the port", err)
	}
	if set.controller() {
		if n.quorum, err = lc.Listen(ctx, "tcp", set.ControllerListen); err != nil {
			return nil, fmt.Errorf("listen for the quorum: %w; choose another --controller-listen or stop what has the port", err)
		}
	}
	cfg := controller.Config{
		NodeID: metadata.BrokerID(set.NodeID), Voter: set.controller(), Join: set.Join,
		ControllerListener: n.quorum, AdvertiseController: set.ControllerAdvert,
		Logger: log, StoreURL: set.Store, SessionTimeout: set.SessionTimeout, HeartbeatInterval: set.SessionTimeout / 6,
	}
	if set.controller() && set.Store != "mem:" {
		cfg.DataDir = set.DataDir + "/metadata"
	}
	if n.ctl, err = controller.New(cfg); err != nil {
		return nil, err
	}
	ok = true
	return n, nil
}

// release closes what newNode opened.
func (n *node) release() {
	for _, l := range []net.Listener{n.clients, n.quorum} {
		if l != nil {
			_ = l.Close()
		}
	}
	if n.bucket != nil && n.ownsBk {
		_ = n.bucket.Close()
	}
}

// advertised is the address that clients are told to dial.
func (n *node) advertised() (metadata.Endpoint, error) {
	addr := n.set.Advertise
	if addr == "" {
		addr = n.clients.Addr().String()
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return metadata.Endpoint{}, usagef("advertise %q: write host:port", addr)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return metadata.Endpoint{}, usagef("clients cannot dial %s: with --listen on all interfaces say --advertise host:port", addr)
	}
	p, err := strconv.ParseInt(port, 10, 32)
	if err != nil || p < 1 || p > 65535 {
		return metadata.Endpoint{}, usagef("advertise %q: port %q", addr, port)
	}
	return metadata.Endpoint{Name: listenerName, Host: host, Port: int32(p), Security: listenerName}, nil
}

// run serves until ctx ends, then hands over in order: clients, partitions,
// store, quorum.
func (n *node) run(ctx context.Context) (err error) {
	defer n.release()
	endpoint, err := n.advertised()
	if err != nil {
		n.ctl.Close()
		return err
	}
	n.log.Info("starting", "version", version(), "listen", n.clients.Addr().String(),
		"clients_dial", fmt.Sprintf("%s:%d", endpoint.Host, endpoint.Port), "store", n.set.Store,
		"quorum", n.set.Join, "broker", n.set.NodeID, "zone", n.set.Zone)
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
func (n *node) serve(ctx context.Context, endpoint metadata.Endpoint) error {
	if err := n.waitCluster(ctx); err != nil {
		return ignoreCancel(ctx, err)
	}
	if err := objstore.Claim(ctx, n.bucket, n.ctl.Image().ClusterID()); err != nil {
		return ignoreCancel(ctx, err)
	}
	if err := n.openLocal(); err != nil {
		return err
	}
	if n.local != nil {
		defer func() {
			closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
			defer cancel()
			if err := n.local.Close(closeCtx); err != nil {
				n.log.Warn("closing local logs", "err", err)
			}
		}()
	}
	server, err := rpc.NewServer(rpc.ServerConfig{APIs: n.broker().APIs(listenerName), Logger: n.log, MaxConns: int(n.set.MaxConnections)})
	if err != nil {
		return fmt.Errorf("set up the server: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.WithoutCancel(ctx), n.clients) }()
	err = n.host(ctx, endpoint)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if e := server.Shutdown(drain); e != nil {
		server.Close()
	}
	if e := <-served; e != nil && !errors.Is(e, rpc.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve clients: %w", e))
	}
	return err
}

// ignoreCancel is nil when ctx was ended by a signal: leaving is no error.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// waitCluster returns once this node knows which cluster it belongs to.
func (n *node) waitCluster(ctx context.Context) error {
	for {
		changed := n.ctl.Changed()
		if n.ctl.Image().ClusterID() != "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openLocal opens the store of local logs; a node without a data directory
// has none.
func (n *node) openLocal() error {
	if n.set.Store == "mem:" || !n.set.controller() {
		return nil
	}
	local, err := locallog.New(locallog.Config{Dir: n.set.DataDir + "/logs"})
	if err != nil {
		return fmt.Errorf("open local logs: %w", err)
	}
	n.local = local
	return nil
}

// broker makes the API surface over this node's parts.
func (n *node) broker() *broker.Broker {
	cfg := broker.Config{
		NodeID: metadata.BrokerID(n.set.NodeID), Meta: n.ctl, Partitions: &n.hosted, Admin: n.ctl,
		AutoCreateTopics: n.set.AutoCreateTopics, StoreName: n.set.Store,
		BrokerConfigs: map[string]string{
			"broker.id": strconv.Itoa(int(n.set.NodeID)), "node.id": strconv.Itoa(int(n.set.NodeID)),
			"num.partitions":            strconv.Itoa(int(n.set.DefaultPartitions)),
			"auto.create.topics.enable": strconv.FormatBool(n.set.AutoCreateTopics),
			"broker.rack":               n.set.Zone,
		},
		LogLevel: n.level, Logger: n.log,
	}
	if n.local != nil {
		cfg.LocalDir = n.set.DataDir + "/logs"
	}
	return broker.New(cfg)
}

// host registers and hosts partitions until ctx ends; each time the
// registration ends (fenced while paused or cut off) it starts over as a new
// incarnation.
func (n *node) host(ctx context.Context, endpoint metadata.Endpoint) error {
	reg := controller.Registration{Endpoints: []metadata.Endpoint{endpoint}, Zone: n.set.Zone, Version: version()}
	for ctx.Err() == nil {
		inc, err := n.ctl.Register(ctx, reg)
		if err != nil {
			return ignoreCancel(ctx, err)
		}
		n.log.Info("registered", "broker", n.set.NodeID, "incarnation", inc.String())
		if err := n.live(ctx, inc); err != nil {
			return ignoreCancel(ctx, err)
		}
	}
	return nil
}

// live is the life of one incarnation.
func (n *node) live(ctx context.Context, inc metadata.Incarnation) error {
	fenced := n.ctl.Fenced()
	shared, err := sharedlog.New(sharedlog.Config{Bucket: n.bucket, Meta: n.ctl, Incarnation: inc,
		CacheBytes: n.set.CacheBytes, Budget: n.set.WALBudget, Logger: n.log})
	if err != nil {
		return fmt.Errorf("open shared logs: %w", err)
	}
	setCfg := partition.SetConfig{Meta: n.ctl, Incarnation: inc, Shared: shared, Logger: n.log}
	if n.local != nil {
		setCfg.Local = n.local
	}
	set := partition.NewSet(setCfg)
	n.ctl.SetStats(func() controller.Stats { return controller.Stats{OldestUnresolved: shared.OldestUnresolved()} })
	n.ctl.SetSealer(shared)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	storeDone := make(chan error, 1)
	go func() { storeDone <- shared.Run(storeCtx) }()
	setCtx, stopSet := context.WithCancel(ctx)
	defer stopSet()
	setDone := make(chan error, 1)
	go func() { setDone <- set.Run(setCtx) }()
	n.hosted.store(set)
	n.markReady(ctx, set)
	select {
	case <-ctx.Done():
	case <-fenced:
		n.log.Warn("registration ended: another broker has the partitions now", "incarnation", inc.String())
	case <-shared.Fenced():
		n.log.Warn("write-ahead log is fenced: another broker has the partitions now", "incarnation", inc.String())
	}
	n.hosted.store(nil)
	stopSet()
	err = <-setDone
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err = errors.Join(err, shared.Close(closeCtx))
	stopStore()
	if e := <-storeDone; e != nil && storeCtx.Err() == nil {
		err = errors.Join(err, e)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("closing an incarnation", "incarnation", inc.String(), "err", err)
		err = nil
	}
	if ctx.Err() == nil { // the store may know before the image does
		n.waitFenced(ctx, fenced)
	}
	return err
}

// markReady announces once that clients are served.
func (n *node) markReady(context.Context, *partition.Set) {
	select {
	case <-n.ready:
	default:
		close(n.ready)
	}
}

// waitFenced waits until the controller knows that the incarnation ended.
func (n *node) waitFenced(ctx context.Context, fenced <-chan struct{}) {
	select {
	case <-fenced:
	case <-ctx.Done():
	}
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
