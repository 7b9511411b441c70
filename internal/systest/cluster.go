// Package systest drives Ponor from outside, as its users do: it builds the
// binary, starts real processes, kills and pauses them, and checks with real
// clients that nothing acknowledged was lost. Its tests need Go alone; those
// that drive clients in other languages have the build tag "clients".
package systest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/ports"
)

// Cluster is a set of ponor processes with one directory store.
type Cluster struct {
	Dir   string
	Nodes []*Node

	t      testing.TB
	binary string
}

// Node is one process; its command line stays the same over restarts.
type Node struct {
	ID      int
	Address string // for clients
	Log     string // file with its output
	Args    []string

	cluster *Cluster
	cmd     *exec.Cmd
	exited  chan struct{}
}

var build struct {
	sync.Once
	path string
	err  error
}

// Binary builds ponor once per test process, or takes it from SYSTEST_BINARY.
func Binary(t testing.TB) string {
	t.Helper()
	if b := os.Getenv("SYSTEST_BINARY"); b != "" {
		return b
	}
	build.Do(func() {
		dir, err := os.MkdirTemp("", "ponor-systest")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "ponor")
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", build.path, "ponor/cmd/node").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("build ponor: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// Options shape a Cluster.
type Options struct {
	Nodes   int    // default 3, all of them voters
	Brokers int    // and so many that are brokers only
	Store   string // default what SYSTEST_STORE says, else a directory below the test's
	Extra   []string
}

// defaultStore is the URL in SYSTEST_STORE, with a name of the cluster's own in
// place of its %s, so that a suite runs on any kind of store.
func defaultStore(dir string) string {
	url := os.Getenv("SYSTEST_STORE")
	if url == "" {
		return "dir://" + filepath.Join(dir, "store")
	}
	name := filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir) // of the test's directory
	return strings.ReplaceAll(url, "%s", name)
}

// Start runs a cluster and waits until clients can use all of it.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	c := &Cluster{Dir: t.TempDir(), t: t, binary: Binary(t)}
	if opts.Store == "" {
		opts.Store = defaultStore(c.Dir)
	}
	all := opts.Nodes + opts.Brokers
	row, release, err := ports.Row(t.Context(), all+opts.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	var join []string
	for i := range opts.Nodes {
		join = append(join, fmt.Sprintf("127.0.0.1:%d", row[all+i]))
	}
	for i := range all {
		n := &Node{ID: i + 1, Address: fmt.Sprintf("127.0.0.1:%d", row[i]), Log: filepath.Join(c.Dir, fmt.Sprintf("node%d.log", i+1)), cluster: c}
		n.Args = append([]string{"start", "--node-id", fmt.Sprint(n.ID), "--listen", n.Address,
			"--join", strings.Join(join, ","), "--store", opts.Store, "--data-dir", filepath.Join(c.Dir, fmt.Sprint(n.ID)),
			"--zone", fmt.Sprintf("zone-%d", i+1)}, opts.Extra...)
		if i < opts.Nodes {
			n.Args = append(n.Args, "--controller-listen", join[i])
		} else {
			n.Args = append(n.Args, "--roles", "broker")
		}
		c.Nodes = append(c.Nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			n.Kill()
		}
		if t.Failed() || os.Getenv("SYSTEST_LOGS") != "" {
			c.showLogs()
		}
	})
	release()
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitReady(all)
	return c
}

// showLogs prints the end of every node's log into a failed test's output.
func (c *Cluster) showLogs() {
	for _, n := range c.Nodes {
		b, err := os.ReadFile(n.Log)
		if err != nil {
			continue
		}
		lines := strings.Split(string(b), "\n")
		c.t.Logf("node %d:\n%s", n.ID, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// Bootstrap is the address list for clients.
func (c *Cluster) Bootstrap() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Address)
	}
	return strings.Join(all, ",")
}

// Client makes a kgo client that is closed with the test.
func (c *Cluster) Client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.AlwaysRetryEOF(), // a node that is killed before its first answer on a connection looks to kgo as if it wanted SASL
	}, opts...)...)
	if err != nil {
		c.t.Fatalf("make client: %v", err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// WaitReady waits until n brokers are listed and every partition has a leader.
func (c *Cluster) WaitReady(n int) {
	c.t.Helper()
	adm := kadm.NewClient(c.Client())
	Eventually(c.t, fmt.Sprintf("%d brokers in metadata", n), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		md, err := adm.Metadata(ctx)
		if err != nil {
			return err
		}
		if len(md.Brokers) < n {
			return fmt.Errorf("%d brokers so far", len(md.Brokers))
		}
		return nil
	})
}

// WaitLive waits until n brokers are listed by every node, which a node that has
// just begun may not be for a while.
func (c *Cluster) WaitLive(n int) {
	c.t.Helper()
	for _, node := range c.Nodes {
		adm := kadm.NewClient(c.Client(kgo.SeedBrokers(node.Address)))
		Eventually(c.t, fmt.Sprintf("%d brokers in the metadata of node %d", n, node.ID), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			md, err := adm.Metadata(ctx)
			if err != nil {
				return err
			}
			if len(md.Brokers) < n {
				return fmt.Errorf("%d brokers so far", len(md.Brokers))
			}
			return nil
		})
	}
}

// Patience is how long tests wait for what must come. It only matters when it does
// not, so it is for the slowest and busiest of machines.
const Patience = 3 * time.Minute

// Eventually retries fn until it succeeds and fails the test with its last
// error otherwise.
func Eventually(t testing.TB, what string, fn func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = fn(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %s: %v", Patience, what, err)
}

// Start runs the node's process.
func (n *Node) Start() {
	n.cluster.t.Helper()
	output, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.cluster.t.Fatalf("open log: %v", err)
	}
	defer output.Close()
	n.cmd = exec.CommandContext(context.Background(), n.cluster.binary, n.Args...)
	n.cmd.Stdout, n.cmd.Stderr = output, output
	if err := n.cmd.Start(); err != nil {
		n.cluster.t.Fatalf("start node %d: %v", n.ID, err)
	}
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // the exit code is read from ProcessState by whoever cares
		close(exited)
	}(n.cmd, n.exited)
}

// Kill ends the process with SIGKILL and waits for it.
func (n *Node) Kill() { n.signal(syscall.SIGKILL); n.wait() }

// Stop ends the process with SIGTERM and returns its exit code.
func (n *Node) Stop() int { n.signal(syscall.SIGTERM); n.wait(); return n.cmd.ProcessState.ExitCode() }

// Pause stops the process with SIGSTOP; Resume lets it go on.
func (n *Node) Pause() { n.signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (n *Node) Resume() { n.signal(syscall.SIGCONT) }

// Exited is nil once the process has ended.
func (n *Node) Exited() error {
	select {
	case <-n.exited:
		return nil
	default:
		return fmt.Errorf("node %d is running", n.ID)
	}
}

// Pid is the process id.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

func (n *Node) signal(s syscall.Signal) {
	if n.cmd == nil {
		return
	}
	select {
	case <-n.exited:
	default:
		_ = n.cmd.Process.Signal(s)
	}
}

func (n *Node) wait() {
	if n.cmd != nil {
		<-n.exited
	}
}
