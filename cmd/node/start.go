package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newStart() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a node: alone, or one of a cluster with --join",
		Long: `Run a node. Without flags it is a working single node. With --join it is one of
a cluster: give every controller the same list, and each node its own --node-id,
--listen, --controller-listen and --data-dir, and all the same --store.

SIGTERM or Ctrl-C hands over and exits; a second one exits at once.`,
		Args: cobra.NoArgs,
	}
	load := settingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, _, err := load()
		if err != nil {
			return err
		}
		log, level, err := newLogger(set, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		n, err := newNode(cmd.Context(), set, nil, log, level)
		if err != nil {
			return err
		}
		go func() {
			select {
			case <-n.ready:
				log.Info("ready for clients", "listen", n.clients.Addr().String())
			case <-cmd.Context().Done():
			}
		}()
		err = n.run(cmd.Context())
		if err == nil {
			log.Info("stopped")
		}
		return err
	}
	return cmd
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
