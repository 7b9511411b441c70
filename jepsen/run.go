// Package jepsen is a whole correctness run: it starts a cluster or connects to one,
// loads it with a workload while faults happen, heals it, reads everything back,
// looks into what the cluster left behind, and has the history judged.
package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
	"ponor/jepsen/drivers"
	"ponor/jepsen/history"
	"ponor/jepsen/nemesis"
	"ponor/jepsen/report"
	"ponor/jepsen/workload"
	"ponor/sharedlog/objstore"
)

// Options of a run.
type Options struct {
	workload.Options
	Workload string
	// Nemesis names faults. Nil: those that the workload is made for. "none": none.
	Nemesis []string
	// Every is the mean of a quiet or a faulty time, default four seconds.
	Every time.Duration

	// Bootstrap addresses of somebody's cluster. Empty: the run has its own.
	Bootstrap []string
	Commands  cluster.Commands // of somebody's cluster

	Binary string   // of ponor, for the run's own cluster
	Nodes  int      // of the run's own cluster
	Store  string   // URL; empty: a directory below Out
	Extra  []string // arguments of every node

	// Out is the directory for everything that the run writes. It must be empty
	// or not there.
	Out string
	// Keep the store and the nodes' data also of a valid run.
	Keep bool

	Product string // with its version, of the run's own cluster
	Client  string // driver and its version
	// Library is that of the clients, a name in package drivers. Empty: what
	// workload.Options says.
	Library string
	Command string // repeats the run
	Verbose bool   // say every fault
	Output  io.Writer
	// Terminal: Output is one, so that its last line can be written anew.
	Terminal bool
	// OpenStore opens the run's own store to look at what is in it. Nil: nobody
	// looks.
	OpenStore func(ctx context.Context, url string) (objstore.Bucket, error)
}

// Outcome is what a run gives.
type Outcome struct {
	Dir     string
	Summary check.Summary
}

// Files in the directory of a run.
const (
	HistoryFile = "history.jsonl"
	ResultsFile = "results.json"
	ReportFile  = "report.html"
	whiteFile   = "white.json"
	clusterDir  = "cluster"
	clientsDir  = "clients"
	clientsLog  = "clients.log"
)

// run is one run on its way.
type run struct {
	o       Options
	kind    workload.Kind
	work    workload.Workload
	cluster cluster.Cluster
	own     *cluster.Processes // nil if it is somebody else's
	admin   *kadm.Client
	env     *workload.Env
	header  history.Header
	file    *os.File
	writer  *history.Writer
	opened  bool        // the directory is the run's
	made    []string    // directories, the deepest first
	ending  atomic.Bool // the load is to end
	say     *teller
	sched   *nemesis.Schedule
	white   check.White
	why     []string       // sentences on what no check sees
	results []check.Result // of what is in no history
	status  *statuses
	said    struct { // by the sampler
		ops int64
		at  time.Duration
	}
}

// Run does a run. An error means that it could not be done, and says nothing
// about the cluster; if the load did not even begin, only logs of nodes are left.
// When the context ends, the load does, and the rest of the run follows.
func Run(ctx context.Context, o Options) (Outcome, error) {
	kind, err := workload.Find(o.Workload)
	if err != nil {
		return Outcome{}, err
	}
	r := &run{o: o, kind: kind, work: kind.New(), say: newTeller(o.Output, o.Terminal)}
	defer context.AfterFunc(ctx, func() {
		r.say.line("interrupted: the load ends, and what follows is done; to end everything at once, interrupt again")
	})()
	nemeses, err := r.start(ctx)
	if err != nil {
		return Outcome{}, r.discard(ctx, err)
	}
	defer r.close()
	if err := r.load(ctx, nemeses); err != nil {
		return Outcome{}, err
	}
	if err := r.final(context.WithoutCancel(ctx)); err != nil {
		return Outcome{}, err
	}
	return r.judge()
}

// start does all that precedes the load.
func (r *run) start(ctx context.Context) ([]nemesis.Nemesis, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if r.o.Nemesis == nil {
		r.o.Nemesis = possible(r.kind.Faults, len(r.cluster.Nodes()))
	}
	nemeses, err := nemesis.Choose(r.o.Nemesis, r.cluster)
	if err != nil {
		return nil, err
	}
	for _, left := range nemesis.LeftOut(r.o.Nemesis, r.cluster) {
		r.say.line("%s", left)
	}
	return nemeses, r.begin(ctx)
}

// possible are those of a workload's own faults for which there are enough nodes.
func possible(faults []string, nodes int) []string {
	return slices.DeleteFunc(slices.Clone(faults), func(name string) bool {
		k, err := nemesis.Find(name)
		return err == nil && nodes < k.Least()
	})
}

// open makes the directory and the cluster.
func (r *run) open(ctx context.Context) error {
	if list, err := os.ReadDir(r.o.Out); err == nil && len(list) > 0 {
		return fmt.Errorf("%s is not empty: choose another --out", r.o.Out)
	}
	var err error
	if r.o.Out, err = filepath.Abs(r.o.Out); err != nil {
		return fmt.Errorf("find the directory of the run: %w", err)
	}
	for dir := r.o.Out; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		r.made = append(r.made, dir)
	}
	if err := os.MkdirAll(r.o.Out, 0o755); err != nil {
		return fmt.Errorf("make the directory of the run: %w", err)
	}
	r.opened = true
	if err := r.prepareClients(ctx); err != nil {
		return err
	}
	if len(r.o.Bootstrap) > 0 {
		c, err := cluster.Connect(ctx, r.o.Bootstrap, r.o.Commands)
		if err == nil {
			r.cluster = c
		}
		return err
	}
	r.say.line("starting %d nodes on this machine", r.o.Nodes)
	needs := r.o.Nemesis
	if needs == nil {
		needs = r.kind.Faults
	}
	own, err := cluster.Start(ctx, cluster.Config{
		Binary: r.o.Binary, Dir: filepath.Join(r.o.Out, clusterDir), Nodes: r.o.Nodes, Store: r.o.Store,
		Needs: nemesis.Needs(needs), Extra: r.o.Extra,
	})
	if err == nil {
		r.own, r.cluster = own, own
	}
	return err
}

// discard removes what a run has written whose load did not begin. Logs of nodes
// stay if they may say why.
func (r *run) discard(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		why = fmt.Errorf("interrupted before the load began: %w", why)
	}
	if !r.opened {
		return why
	}
	r.close()
	var logs []string
	if answer := (*kerr.Error)(nil); ctx.Err() == nil && !errors.As(why, &answer) && !errors.Is(why, nemesis.ErrImpossible) {
		logs, _ = filepath.Glob(filepath.Join(r.o.Out, clusterDir, "*.log"))
	}
	if len(logs) > 0 {
		why = fmt.Errorf("%w; the nodes' logs are in %s", why, filepath.Dir(logs[0]))
	}
	for _, dir := range []string{r.o.Out, filepath.Join(r.o.Out, clusterDir)} {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			if !slices.Contains(logs, path) && (len(logs) == 0 || e.Name() != clusterDir) {
				_ = os.RemoveAll(path)
			}
		}
	}
	for _, dir := range r.made {
		_ = os.Remove(dir) // fails if there is something in it
	}
	return why
}

// prepareClients makes the driver of clients, if there is one, and sees that it runs.
func (r *run) prepareClients(ctx context.Context) error {
	var err error
	if r.o.Library != "" {
		if r.o.Driver, err = drivers.Prepare(ctx, r.o.Library, filepath.Join(r.o.Out, clientsDir)); err != nil {
			return err
		}
	}
	if r.o.Driver == "" {
		return nil
	}
	r.o.DriverLog = filepath.Join(r.o.Out, clientsLog)
	if r.o.Client, err = workload.TryDriver(ctx, r.o.Driver, r.o.DriverLog); err != nil {
		said, _ := os.ReadFile(r.o.DriverLog)
		return fmt.Errorf("try a client: %w\n%s", err, said)
	}
	return nil
}

// begin writes the header and has the workload prepare.
func (r *run) begin(ctx context.Context) error {
	cl, err := cluster.Client(r.cluster.Bootstrap())
	if err != nil {
		return err
	}
	r.admin = kadm.NewClient(cl)
	r.admin.SetTimeoutMillis(5000)
	id := rand.Uint64() // of this run, also if the seed is another's
	r.header = history.Header{
		Run: fmt.Sprintf("%08x", uint32(id)), Began: time.Now().UTC().Format(time.RFC3339), Workload: r.o.Workload, Nemesis: nemesis.Expected(r.o.Nemesis),
		Seed: r.o.Seed, Product: r.o.Product, Client: r.o.Client, Nodes: len(r.cluster.Nodes()), Idempotent: r.o.Idempotent,
		Settings: map[string]string{"time": r.o.Time.String()},
	}
	if len(r.header.Nemesis) < len(r.o.Nemesis) {
		r.header.Settings["nemesis"] = strings.Join(r.o.Nemesis, ",")
	}
	if len(r.o.Extra) == 1 {
		r.header.Settings["node-flag"] = r.o.Extra[0]
	}
	r.o.Options.Exclusive = r.own != nil
	r.work.Plan(&r.o.Options, &r.header)
	r.header.Settings["rate"] = fmt.Sprint(r.o.Rate)
	r.header.Settings["concurrency"] = fmt.Sprint(r.o.Concurrency)
	if r.own == nil {
		r.header.Product = "cluster at " + strings.Join(r.o.Bootstrap, ", ")
	} else {
		r.header.Settings["nodes"] = fmt.Sprint(r.o.Nodes)
	}
	if r.file, err = os.Create(filepath.Join(r.o.Out, HistoryFile)); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	r.writer = history.NewWriter(r.file, r.header)
	r.env = &workload.Env{Options: r.o.Options, Cluster: r.cluster, Admin: r.admin, History: r.writer, Header: &r.header, Run: id, Begun: time.Now(), Say: r.say.line}
	r.env.Init()
	r.say.line("workload %s, faults %s, %d nodes, %v, seed %d", r.o.Workload, strings.Join(r.o.Nemesis, ", "), len(r.cluster.Nodes()), r.o.Time, r.o.Seed)
	r.say.line("writing to %s", r.o.Out)
	prepare, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return r.work.Prepare(prepare, r.env)
}

// healTimeout is how long all nodes may take to serve again: others than the run's
// own may take minutes to start after a kill.
const healTimeout = 3 * time.Minute

// load runs the workload and the faults, then heals.
func (r *run) load(ctx context.Context, nemeses []nemesis.Nemesis) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Time)
	defer cancel()
	defer context.AfterFunc(ctx, func() { r.ending.Store(true) })()
	claims := &nemesis.Claims{}
	env := func(name string) *nemesis.Env {
		seed := r.o.Seed
		for _, c := range name {
			seed = seed*31 + uint64(c)
		}
		return &nemesis.Env{Cluster: r.cluster, Admin: r.admin, Rand: rand.New(rand.NewPCG(r.o.Seed, seed)), Now: r.env.Now, Topics: r.env.Topics, Nodes: claims}
	}
	r.sched = &nemesis.Schedule{Nemeses: nemeses, Env: env, Record: r.event, Every: r.o.Every}
	var wg sync.WaitGroup
	sampled := make(chan struct{})
	r.status = newStatuses(r.own)
	wg.Go(func() { r.sample(sampled) })
	var started int
	var undo error
	hurt := make(chan struct{})
	go func() {
		defer close(hurt)
		started, undo = r.sched.Run(ctx, rand.New(rand.NewPCG(r.o.Seed, 0x6e656d65736973)))
	}()
	err := r.work.Load(ctx, r.env)
	cancel()
	<-hurt
	healing, stop := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer stop()
	heal := nemesis.Heal(healing, env("heal"), r.event)
	close(sampled)
	wg.Wait()
	r.say.line("%s", r.line(0))
	if undo != nil {
		r.why = append(r.why, strings.Split(undo.Error(), "\n")...)
	}
	if heal != nil {
		r.why = append(r.why, fmt.Sprintf("the cluster did not come back: %v", heal))
	}
	if len(nemeses) > 0 && started == 0 {
		r.why = append(r.why, "no fault could be started")
	}
	return err
}

func (r *run) event(e *history.Event) {
	r.writer.Event(e)
	if r.o.Verbose || e.Err != "" {
		r.say.line("%s", eventText(e))
	}
}

// sample notes the state of the cluster every second and shows it.
func (r *run) sample(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s := r.env.Sample()
		r.writer.Sample(&s)
		r.status.ask()
		r.say.status(n, r.line(time.Duration(r.env.Now())))
	}
}

// final reads everything back and looks inside.
func (r *run) final(ctx context.Context) error {
	r.say.line("reading everything back")
	if err := r.work.Final(ctx, r.env); err != nil {
		r.why = append(r.why, fmt.Sprintf("the final reads could not be done: %v", err))
	}
	s := r.env.Sample()
	r.writer.Sample(&s)
	r.lookInside(ctx)
	r.admin.Close()
	r.admin = nil
	r.env.Close()
	_ = os.RemoveAll(filepath.Join(r.o.Out, clientsDir)) // of no use any more
	if r.cluster != nil {
		if err := r.cluster.Close(); err != nil {
			return err
		}
	}
	if err := r.writer.Flush(); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return r.file.Close()
}

// close ends what is still there, after an error.
func (r *run) close() {
	if r.cluster != nil {
		_ = r.cluster.Close()
	}
	if r.admin != nil {
		r.admin.Close()
	}
	if r.file != nil {
		_ = r.file.Close()
	}
}

// judge has the history checked and writes the results.
func (r *run) judge() (Outcome, error) {
	if err := writeJSON(filepath.Join(r.o.Out, whiteFile), saved{White: &r.white, Results: r.results, Why: r.why}); err != nil {
		return Outcome{}, err
	}
	r.say.line("judging")
	s, err := Judge(r.o.Out, filepath.Join(r.o.Out, HistoryFile), r.o.Command)
	if err != nil {
		return Outcome{}, err
	}
	if s.Verdict == check.Valid && !r.o.Keep && r.own != nil {
		_ = os.RemoveAll(filepath.Join(r.o.Out, clusterDir, "store")) // only what is found wrong is looked at again
		for _, dir := range r.own.DataDirs() {
			_ = os.RemoveAll(dir)
		}
	}
	return Outcome{Dir: r.o.Out, Summary: s}, nil
}

// saved is what judging needs beside the history.
type saved struct {
	White   *check.White   `json:"white"`
	Results []check.Result `json:"results,omitempty"` // of what is in no history
	Why     []string       `json:"why,omitempty"`
}

// Judge checks a history again and writes results and report into a directory.
// Command repeats the run, empty: the header says it.
func Judge(dir, file, command string) (check.Summary, error) {
	f, err := os.Open(file)
	if err != nil {
		return check.Summary{}, err
	}
	defer f.Close()
	h, err := history.Read(f)
	if err != nil {
		if h == nil {
			return check.Summary{}, fmt.Errorf("read %s: %w", file, err)
		}
		err = fmt.Errorf("the history was cut off: %w", err)
	}
	var also saved
	if b, rerr := os.ReadFile(filepath.Join(filepath.Dir(file), whiteFile)); rerr == nil {
		if jerr := json.Unmarshal(b, &also); jerr != nil {
			return check.Summary{}, fmt.Errorf("read %s: %w", whiteFile, jerr)
		}
	}
	if err != nil {
		also.Why = append(also.Why, err.Error())
	}
	large := len(h.Ops) > 1<<20
	if large {
		// Most of the heap is the history, and none of that is garbage. What the checks
		// leave need not wait for as much again.
		defer debug.SetGCPercent(debug.SetGCPercent(10))
	}
	s := also.add(check.All(h, also.White))
	if large {
		debug.FreeOSMemory()
	}
	if err := writeJSON(filepath.Join(dir, ResultsFile), s); err != nil {
		return s, err
	}
	page, err := os.Create(filepath.Join(dir, ReportFile))
	if err != nil {
		return s, fmt.Errorf("write the report: %w", err)
	}
	err = report.Write(page, h, s.Results, s.Verdict, report.Extra{Command: command, Why: also.Why})
	return s, errors.Join(err, page.Close())
}

// add puts what no history shows to a summary.
func (a saved) add(s check.Summary) check.Summary {
	var bad, open []string
	for _, r := range a.Results {
		s.Results = append(s.Results, r)
		switch r.Verdict {
		case check.Invalid:
			bad = append(bad, r.ID+" "+r.Name)
		case check.Unknown:
			open = append(open, r.ID+" "+r.Name)
		default:
		}
	}
	open = append(open, a.Why...)
	switch {
	case len(bad) > 0 && s.Verdict == check.Invalid:
		s.Why += ", " + strings.Join(bad, ", ")
	case len(bad) > 0:
		s.Verdict, s.Why = check.Invalid, strings.Join(bad, ", ")
	case len(open) > 0 && s.Verdict == check.Unknown:
		s.Why += "; " + strings.Join(open, "; ")
	case len(open) > 0 && s.Verdict == check.Valid:
		s.Verdict, s.Why = check.Unknown, strings.Join(open, "; ")
	}
	return s
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
