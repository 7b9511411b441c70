package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ponor/cmd/node/process"
)

const demoNodes = 3

// warningsUntil is the log level of a demo. All nodes end at once: from the moment at
// which they are told to, what they say of the others is no news.
type warningsUntil struct{ ctx context.Context }

func (w warningsUntil) Level() slog.Level {
	if w.ctx.Err() != nil {
		return slog.LevelError + 1 // that nothing has
	}
	return slog.LevelWarn
}

func newDemo() *cobra.Command {
	var dirFlag string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run three nodes in three zones on this machine",
		Long: `Run three nodes in three zones in one process, on 127.0.0.1:9092, 9093 and 9094
or other ports where those are busy, over a directory store. Without --dir all of
it is gone when the command ends.`,
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			collectEarly()
			dir := dirFlag
			if dir == "" {
				tmp, err := os.MkdirTemp("", "ponor-demo-")
				if err != nil {
					return fmt.Errorf("make demo directory: %w", err)
				}
				defer func() { _ = os.RemoveAll(tmp) }()
				dir = tmp
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return fmt.Errorf("find demo directory: %w", err)
			}
			var level slog.Leveler = slog.LevelInfo
			if !verbose {
				level = warningsUntil{cmd.Context()}
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return runDemo(cmd.Context(), dir, dirFlag == "", cmd.OutOrStdout(), log)
		},
	}
	cmd.Flags().StringVar(&dirFlag, "dir", "", "keep store and metadata in this directory instead of a temporary one")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the nodes do")
	return cmd
}

// demoPort is the wanted port of 127.0.0.1 if it is free, else a free one.
func demoPort(ctx context.Context, want int) (string, error) {
	var lc net.ListenConfig
	for _, port := range []int{want, 0} {
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String(), nil
	}
	return "", errors.New("find a free port on 127.0.0.1")
}

// demoMetrics listens for metrics of one node.
func demoMetrics(ctx context.Context, node int) (net.Listener, error) {
	addr, err := demoPort(ctx, 9291+node)
	if err != nil {
		return nil, err
	}
	return listenMetrics(ctx, addr)
}

// demoAddresses chooses the addresses of a demo: first those for clients, then
// those of the quorum. A demo that was started in dir before keeps its own,
// because the quorum remembers its members by them.
func demoAddresses(ctx context.Context, dir string) ([]string, error) {
	file := filepath.Join(dir, "addresses")
	if b, err := os.ReadFile(file); err == nil {
		if list := strings.Fields(string(b)); len(list) == 2*demoNodes {
			return list, nil
		}
		return nil, fmt.Errorf("read %s: it does not list %d addresses; remove the directory to start anew", file, 2*demoNodes)
	}
	var list []string
	for _, base := range []int{9092, 9192} {
		for i := range demoNodes {
			addr, err := demoPort(ctx, base+i)
			if err != nil {
				return nil, err
			}
			list = append(list, addr)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make demo directory: %w", err)
	}
	if err := os.WriteFile(file, []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("note demo addresses: %w", err)
	}
	return list, nil
}

// demoSettings lays three nodes out under dir.
func demoSettings(ctx context.Context, dir string) ([]settings, error) {
	addresses, err := demoAddresses(ctx, dir)
	if err != nil {
		return nil, err
	}
	list := make([]settings, demoNodes)
	listen, join := addresses[:demoNodes], addresses[demoNodes:]
	for i := range list {
		given := map[string]string{
			"node-id": fmt.Sprint(i + 1), "listen": listen[i], "controller-listen": join[i], "join": strings.Join(join, ","),
			"store": "dir://" + filepath.Join(dir, "store"), "data-dir": filepath.Join(dir, fmt.Sprint("node-", i+1)),
			"zone": fmt.Sprint("zone-", string(rune('a'+i))), "auto-create-topics": "true", "cache-bytes": "64MiB",
		}
		if list[i], _, err = loadSettings("", given); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func runDemo(ctx context.Context, dir string, temporary bool, out io.Writer, log *slog.Logger) error {
	begin := time.Now()
	list, err := demoSettings(ctx, dir)
	if err != nil {
		return err
	}
	if err := makeStore(list[0].Store); err != nil {
		return err
	}
	bucket, err := openStore(ctx, list[0].Store, "demo", log)
	if err != nil {
		return err
	}
	defer func() { _ = bucket.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	errs := make(chan error, demoNodes)
	var scrape []string
	var nodes []*process.Node
	for _, set := range list {
		log := log.With("node", set.NodeID)
		n, err := newNode(ctx, set, bucket, log, new(slog.LevelVar))
		if err != nil {
			return err
		}
		metrics, err := demoMetrics(ctx, int(set.NodeID))
		if err != nil {
			return err
		}
		scrape = append(scrape, metrics.Addr().String())
		defer serveMetrics(metrics, n, log)()
		nodes = append(nodes, n)
		wg.Go(func() { errs <- n.Run(ctx) })
	}
	for _, n := range nodes {
		select {
		case <-n.Ready():
		case err := <-errs:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	demoWelcome(out, list, scrape, temporary, time.Since(begin))
	select {
	case err := <-errs:
		return err
	case <-ctx.Done():
		return nil
	}
}

// ownName is what to type to run this program again.
func ownName() string {
	if name := os.Args[0]; !strings.ContainsRune(name, filepath.Separator) {
		return name // found by the shell
	}
	name, err := os.Executable()
	if err != nil {
		return "ponor"
	}
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, name); err == nil && !strings.HasPrefix(rel, "..") {
			name = "." + string(filepath.Separator) + rel
		}
	}
	return name
}

// demoWelcome says where the cluster is and what to try.
func demoWelcome(out io.Writer, list []settings, scrape []string, temporary bool, took time.Duration) {
	ponor := ownName()
	var addrs []string
	for _, s := range list {
		addrs = append(addrs, s.Listen)
	}
	boot := list[0].Listen
	flag := ""
	if boot != defaultBootstrap {
		flag = " --bootstrap " + boot
	}
	keep := "it is deleted when this ends"
	if !temporary {
		keep = "it stays; start again with the same --dir"
	}
	_, _ = fmt.Fprintf(out, `Ponor: three nodes in three zones, ready in %.1f s
  Kafka address  %s
  store          %s (%s)
  metrics        http://%[8]s/metrics

Try, in another terminal:
  %[5]s topic create greetings --partitions 3%[6]s
  echo hello | %[5]s produce greetings%[6]s
  %[5]s consume greetings --from start --until-end%[6]s
  %[5]s cluster status%[6]s
  %[5]s bench produce --duration 5s%[6]s
  echo hello | kcat -P -b %[7]s -t greetings
  kafka-console-consumer.sh --bootstrap-server %[7]s --topic greetings --from-beginning --group readers
  %[5]s group describe readers%[6]s

Ctrl-C ends it.
`, took.Seconds(), strings.Join(addrs, ","), list[0].Store, keep, ponor, flag, boot, strings.Join(scrape, "/metrics http://"))
	if boot != defaultBootstrap {
		_, _ = fmt.Fprintf(out, "Port 9092 was busy, so the addresses differ from the usual ones.\n")
	}
}
