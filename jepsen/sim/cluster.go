package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ponor/cmd/node/process"
	"ponor/controller"
	"ponor/internal/crashfs"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
)

const (
	netLatency   = 200 * time.Microsecond
	storeLatency = 2 * time.Millisecond
	// respawn is how long whoever runs the processes waits before it starts one
	// again that ended by itself.
	respawn = time.Second
	// dying bounds how long the goroutines of a dead process go on in virtual
	// time; more means one of them waits for something that cannot come.
	dying = 90 * time.Second
)

// cluster is a set of nodes on one network and one store.
type cluster struct {
	net    *Network
	store  *storeWorld
	time   *timeline
	seed   uint64
	base   string // directory for the quorum's logs
	join   []string
	plants Options

	nodes []*node
	mu    struct {
		sync.Mutex
		mem     *mem.Bucket     // the store, or
		fs      *crashfs.FS     // the file system under it
		buckets []*fault.Bucket // every one ever made
		rng     *rand.Rand
		leaving bool
		deaths  int
		exits   []error // of processes that ended by themselves
	}
}

// node is one machine of the cluster and the process that runs on it now.
type node struct {
	c     *cluster
	id    int
	name  string
	voter bool // from the beginning
	able  bool // to vote
	log   *logBuffer

	mu struct {
		sync.Mutex
		run  *running // nil while there is none
		down bool     // must stay down
		away bool     // a guest that is not there
	}
}

// running is a process from its start until its goroutines have ended.
type running struct {
	*process.Node
	life   *life
	faults *fault.Bucket
	cancel context.CancelFunc
	done   chan struct{}
}

func newCluster(seed uint64, base string, dirStore bool, voters, brokers int, tl *timeline) *cluster {
	c := &cluster{net: NewNetwork(seed, netLatency), store: newStoreWorld(seed, storeLatency), time: tl, seed: seed, base: base}
	c.mu.rng = rand.New(rand.NewPCG(seed, 3))
	if dirStore {
		c.mu.fs = crashfs.New()
		if err := c.mu.fs.Mkdir("/store"); err != nil {
			panic(err) // an empty file system takes a directory
		}
		if err := c.mu.fs.SyncDir("/"); err != nil {
			panic(err)
		}
	} else {
		c.mu.mem = mem.New()
	}
	for i := 1; i <= voters+brokers+1; i++ {
		n := &node{c: c, id: i, name: fmt.Sprintf("n%d", i), voter: i <= voters, able: i <= voters+brokers, log: &logBuffer{}}
		c.nodes = append(c.nodes, n)
		n.mu.away = i > voters+brokers // the last one is a guest
		if n.voter {
			c.join = append(c.join, n.name+":9093")
		}
	}
	return c
}

// seeds are the addresses that clients begin with.
func (c *cluster) seeds() []string {
	var s []string
	for _, n := range c.nodes {
		s = append(s, n.name+":9092")
	}
	return s
}

// bucket opens the store for one process.
func (c *cluster) bucket(host string) (objstore.Bucket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b objstore.Bucket = c.mu.mem
	if c.mu.fs != nil {
		d, err := dir.New("/store", dir.Options{Owner: host, FS: c.mu.fs})
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		b = d
	}
	return b, nil
}

// start starts the node's process.
func (n *node) start() error {
	c := n.c
	p := newLife(n.name)
	inner, err := c.bucket(n.name)
	if err != nil {
		return err
	}
	if c.plants.Plant != nil {
		inner = c.plants.Plant(inner, p.dead)
	}
	c.mu.Lock()
	faults := fault.New(inner, c.mu.rng.Uint64())
	c.mu.buckets = append(c.mu.buckets, faults)
	c.mu.Unlock()
	clients, err := c.net.Listen(p, n.name+":9092")
	if err != nil {
		return err
	}
	cfg := process.Config{
		NodeID: metadata.BrokerID(n.id), Version: "sim", Bucket: c.store.view(p, faults), StoreURL: "sim:",
		Clients: clients, Join: c.join, Dial: c.net.Dialer(p), Zone: fmt.Sprintf("z%d", n.id),
		CacheBytes: 4 << 20, WALBudget: 8 << 20, DefaultPartitions: 1, TuneLogs: c.tuneLogs, TunePartitions: tunePartitions, TuneController: tuneController,
		Logger: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if n.able {
		if cfg.Quorum, err = c.net.Listen(p, n.name+":9093"); err != nil {
			return err
		}
		cfg.DataDir = filepath.Join(c.base, n.name)
		if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
			return err
		}
	}
	proc, err := process.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Node: proc, life: p, faults: faults, cancel: cancel, done: make(chan struct{})}
	n.mu.Lock()
	n.mu.run = r
	n.mu.Unlock()
	go n.supervise(ctx, r)
	return nil
}

// supervise runs the process, and starts the next one if it ends by itself.
func (n *node) supervise(ctx context.Context, r *running) {
	err := r.Run(ctx)
	byItself := ctx.Err() == nil
	alive := !r.life.isDead()
	r.life.die()
	r.cancel()
	n.mu.Lock()
	if n.mu.run == r {
		n.mu.run = nil
	}
	n.mu.Unlock()
	if alive {
		n.c.net.bury(n.name)
	}
	close(r.done)
	if err != nil && alive {
		n.c.time.add("%s ended: %v", n.name, err)
	}
	if !byItself {
		return
	}
	n.c.exit(err)
	time.Sleep(respawn)
	n.mu.Lock()
	again := n.mu.run == nil && !n.mu.down
	n.mu.Unlock()
	if again && !n.c.isLeaving() {
		n.c.time.add("%s starts again by itself", n.name)
		n.restart()
	}
}

// exit notes a process that ended by itself.
func (c *cluster) exit(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.exits = append(c.mu.exits, err)
}

func (c *cluster) isLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.leaving
}

// isAway says if the node is a guest that is not there.
func (n *node) isAway() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.away
}

// setAway has a guest come or go; it neither starts nor stops it.
func (n *node) setAway(away bool) {
	n.mu.Lock()
	n.mu.away = away
	n.mu.Unlock()
}

// members are the nodes that belong to the cluster now.
func (c *cluster) members() (list []*node) {
	for _, n := range c.nodes {
		if !n.isAway() {
			list = append(list, n)
		}
	}
	return list
}

// restart starts the process again, trying until its machine lets it.
func (n *node) restart() {
	n.mu.Lock()
	n.mu.down = n.mu.away
	skip := n.mu.run != nil || n.mu.away
	n.mu.Unlock()
	if skip {
		return
	}
	for range 100 {
		err := n.start()
		if err == nil {
			n.c.time.add("%s starts", n.name)
			return
		}
		n.c.time.add("%s does not start: %v", n.name, err)
		time.Sleep(respawn)
	}
}

// kill ends the process as kill -9 does (Z1). Silent: its machine dies with it,
// so that nobody is told until it is back; the function it returns lets the
// machine answer again. It returns when the process's goroutines have ended.
func (n *node) kill(silent bool) (machine func()) {
	n.mu.Lock()
	r := n.mu.run
	n.mu.down = true
	n.mu.Unlock()
	machine = func() {}
	if r == nil {
		return machine
	}
	n.c.mu.Lock()
	n.c.mu.deaths++
	n.c.mu.Unlock()
	var in, out func()
	if silent {
		in, out = n.c.net.Block([]string{""}, []string{n.name}), n.c.net.Block([]string{n.name}, []string{""})
		machine = func() {
			n.c.net.Reset(n.name, "")
			in()
			out()
		}
	}
	r.life.die()
	if !silent {
		n.c.net.bury(n.name)
	}
	r.cancel()
	r.Abort()
	select {
	case <-r.done:
	case <-time.After(dying):
		// A bubble cannot end before its goroutines: the trace shows who hangs.
		panic(fmt.Sprintf("seed %d: goroutines of a dead process on %s did not end within %v\n%s", n.c.seed, n.name, dying, n.c.time))
	}
	return machine
}

// stop ends the process in order.
func (n *node) stop(within time.Duration) {
	n.mu.Lock()
	r := n.mu.run
	n.mu.down = true
	n.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(within):
		n.c.time.violation("%s did not stop in order within %v", n.name, within)
		n.kill(false)
	}
}

// current is the living process, nil if there is none.
func (n *node) current() *running {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.run == nil || n.mu.run.life.isDead() {
		return nil
	}
	return n.mu.run
}

// image is what the node knows, nil if it does not run.
func (n *node) image() *metadata.Image {
	if r := n.current(); r != nil {
		return r.Controller().Image()
	}
	return nil
}

// leader is a node that says it leads, nil if none does.
func (c *cluster) leader() *node {
	for _, n := range c.nodes {
		if r := n.current(); r != nil && r.Controller().Leading() {
			return n
		}
	}
	return nil
}

// power cuts the power of the whole site: all processes die and the file system
// keeps what was synced, and of the rest what chance lets it.
func (c *cluster) power() {
	for _, n := range c.nodes {
		if r := n.current(); r != nil {
			r.life.die()
		}
	}
	c.mu.Lock()
	c.mu.fs = c.mu.fs.Crash(c.mu.rng)
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() { n.kill(false) })
	}
	wg.Wait()
}

// leave ends everything in order.
func (c *cluster) leave() {
	c.mu.Lock()
	c.mu.leaving = true
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() { n.stop(time.Minute) })
	}
	wg.Wait()
	c.mu.Lock()
	buckets := c.mu.buckets
	c.mu.Unlock()
	for _, b := range buckets {
		b.Land()
	}
	c.store.wg.Wait()
}

// tuneLogs shortens the periods of background work, so that it happens within a
// run.
func (c *cluster) tuneLogs(l *sharedlog.Config) {
	l.PackAge, l.MaintainEvery, l.SweepEvery = 5*time.Second, 3*time.Second, 7*time.Second
	l.PackBytes, l.ReadCacheBytes, l.MaxExtents, l.AdoptBytes = 256<<10, 1<<20, 4, 2<<10
	if c.plants.Meta != nil {
		l.Meta = c.plants.Meta(l.Meta, l.Incarnation)
	}
}

// tunePartitions makes retention happen within a run.
func tunePartitions(c *partition.SetConfig) { c.RetentionInterval = retainEvery }

const retainEvery = 4 * time.Second

// stuckTimeout is how long a broker's writes may hang before it is relieved.
const stuckTimeout = 6 * time.Second

// tuneController makes snapshots and catching up by them happen within a run.
func tuneController(c *controller.Config) {
	c.SnapshotEntries, c.TrailingLogs, c.TailBytes = 150, 50, 64<<10
	c.RestartGrace, c.StuckTimeout = 5*time.Second, stuckTimeout
}

// logBuffer keeps a node's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// maxLog bounds a node's log.
const maxLog = 8 << 20

// Write implements io.Writer.
func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() < maxLog {
		l.b.Write(b)
	}
	return len(b), nil
}

// String is the log so far.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
