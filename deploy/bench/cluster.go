package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ponor/internal/ports"
)

const nodes = 3

// system is a running cluster.
type system struct {
	name      string
	bootstrap string
	pids      []int
	started   time.Duration // from the first exec to the first acknowledged record
	slots     *slotCount    // nil for Kafka
	data      string        // the directory that has the records
	stop      func()

	// Of Ponor: the command line of each node, the running process, and where
	// its quorum, its profiles and its metrics are.
	args          [][]string
	procs         []*exec.Cmd
	quorum, debug []string
	metrics       []string

	network *network // nil if the nodes are on this machine's own

	script string // of Kafka: what starts and stops it
}

// startSystems starts Ponor and, if it is wanted, Kafka beside it. stop ends both.
func startSystems(ctx context.Context, o options) (systems []*system, stop func(), err error) {
	stop = func() {
		for _, s := range systems {
			s.stop()
		}
	}
	ponor, err := startPonor(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	systems = append(systems, ponor)
	if o.kafka {
		kafka, err := startKafka(ctx, o)
		if err != nil {
			stop()
			return nil, nil, err
		}
		systems = append(systems, kafka)
	}
	return systems, stop, nil
}

// startPonor starts three processes over one directory.
func startPonor(ctx context.Context, o options) (*system, error) {
	row, release, err := ports.Row(ctx, 4*nodes)
	if err != nil {
		return nil, err
	}
	defer release()
	var free []string
	for _, port := range row {
		free = append(free, fmt.Sprintf("127.0.0.1:%d", port))
	}
	clients, quorum, debug, metrics := free[:nodes], free[nodes:2*nodes], free[2*nodes:3*nodes], free[3*nodes:]
	var wires *network
	if o.cuttable {
		if wires, err = newNetwork(ctx); err != nil {
			return nil, err
		}
		clients, quorum, debug, metrics = wires.listen(9092), wires.listen(9192), wires.listen(9292), wires.listen(9392)
	}
	store := filepath.Join(o.dir, "store")
	s := &system{name: "ponor", bootstrap: strings.Join(clients, ","), slots: &slotCount{root: store}, quorum: quorum, data: store, network: wires}
	s.stop = func() {
		s.end(syscall.SIGTERM)
		s.slots.stop()
		if wires != nil {
			wires.close()
		}
	}
	for i := range nodes {
		args := []string{"start", "--node-id", fmt.Sprint(i + 1), "--listen", clients[i], "--controller-listen", quorum[i],
			"--join", strings.Join(quorum, ","), "--store", "dir://" + store + o.storeQuery(), "--data-dir", filepath.Join(o.dir, fmt.Sprint("node-", i+1))}
		if o.scale || o.groups || o.failover {
			args = append(args, "--debug-listen", debug[i], "--metrics-listen", metrics[i], "--cache-bytes", o.cache)
		}
		args = append(args, o.settings...)
		s.args = append(s.args, args)
	}
	if o.scale || o.groups || o.failover {
		s.debug, s.metrics = debug, metrics
	}
	release()
	begin := time.Now()
	if err := s.launch(o); err != nil {
		s.stop()
		return nil, err
	}
	if err := s.firstRecord(ctx, o); err != nil {
		s.stop()
		return nil, err
	}
	s.started = time.Since(begin)
	s.slots.start()
	fmt.Fprintf(os.Stderr, "ponor: %.2f s from start to the first acknowledged record\n", s.started.Seconds())
	return s, nil
}

// launch starts every node; none runs.
func (s *system) launch(o options) error {
	s.procs, s.pids = make([]*exec.Cmd, len(s.args)), make([]int, len(s.args))
	for i := range s.args {
		if err := s.launchOne(o, i); err != nil {
			s.end(syscall.SIGKILL)
			return err
		}
	}
	return nil
}

// launchOne starts the node at place i, which does not run.
func (s *system) launchOne(o options, i int) error {
	log, err := os.OpenFile(filepath.Join(o.dir, fmt.Sprintf("node-%d.log", i+1)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	p := exec.Command(o.binary, s.args[i]...)
	if s.network != nil {
		p = s.network.command(i, o.binary, s.args[i]...)
	}
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours, we stop them
	err = p.Start()
	log.Close()
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	s.procs[i], s.pids[i] = p, p.Process.Pid
	return nil
}

// end ends every node with a signal and waits for it.
func (s *system) end(sig syscall.Signal) {
	running := slices.DeleteFunc(s.procs, func(p *exec.Cmd) bool { return p == nil })
	for _, p := range running {
		_ = p.Process.Signal(sig)
	}
	for _, p := range running {
		_ = p.Wait() // it was told to end
	}
	s.procs = nil
}

// startKafka starts three combined nodes of Apache Kafka, see deploy/kafka.
func startKafka(ctx context.Context, o options) (*system, error) {
	dir := filepath.Join(o.dir, "kafka")
	script := filepath.Join("deploy", "kafka", "kafka.sh")
	begin := time.Now()
	out, err := exec.CommandContext(ctx, "bash", script, "start", dir).Output()
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	s := &system{name: "kafka", bootstrap: strings.TrimSpace(string(out)), data: dir, script: script}
	s.stop = func() { _ = exec.Command("bash", script, "stop", dir).Run() }
	for i := range nodes {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("node%d.pid", i+1)))
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("find kafka: %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("find kafka: %w", err)
		}
		s.pids = append(s.pids, pid)
	}
	if err := s.firstRecord(ctx, o); err != nil {
		s.stop()
		return nil, err
	}
	s.started = time.Since(begin)
	fmt.Fprintf(os.Stderr, "kafka: %.2f s from start to the first acknowledged record\n", s.started.Seconds())
	return s, nil
}

// firstRecord returns once a record was acknowledged.
func (s *system) firstRecord(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		// What it prints is about a cluster that is not there yet.
		if s.ponor(ctx, o, nil, "topic", "create", "first", "--partitions", "3") == nil {
			break
		}
		pause(ctx, 20*time.Millisecond)
	}
	return s.awaitService(ctx, o)
}

// awaitService returns once a record to the topic "first" was acknowledged.
func (s *system) awaitService(ctx context.Context, o options) error {
	err := ctx.Err()
	for ctx.Err() == nil {
		if err = s.ponor(ctx, o, nil, "bench", "latency", "--topic", "first", "--rate", "100", "--warmup", "1ms", "--duration", "20ms", "--end-to-end=false"); err == nil {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("%s does not serve: %w", s.name, err)
}

// ponor runs a client verb against the cluster.
func (s *system) ponor(ctx context.Context, o options, out *[]byte, args ...string) error {
	cmd := exec.CommandContext(ctx, o.binary, append(args, "--bootstrap", s.bootstrap)...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	b, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ponor %s: %w: %s%s", strings.Join(args, " "), err, errOut.String(), b)
	}
	if out != nil {
		*out = b
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// slotCount counts WAL objects from outside: slots are numbered, and none is
// deleted sooner than a second after it was made.
type slotCount struct {
	root  string
	mu    sync.Mutex
	ends  map[string]int64 // by WAL
	done  chan struct{}
	ended chan struct{}
}

func (c *slotCount) start() {
	c.ends, c.done, c.ended = map[string]int64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.ended)
		for {
			c.look()
			select {
			case <-time.After(200 * time.Millisecond):
			case <-c.done:
				return
			}
		}
	}()
}

func (c *slotCount) stop() {
	if c.done != nil {
		close(c.done)
		<-c.ended
	}
}

// look reads the WALs' directories once and returns how many slots there were.
func (c *slotCount) look() (n int64) {
	dirs, _ := filepath.Glob(filepath.Join(c.root, "*", "*", "wal", "*", "0")) // a constant pattern
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range dirs {
		list, err := os.ReadDir(d)
		if err != nil || len(list) == 0 {
			continue
		}
		if last, err := strconv.ParseInt(list[len(list)-1].Name(), 10, 64); err == nil {
			c.ends[d] = max(c.ends[d], last+1)
		}
	}
	for _, end := range c.ends {
		n += end
	}
	return n
}
