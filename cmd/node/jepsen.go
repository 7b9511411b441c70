package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ponor/jepsen"
	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
	"ponor/jepsen/drivers"
	"ponor/jepsen/nemesis"
	"ponor/jepsen/workload"
	"ponor/sharedlog/objstore"
)

// exitNotRun: a correctness run could not be done. 0 is valid, 1 invalid, 2 not
// known.
const exitNotRun = 3

// codedError exits with its code; silent ones print nothing more.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func newJepsen() *cobra.Command {
	cmd := family("jepsen", "Test that a cluster keeps its promises while it is hurt", newJepsenRun(), newJepsenCheck(), newJepsenList())
	cmd.Long = `Test that a cluster keeps its promises while nodes are killed, paused, restarted
and partitions moved: clients write down all they do and see, and checks look for
every record that was lost, doubled, reordered, changed or read too early.

  ponor jepsen run --time 1m                        a cluster of its own, five minutes without --time
  ponor jepsen run --workload groups --nemesis kill
  ponor jepsen list                                 workloads and faults
  ponor jepsen check jepsen-runs/...                judge an old run again`
	// Exit code 2 is a verdict here, so that mistakes of the caller are not told by it.
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return codedError{flagError(cmd, err), exitNotRun} })
	for _, c := range append(cmd.Commands(), cmd) {
		args := c.Args
		c.Args = func(cmd *cobra.Command, list []string) error {
			if err := args(cmd, list); err != nil {
				return codedError{err, exitNotRun}
			}
			return nil
		}
	}
	return cmd
}

// jepsenRun are the flags of 'jepsen run'.
type jepsenRun struct {
	jepsen.Options
	bootstrap string
	nemesis   []string
	plain     bool
	list      bool
	tiny      bool
	client    string
}

func newJepsenRun() *cobra.Command {
	var j jepsenRun
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Hurt a cluster under load and judge what its clients saw",
		Long: `Start a cluster of three nodes on this machine (or use one with --bootstrap),
load it, hurt it, heal it, read everything back from every node, and judge.

Everything is kept in the directory of the run: history.jsonl, results.json,
report.html, and the nodes' logs; after a bad run also the store and the nodes'
data. Exits with 0 if the run is valid, 1 if a promise was broken, 2 if that
cannot be said, 3 if it could not be run. Ctrl-C ends the load early; what follows
is done.

A cluster given by --bootstrap can be of any Kafka-protocol brokers. Its nodes are
hurt by commands for a shell, with {node} for the broker's id. Topics named
jepsen-* are made in it and stay.`,
		Example: `  ponor jepsen run --time 1m
  ponor jepsen run --workload queue --nemesis kill,pause --seed 7
  ponor jepsen run --bootstrap b1:9092 --kill-cmd 'ssh b{node} pkill -9 ponor' --start-cmd 'ssh b{node} systemctl start ponor' --nemesis kill`,
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return j.do(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&j.Workload, "workload", "w", "queue", "what clients do: "+strings.Join(runnable(), ", "))
	f.StringSliceVarP(&j.nemesis, "nemesis", "n", nil, "faults, comma-separated: none, "+strings.Join(nemesisNames(), ", ")+"; default: those that the workload is made for")
	f.DurationVarP(&j.Time, "time", "t", 5*time.Minute, "how long to load and hurt the cluster; the reads that follow take longer")
	f.Uint64Var(&j.Seed, "seed", 0, "of all random choices; the cluster's own timing differs even so; default: a random one, which is shown")
	f.StringVar(&j.client, "client", clientFranz, "library of the clients: "+strings.Join(clientNames, ", ")+"; others than kgo for the workloads queue, moves and groups")
	f.StringVar(&j.Driver, "client-cmd", "", "shell command that runs one client, in place of --client; it does what lines of JSON on its input say")
	f.Float64Var(&j.Rate, "rate", 0, "operations begun in a second, whatever is on; default: the workload's")
	f.IntVar(&j.Concurrency, "concurrency", 0, "client processes at a time; default: the workload's")
	f.IntVar(&j.Keys, "keys", 0, "partitions in use at a time; default: the workload's")
	f.DurationVar(&j.OpTimeout, "op-timeout", 10*time.Second, "when an operation is given up, with an unknown effect")
	f.DurationVar(&j.FinalTimeout, "final-timeout", 200*time.Second, "when a final read of everything is given up")
	f.DurationVar(&j.Every, "interval", 4*time.Second, "mean time of a fault, and between two")
	f.BoolVar(&j.plain, "no-idempotence", false, "producers without idempotence; then duplicates are only counted")
	f.IntVar(&j.Nodes, "nodes", 3, "nodes of the run's own cluster")
	f.StringVar(&j.Store, "store", "", "store of the run's own cluster, new or empty; default: a directory of the run")
	f.StringArrayVar(&j.Extra, "node-flag", nil, "further flag of 'ponor start' for every node, such as --node-flag=--session-timeout=1s; may be repeated")
	f.BoolVar(&j.tiny, "tiny", false, "nodes of the run's own cluster pack, sweep, expire and take snapshots every few seconds")
	f.StringVarP(&j.Out, "out", "o", "", "directory for what the run writes; default: a new one in jepsen-runs")
	f.BoolVar(&j.Keep, "keep", false, "keep store and nodes' data also of a valid run")
	f.StringVarP(&j.bootstrap, "bootstrap", "b", "", "addresses of a running cluster to test, comma-separated")
	f.Int16Var(&j.Replicas, "replication-factor", 0, "of topics; default: the cluster's")
	f.StringVar(&j.Commands.Kill, "kill-cmd", "", "with --bootstrap: shell command that kills node {node}")
	f.StringVar(&j.Commands.Stop, "stop-cmd", "", "with --bootstrap: that ends it in order")
	f.StringVar(&j.Commands.Start, "start-cmd", "", "with --bootstrap: that starts it again")
	f.StringVar(&j.Commands.Pause, "pause-cmd", "", "with --bootstrap: that pauses it (kill -STOP)")
	f.StringVar(&j.Commands.Resume, "resume-cmd", "", "with --bootstrap: that lets it go on (kill -CONT)")
	f.StringVar(&j.Commands.State, "state-cmd", "", "with --bootstrap: that prints what proves that it is down or paused; optional")
	f.BoolVarP(&j.Verbose, "verbose", "v", false, "print every fault and every check")
	f.BoolVar(&j.list, "list", false, "list workloads and faults and end")
	_ = cmd.RegisterFlagCompletionFunc("workload", cobra.FixedCompletions(runnable(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(clientNames, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("nemesis", cobra.FixedCompletions(append([]string{"none"}, nemesisNames()...), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (j *jepsenRun) do(cmd *cobra.Command) error {
	if j.list {
		printJepsenList(cmd)
		return nil
	}
	if err := j.complete(cmd); err != nil {
		return codedError{err, exitNotRun}
	}
	defer endAtOnce(cmd)()
	out, err := jepsen.Run(cmd.Context(), j.Options)
	if err != nil {
		return codedError{fmt.Errorf("jepsen run: %w", err), exitNotRun}
	}
	printSummary(cmd, out.Summary, j.Verbose)
	cmd.Printf("report   %s\n", shorter(filepath.Join(out.Dir, jepsen.ReportFile)))
	return verdictError(out.Summary)
}

// endAtOnce has the process end, and say so, when it is interrupted a second time.
// The function that it returns undoes that.
func endAtOnce(cmd *cobra.Command) func() bool {
	return context.AfterFunc(cmd.Context(), func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		cmd.PrintErrln("\ninterrupted again: the run ends without a verdict; nodes may still be hurt if they are not its own")
		os.Exit(exitNotRun)
	})
}

// commandsFor are the flags that let another's cluster be hurt, and undo it.
var commandsFor = map[string][]string{
	"kill":  {"kill-cmd", "start-cmd"},
	"stop":  {"stop-cmd", "start-cmd"},
	"pause": {"pause-cmd", "resume-cmd"},

	cluster.NeedsPauseKill: {"kill-cmd", "start-cmd", "pause-cmd", "resume-cmd"},
}

// complete fills in what follows from the flags.
func (j *jepsenRun) complete(cmd *cobra.Command) error {
	f := cmd.Flags()
	j.Idempotent = !j.plain
	j.Bootstrap = (&clientFlags{bootstrap: j.bootstrap}).seeds()
	if !f.Changed("seed") {
		j.Seed = rand.Uint64N(1e6)
	}
	if f.Changed("nemesis") {
		j.Nemesis = j.nemesis
		if j.Nemesis == nil {
			j.Nemesis = []string{"none"}
		}
	}
	if j.Time <= 0 || j.Every <= 0 || j.OpTimeout <= 0 || j.FinalTimeout <= 0 || j.Rate < 0 || j.Concurrency < 0 || j.Nodes < 1 || j.Keys < 0 {
		return usagef("--time, --interval, --op-timeout, --final-timeout, --rate, --concurrency, --keys and --nodes are positive")
	}
	kind, err := workload.Find(j.Workload)
	if err != nil {
		return usagef("%w; 'ponor jepsen list' tells more", err)
	}
	if err := j.chooseClient(f.Changed("client"), kind); err != nil {
		return err
	}
	for _, name := range j.Nemesis {
		if _, err := nemesis.Find(name); err != nil && name != "none" {
			return usagef("%w; 'ponor jepsen list' tells more", err)
		}
		if name == "none" && len(j.Nemesis) > 1 {
			return usagef("--nemesis none goes with no other fault")
		}
	}
	if err := j.suits(f); err != nil {
		return err
	}
	if j.tiny {
		j.Extra = append(j.Extra, "--tiny")
	}
	if j.Out == "" {
		j.Out = filepath.Join("jepsen-runs", time.Now().Format("20060102-150405")+"-"+j.Workload)
	}
	if j.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	j.Product, j.Client = "ponor "+version(), franzVersion()
	j.Command = jepsenCommand(cmd, j.Seed)
	j.Output = cmd.OutOrStdout()
	if file, ok := j.Output.(*os.File); ok {
		j.Terminal = term.IsTerminal(int(file.Fd()))
	}
	j.OpenStore = func(ctx context.Context, url string) (objstore.Bucket, error) {
		return openBucket(ctx, url, fmt.Sprint("jepsen-", os.Getpid()))
	}
	return nil
}

// suits refuses flags and faults that do not suit the cluster: one of the run's own,
// or that of --bootstrap.
func (j *jepsenRun) suits(f *pflag.FlagSet) error {
	for _, name := range []string{"nodes", "store", "node-flag", "keep", "tiny"} {
		if len(j.Bootstrap) > 0 && f.Changed(name) {
			return usagef("--%s is for a cluster of the run's own, --bootstrap names another", name)
		}
	}
	for _, name := range []string{"kill-cmd", "stop-cmd", "start-cmd", "pause-cmd", "resume-cmd", "state-cmd"} {
		if len(j.Bootstrap) == 0 && f.Changed(name) {
			return usagef("--%s is for a cluster that --bootstrap names", name)
		}
	}
	if len(j.Bootstrap) > 0 && !f.Changed("nemesis") {
		j.Nemesis = []string{"none"} // nobody hurts another's cluster without being told to
	}
	for _, name := range j.Nemesis {
		k, err := nemesis.Find(name)
		if err != nil {
			continue
		}
		if len(j.Bootstrap) == 0 {
			if j.Nodes < k.Least() {
				return usagef("fault %s needs --nodes %d or more", name, k.Least())
			}
			continue
		}
		for _, flag := range commandsFor[k.Needs] {
			if f.Lookup(flag).Value.String() == "" {
				return usagef("fault %s needs --%s on a cluster that --bootstrap names", name, flag)
			}
		}
	}
	return nil
}

// clientFranz is franz-go in this process.
const clientFranz = "kgo"

// clientNames are the values of --client.
var clientNames = []string{clientFranz, drivers.Librdkafka, drivers.Java}

// chooseClient takes --client, which was named or not, and --client-cmd.
func (j *jepsenRun) chooseClient(named bool, kind workload.Kind) error {
	switch {
	case !slices.Contains(clientNames, j.client):
		return usagef("unknown client %q: %s", j.client, strings.Join(clientNames, ", "))
	case named && j.Driver != "":
		return usagef("--client and --client-cmd do not go together")
	case j.client != clientFranz:
		j.Library = j.client
	case j.Driver == "":
		return nil
	}
	if !kind.Drivers {
		return usagef("workload %s has clients of franz-go alone", j.Workload)
	}
	return nil
}

// jepsenCommand is the command line with its seed.
func jepsenCommand(cmd *cobra.Command, seed uint64) string {
	words := []string{"ponor jepsen run"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "seed" || f.Name == "out":
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			words = append(words, "--"+f.Name)
		default:
			words = append(words, fmt.Sprintf("--%s=%s", f.Name, shellQuote(strings.Trim(f.Value.String(), "[]"))))
		}
	})
	return strings.Join(append(words, fmt.Sprintf("--seed=%d", seed)), " ")
}

func shellQuote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"\\$`&|;<>(){}*?[]#~!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// franzVersion is the client library with its version.
func franzVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/twmb/franz-go" {
				return "franz-go " + d.Version
			}
		}
	}
	return "franz-go"
}

func newJepsenCheck() *cobra.Command {
	var out string
	var all bool
	cmd := &cobra.Command{
		Use: "check FILE|DIR", Short: "Judge the history of an old run again",
		Long: `Judge the history of an old run again, and write results.json and report.html
beside it (or to --out). Exits with 0 if it is valid, 1 if a promise was broken, 2
if that cannot be said, 3 if it could not be read.`,
		Example: "  ponor jepsen check jepsen-runs/20261130-120000-queue",
		Args:    takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			if st, err := os.Stat(file); err == nil && st.IsDir() {
				file = filepath.Join(file, jepsen.HistoryFile)
			}
			if out == "" {
				out = filepath.Dir(file)
			}
			s, err := jepsen.Judge(out, file, "")
			if err != nil {
				return codedError{fmt.Errorf("jepsen check: %w", err), exitNotRun}
			}
			printSummary(cmd, s, all)
			cmd.Printf("report   %s\n", shorter(filepath.Join(out, jepsen.ReportFile)))
			return verdictError(s)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "directory for results and report; default: where the history is")
	cmd.Flags().BoolVarP(&all, "verbose", "v", false, "print every check")
	return cmd
}

func newJepsenList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List workloads and faults", Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { printJepsenList(cmd); return nil },
	}
}

func printJepsenList(cmd *cobra.Command) {
	_ = render(cmd, formatText, nil, func(p *printer) {
		p.line("Workloads, and the faults that each is made for:")
		for _, k := range workload.Kinds() {
			if k.New != nil {
				p.row("  "+k.Name, strings.Join(k.Faults, ","), k.What)
			}
		}
		p.line("")
		p.line("Not yet:")
		for _, k := range workload.Kinds() {
			if k.New == nil {
				p.row("  "+k.Name, "", k.What+": "+k.Why)
			}
		}
		p.line("")
		p.line("Faults:")
		for _, k := range nemesis.Kinds() {
			p.row("  "+k.Name, "", k.What)
		}
	})
}

func runnable() []string {
	var names []string
	for _, k := range workload.Kinds() {
		if k.New != nil {
			names = append(names, k.Name)
		}
	}
	return names
}

func nemesisNames() []string {
	var names []string
	for _, k := range nemesis.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// printSummary shows the judgement: all checks, or those that found something,
// and what is wrong.
func printSummary(cmd *cobra.Command, s check.Summary, all bool) {
	many := make(map[string]int)
	_ = render(cmd, formatText, nil, func(p *printer) {
		head := false
		for _, r := range s.Results {
			if r.Verdict == check.Unknown && r.Optional {
				many["left out"]++
			} else {
				many[string(r.Verdict)]++
			}
			if !all && (r.Verdict == check.Valid || r.Optional) && r.Verdict != check.Invalid {
				continue
			}
			if !head {
				p.row("CHECK", "", "VERDICT", "LOOKED AT", "FOUND", "")
				head = true
			}
			note := r.Note
			if r.Count > 0 && r.Tolerated != "" {
				note = strings.TrimPrefix(note+"; tolerated: "+r.Tolerated, "; ")
			}
			p.row(r.ID, r.Name, r.Verdict, r.Checked, r.Count, note)
		}
	})
	for _, r := range s.Results {
		if r.Verdict != check.Invalid {
			continue
		}
		for i, a := range r.Worst {
			if i == 3 {
				cmd.Printf("  and %d more of %s\n", r.Count-i, r.ID)
				break
			}
			cmd.Printf("  %s %s: %s\n", r.ID, r.Name, a.Text)
		}
	}
	verdict := strings.ToUpper(string(s.Verdict))
	if s.Why != "" {
		verdict += ": " + s.Why
	}
	cmd.Printf("\n%s\n", verdict)
	var counts []string
	for _, what := range []string{"valid", "invalid", "unknown"} {
		if many[what] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", many[what], what))
		}
	}
	cmd.Printf("checks   %s\n", strings.Join(counts, ", "))
	if n := many["left out"]; n > 0 {
		cmd.Printf("         %d more can say nothing about this run; the report says why\n", n)
	}
}

// verdictError gives a verdict its exit code.
func verdictError(s check.Summary) error {
	switch s.Verdict {
	case check.Valid:
		return nil
	case check.Invalid:
		return codedError{silentError{fmt.Errorf("invalid: %s", s.Why)}, exitError}
	}
	return codedError{silentError{fmt.Errorf("unknown: %s", s.Why)}, exitUnchecked}
}

// shorter is a path from where the user is, if that is shorter.
func shorter(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, abs); err == nil && len(rel) < len(abs) {
			return rel
		}
	}
	return abs
}
