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
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ponor/cmd/node/process"
	"ponor/internal/wall"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

func newStart() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a node: alone, or one of a cluster with --join",
		Long: `Run a node. Without flags it is a working single node. With --join it is one of
a cluster: give every controller the same list, and each node its own --node-id,
--listen, --controller-listen and --data-dir, and all the same --store. The directory
of a dir: store is made by a controller without metadata, as at the start of a new
cluster; a node that has a cluster waits for it instead, as for a mount.

SIGTERM or Ctrl-C hands over and exits; a second one exits at once.`,
		Args: takes(0, 0),
	}
	load := settingFlags(cmd)
	small := cmd.Flags().Bool("tiny", false, "for tests: background work within seconds")
	clock := cmd.Flags().String("clock", "", "for tests: a file that says how far the time of day is off")
	for _, name := range []string{"tiny", "clock"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		collectEarly()
		set, _, err := load()
		if err != nil {
			return err
		}
		log, level, err := newLogger(set, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		stopDebug, err := serveDebug(cmd.Context(), set.DebugListen, log)
		if err != nil {
			return err
		}
		defer stopDebug()
		metrics, err := listenMetrics(cmd.Context(), set.MetricsListen)
		if err != nil {
			return err
		}
		bucket, err := startStore(cmd.Context(), set, log)
		if err != nil {
			return err
		}
		defer func() { _ = bucket.Close() }()
		if set.Tiny = *small; set.Tiny {
			log.Warn("--tiny is for tests: background work costs far too much")
		}
		if *clock != "" {
			log.Warn("--clock is for tests: the time of day is what a file says", "file", *clock)
			if err := wall.Follow(cmd.Context(), *clock); err != nil {
				return err
			}
		}
		n, err := newNode(cmd.Context(), set, bucket, log, level)
		if err != nil {
			return err
		}
		defer serveMetrics(metrics, n, log)()
		err = n.Run(cmd.Context())
		if err == nil {
			log.Info("stopped")
		}
		return err
	}
	return cmd
}

// startStore opens the store of a node that starts. Only a controller without metadata
// may be the first of its cluster, and make the store's directory.
func startStore(ctx context.Context, set settings, log *slog.Logger) (objstore.Bucket, error) {
	if _, err := os.Stat(filepath.Join(set.DataDir, "metadata")); set.controller() && errors.Is(err, os.ErrNotExist) {
		if err := makeStore(set.Store); err != nil {
			return nil, err
		}
	}
	awaitStore(ctx, set.Store, startPatience, log)
	return openStore(ctx, set.Store, fmt.Sprint("node-", set.NodeID), log)
}

// collectEarly has the garbage collector let the heap grow by half instead of
// double, unless the operator said otherwise (GOGC). Most of a node's heap is
// blocks and frames without pointers, which cost a collection nothing.
func collectEarly() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// newNode opens the ports that the settings name and assembles a node on them.
func newNode(ctx context.Context, set settings, bucket objstore.Bucket, log *slog.Logger, level *slog.LevelVar) (*process.Node, error) {
	cfg := process.Config{
		NodeID: metadata.BrokerID(set.NodeID), Version: version(), Bucket: bucket, StoreURL: set.Store,
		Advertise: set.Advertise, AdvertiseQuorum: set.ControllerAdvert, Join: set.Join, Zone: set.Zone,
		SessionTimeout: set.SessionTimeout, CacheBytes: set.CacheBytes, WALBudget: set.WALBudget, PackBytes: set.PackBytes,
		MaxConns: int(set.MaxConnections), AutoCreateTopics: set.AutoCreateTopics, DefaultPartitions: set.DefaultPartitions,
		Level: level, Logger: log,
	}
	if set.Tiny {
		tiny(&cfg)
	}
	var lc net.ListenConfig
	var err error
	if cfg.Clients, err = lc.Listen(ctx, "tcp", set.Listen); err != nil {
		return nil, fmt.Errorf("listen for clients: %w; choose another --listen or stop what has the port", err)
	}
	if set.controller() {
		if cfg.Quorum, err = lc.Listen(ctx, "tcp", set.ControllerListen); err != nil {
			_ = cfg.Clients.Close()
			return nil, fmt.Errorf("listen for the quorum: %w; choose another --controller-listen or stop what has the port", err)
		}
	}
	if set.controller() && set.Store != "mem:" {
		cfg.DataDir = set.DataDir
	}
	return process.New(cfg)
}

// newLogger writes text to a terminal and JSON elsewhere, unless told.
func newLogger(set settings, w io.Writer) (*slog.Logger, *slog.LevelVar, error) {
	l, err := set.level()
	if err != nil {
		return nil, nil, err
	}
	level := new(slog.LevelVar)
	level.Set(l)
	opts := &slog.HandlerOptions{Level: level}
	f, isFile := w.(*os.File)
	if set.LogFormat == "text" || set.LogFormat == "auto" && isFile && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, opts)), level, nil
	}
	return slog.New(slog.NewJSONHandler(w, opts)), level, nil
}
