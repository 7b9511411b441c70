package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ponor/internal/ports"
)

// Link is where a node stands in relation to others. Proxies between nodes,
// clients and the store change it.
type Link struct {
	Listen           string // address for clients
	Advertise        string // what clients are told; empty: Listen
	ControllerListen string // address for the quorum
	ControllerAdvert string // what other nodes are told; empty: ControllerListen
	Join             []string
	Store            string // URL
	Clock            string // file that says how far its time of day is off; empty: it is right
}

// Config of Processes.
type Config struct {
	Binary string // of ponor
	Dir    string // for data, logs and the directory store
	Nodes  int
	// Store is a URL; empty: a directory store below Dir.
	Store string
	// Needs are what faults need beside the processes: NeedsClients and so on.
	Needs []string
	// Extra arguments of every node.
	Extra []string
	// Rewire changes how a node is linked before it is started for the first
	// time, nil: it is not.
	Rewire func(node int32, l Link) Link
}

// Processes are nodes on this machine, each a process of its own.
type Processes struct {
	Means
	cfg   Config
	nodes []*node
	guest *node // see Join; nil without a whole cluster
	life  lifeline
}

// node is one process; its command line stays the same over restarts.
type node struct {
	id   int32
	link Link
	args []string
	dir  string
	log  string

	mu struct {
		sync.Mutex
		cmd    *exec.Cmd
		exited chan struct{}
		want   bool   // it should run
		died   string // how it ended by itself
	}
}

// Start lays a cluster out, starts it and waits until clients can use all of it.
func Start(ctx context.Context, cfg Config) (*Processes, error) {
	if cfg.Store == "" {
		cfg.Store = "dir://" + filepath.Join(cfg.Dir, "store")
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	row, release, err := ports.Row(ctx, 2*cfg.Nodes+1)
	if err != nil {
		return nil, err
	}
	defer release()
	var join []string
	for i := range cfg.Nodes {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", row[cfg.Nodes+i]))
	}
	c := &Processes{cfg: cfg}
	if err := c.setUp(cfg); err != nil {
		return nil, err
	}
	var links []Link
	for i := range cfg.Nodes {
		link := Link{Listen: fmt.Sprintf("127.0.0.1:%d", row[i]), ControllerListen: join[i], Store: cfg.Store}
		if link, err = c.Means.node(cfg, int32(i+1), link); err != nil {
			_ = c.Close()
			return nil, err
		}
		links = append(links, link)
		if link.ControllerAdvert != "" {
			join[i] = link.ControllerAdvert
		}
	}
	for i, link := range links {
		link.Join = join
		c.nodes = append(c.nodes, newNode(cfg, int32(i+1), link))
	}
	links[0].Join = join
	c.guest = newGuest(cfg, links[0], row[2*cfg.Nodes])
	release()
	for _, n := range c.nodes {
		if err := c.Start(ctx, n.id); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := WaitReady(ctx, c); err != nil {
		for id, how := range c.Exited() {
			err = errors.Join(err, fmt.Errorf("node %d %s: see %s", id, how, c.nodes[id-1].log))
		}
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func newNode(cfg Config, id int32, link Link) *node {
	if cfg.Rewire != nil {
		link = cfg.Rewire(id, link)
	}
	n := &node{id: id, link: link, dir: dataDir(cfg, id), log: filepath.Join(cfg.Dir, fmt.Sprintf("node%d.log", id))}
	n.args = []string{"start", "--node-id", fmt.Sprint(id), "--listen", link.Listen,
		"--join", strings.Join(link.Join, ","), "--store", link.Store, "--data-dir", n.dir, "--zone", fmt.Sprintf("zone-%d", id),
		"--cache-bytes", "64MiB", "--log-format", "text"}
	if link.ControllerListen != "" {
		n.args = append(n.args, "--controller-listen", link.ControllerListen)
	}
	if link.Advertise != "" {
		n.args = append(n.args, "--advertise", link.Advertise)
	}
	if link.ControllerAdvert != "" {
		n.args = append(n.args, "--controller-advertise", link.ControllerAdvert)
	}
	if link.Clock != "" {
		n.args = append(n.args, "--clock", link.Clock)
	}
	n.args = append(n.args, cfg.Extra...)
	return n
}

func dataDir(cfg Config, id int32) string {
	return filepath.Join(cfg.Dir, fmt.Sprintf("node%d", id))
}

// Nodes implements Cluster.
func (c *Processes) Nodes() []int32 {
	ids := make([]int32, len(c.nodes))
	for i, n := range c.nodes {
		ids[i] = n.id
	}
	return ids
}

// Bootstrap implements Cluster.
func (c *Processes) Bootstrap() []string {
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.link.Listen
		if n.link.Advertise != "" {
			list[i] = n.link.Advertise
		}
	}
	return list
}

// Controllers are the addresses of the quorum.
func (c *Processes) Controllers() []string {
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.link.ControllerListen
	}
	return list
}

// Store is the URL of the store, as the harness reaches it.
func (c *Processes) Store() string { return c.cfg.Store }

// DataDirs are the directories of the nodes.
func (c *Processes) DataDirs() []string {
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.dir
	}
	return list
}

// Can implements Cluster.
func (c *Processes) Can(what string) bool {
	switch what {
	case NeedsClients, NeedsLinks, NeedsStore, NeedsDisk, NeedsClock, NeedsTrace:
		return slices.Contains(c.cfg.Needs, what)
	}
	return true
}

func (c *Processes) node(id int32) (*node, error) {
	if id < 1 || int(id) > len(c.nodes) {
		return nil, fmt.Errorf("there is no node %d", id)
	}
	return c.nodes[id-1], nil
}

// Start implements Cluster.
func (c *Processes) Start(_ context.Context, id int32) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	pid, err := n.start(c.cfg.Binary, &c.life, c.ended)
	if err != nil {
		return err
	}
	return c.started(id, pid)
}

// Stop implements Cluster.
func (c *Processes) Stop(ctx context.Context, id int32) error { return c.end(ctx, id, syscall.SIGTERM) }

// Kill implements Cluster.
func (c *Processes) Kill(ctx context.Context, id int32) error { return c.end(ctx, id, syscall.SIGKILL) }

// Pause implements Cluster.
func (c *Processes) Pause(ctx context.Context, id int32) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !n.paused() { // the signal is taken a moment later
		select {
		case <-ctx.Done():
			return fmt.Errorf("pause node %d: %s", id, n.state())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Resume implements Cluster.
func (c *Processes) Resume(_ context.Context, id int32) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.signal(syscall.SIGCONT)
}

func (c *Processes) end(ctx context.Context, id int32, s syscall.Signal) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return n.end(ctx, s)
}

// end waits until the process has ended by a signal.
func (n *node) end(ctx context.Context, s syscall.Signal) error {
	n.mu.Lock()
	n.mu.want = false
	exited := n.mu.exited
	n.mu.Unlock()
	if err := n.signal(s); err != nil {
		return err
	}
	if s == syscall.SIGKILL { // nothing can keep it
		<-exited
		return nil
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		// It must not end some time later, when nobody would start it again.
		err := fmt.Errorf("node %d did not end by %v, it was killed: %s", n.id, s, n.state())
		_ = n.signal(syscall.SIGKILL)
		<-exited
		return err
	}
}

// State implements Cluster.
func (c *Processes) State(id int32) string {
	n, err := c.node(id)
	if err != nil {
		return ""
	}
	return n.state()
}

// Down implements Cluster.
func (c *Processes) Down(id int32) bool {
	n, err := c.node(id)
	return err == nil && n.down()
}

// Paused implements Cluster.
func (c *Processes) Paused(id int32) bool {
	n, err := c.node(id)
	return err == nil && n.paused()
}

// Exited implements Cluster.
func (c *Processes) Exited() map[int32]string {
	out := make(map[int32]string)
	all := c.nodes
	if c.guest != nil {
		all = append(slices.Clone(all), c.guest)
	}
	for _, n := range all {
		n.mu.Lock()
		if n.mu.died != "" {
			out[n.id] = n.mu.died
		}
		n.mu.Unlock()
	}
	return out
}

// lacks says whether a node has ended by itself and was not started again.
func (c *Processes) lacks() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		n.mu.Lock()
		want := n.mu.want
		n.mu.Unlock()
		return want && n.down()
	})
}

// Logs implements Cluster.
func (c *Processes) Logs() string { return c.cfg.Dir }

// Log is the file with a node's output.
func (c *Processes) Log(id int32) string { return c.nodes[id-1].log }

// Close implements Cluster: it kills all nodes.
func (c *Processes) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, c.Untamper(n.id))
		if !n.down() {
			errs = append(errs, c.Kill(ctx, n.id))
		}
	}
	if c.guest != nil && !c.guest.down() {
		errs = append(errs, c.guest.end(ctx, syscall.SIGKILL))
	}
	c.life.end()
	return errors.Join(append(errs, c.close())...)
}

// start runs the process; ended is called when it has ended.
func (n *node) start(binary string, life *lifeline, ended func(id int32, pid int)) (pid int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.want && n.mu.exited != nil {
		select {
		case <-n.mu.exited:
		default:
			return 0, fmt.Errorf("node %d is running", n.id)
		}
	}
	output, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, fmt.Errorf("open the log of node %d: %w", n.id, err)
	}
	defer output.Close()
	cmd := exec.CommandContext(context.Background(), binary, n.args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := life.start(cmd); err != nil {
		return 0, fmt.Errorf("start node %d: %w", n.id, err)
	}
	exited := make(chan struct{})
	n.mu.cmd, n.mu.exited, n.mu.want = cmd, exited, true
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		ended(n.id, cmd.Process.Pid)
		n.mu.Lock()
		if n.mu.want && n.mu.cmd == cmd {
			n.mu.died = fmt.Sprintf("ended by itself (%v)", cmd.ProcessState)
		}
		n.mu.Unlock()
		close(exited)
	}()
	return cmd.Process.Pid, nil
}

func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.cmd == nil {
		return fmt.Errorf("node %d was never started", n.id)
	}
	if err := n.mu.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to node %d: %w", s, n.id, err)
	}
	return nil
}

func (n *node) down() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.exited == nil {
		return true
	}
	select {
	case <-n.mu.exited:
		return true
	default:
		return false
	}
}

func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.cmd == nil {
		return 0
	}
	return n.mu.cmd.Process.Pid
}

func (n *node) paused() bool { return !n.down() && strings.HasPrefix(processState(n.pid()), "T") }

func (n *node) state() string {
	pid := n.pid()
	switch {
	case pid == 0:
		return "never started"
	case n.down():
		return fmt.Sprintf("pid %d is gone", pid)
	}
	return fmt.Sprintf("pid %d state %s", pid, processState(pid))
}

// processState is the letter of /proc, "unknown" where there is no /proc.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "unknown"
	}
	// The name in parentheses may have spaces.
	_, rest, ok := strings.Cut(string(b), ") ")
	if !ok || rest == "" {
		return "unknown"
	}
	return rest[:1]
}
