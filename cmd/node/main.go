// Command node builds ponor: the broker and its command line, one binary.
// This package reads flags, environment and files, wires every other package
// by hand, runs and drains; it is the only place that knows every type.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of every subcommand.
const (
	exitOK    = 0
	exitError = 1 // the command was understood and did not succeed
	exitUsage = 2 // the command line, environment or file is wrong
	// exitUnchecked: a verification could not be done.
	exitUnchecked = 2
)

// silentError exits with 1 without printing more: the output has said it.
type silentError struct{ error }

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() { // a second signal ends the process at once
		<-ctx.Done()
		stop()
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	reportError(cmd, err, out, errOut)
	var usage usageError
	var unchecked uncheckedError
	var coded codedError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &unchecked):
		return exitUnchecked
	}
	return exitError
}

// reportError prints one JSON object on standard output where the caller asked
// for JSON, and a line on standard error otherwise.
func reportError(cmd *cobra.Command, err error, out, errOut io.Writer) {
	var silent silentError
	if errors.As(err, &silent) {
		return
	}
	if f := cmd.Flags().Lookup("format"); f != nil && f.Value.String() == formatJSON {
		_ = writeJSON(out, map[string]string{"error": err.Error()})
		return
	}
	_, _ = fmt.Fprintf(errOut, "ponor: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		_, _ = fmt.Fprintf(errOut, "Try '%s --help'.\n", cmd.CommandPath())
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "ponor",
		Short: "A Kafka-protocol cluster of stateless brokers on shared storage",
		Long: `Ponor speaks the Kafka protocol. A partition's log is a stream on shared
storage, so brokers keep nothing and partitions move without copying a byte.

  ponor demo                     three nodes on this machine, ready in a second
  ponor start                    one node, or one of a cluster with --join
  ponor topic create orders      client commands work against any Kafka cluster`,
		Args: oneOfVerbs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return checkVariables(cmd, os.Environ())
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.AddCommand(newStart(), newDemo(), newTopic(), newProduce(), newConsume(), newGroup(),
		newBench(), newCluster(), newTop(), newBroker(), newBalance(), newQuorum(), newCheck(), newVerify(), newJepsen(), newMetadata(), newDump(), newConfig(), newVersion())
	return root
}
