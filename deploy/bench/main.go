// Command bench measures a cluster of three Ponor processes on this machine, and
// Apache Kafka beside it, with the loads of docs/benchmarks.md:
//
//	go run ./deploy/bench                     # Ponor (make bench-cluster)
//	go run ./deploy/bench -kafka -rounds 3    # both in turns (make bench-kafka)
//	go run ./deploy/bench -scale              # many partitions (make bench-scale)
//	go run ./deploy/bench -groups -kafka      # consumer groups (make bench-groups)
//	go run ./deploy/bench -failover           # deaths, moves and restarts (make bench-failover)
//
// It only starts, stops and reads processes; the loads are 'ponor bench', and with
// -scale and -groups clients of its own, see scale.go and groups.go. With
// -kafka both clusters stay up and take each load one after the other, so that
// what else the machine does hits both; the first round warms up and does not
// count. Ratios of one run mean something, figures of two runs do not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	binary           string
	dir              string
	kafka            bool
	rounds           int
	warmup, duration time.Duration
	only             string
	latency          string // of the store, see 'ponor start'
	scale            bool
	failover         bool
	bulk             int64    // bytes in a large partition, with failover
	settings         []string // more flags of every node
	cuttable         bool     // nodes can be cut off, with failover
	partitions       int
	groups           bool
	members          int
	cache            string // of each node, with scale, groups and failover
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/ponor", "the binary to measure and to measure with")
	flag.StringVar(&o.dir, "dir", "", "directory on the disk to measure; default a temporary one")
	flag.BoolVar(&o.kafka, "kafka", false, "measure Apache Kafka in turns (needs Java and 'deploy/kafka/kafka.sh fetch')")
	flag.IntVar(&o.rounds, "rounds", 1, "rounds that count; medians are printed")
	flag.DurationVar(&o.warmup, "warmup", 5*time.Second, "load before each measurement")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "each measurement")
	flag.StringVar(&o.only, "only", "", "comma-separated names of loads; default all")
	flag.StringVar(&o.latency, "latency", "", "s3 makes the store as slow as S3")
	flag.BoolVar(&o.scale, "scale", false, "measure what many partitions and waiting consumers cost instead (make bench-scale); -only takes idle, session, partitions, requests")
	flag.IntVar(&o.partitions, "partitions", 100_000, "with -scale: how many partitions 'partitions' makes")
	flag.BoolVar(&o.groups, "groups", false, "measure consumer groups instead (make bench-groups); -only takes join, join-clients, commit, large, many, move, move-full, takeover")
	flag.IntVar(&o.members, "members", 1000, "with -groups: members of the large group; it has ten partitions for each")
	flag.BoolVar(&o.failover, "failover", false, "measure what clients see of deaths, moves and restarts instead (make bench-failover); -only takes kill, leader, pause, pause-leader, cut, cut-leader, moves, many, drain, roll, entries")
	flag.Int64Var(&o.bulk, "bulk", 2<<30, "with -failover: bytes in the large partition that moves")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// storeQuery is the end of the store's URL.
func (o options) storeQuery() string {
	if o.latency == "" {
		return ""
	}
	return "?latency=" + o.latency
}

func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return fmt.Errorf("find binary: %w", err)
	}
	if o.dir, err = os.MkdirTemp(o.dir, "ponor-bench-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	if o.failover {
		return runFailover(ctx, o)
	}
	if o.scale {
		return runScale(ctx, o)
	}
	if o.groups {
		return runGroups(ctx, o)
	}
	systems, stop, err := startSystems(ctx, o)
	if err != nil {
		return err
	}
	defer stop()
	table := results{}
	first := 1
	if o.kafka {
		first = 0 // Java compiles what it sees used
	}
	for round := first; round <= o.rounds; round++ {
		for _, l := range loads() {
			if o.only != "" && !slices.Contains(strings.Split(o.only, ","), l.name) {
				continue
			}
			for _, s := range systems {
				m, err := l.measure(ctx, o, s)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, s.name, err)
				}
				fmt.Fprintf(os.Stderr, "round %d %-12s %-6s %s\n", round, l.name, s.name, m)
				if round > 0 {
					table.add(l.name, s.name, m)
				}
			}
		}
	}
	table.print(os.Stdout, systems)
	return nil
}
