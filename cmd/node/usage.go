package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ponor/internal/editdistance"
)

// usageError marks mistakes of the caller, so that they exit with 2.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// family is a command that only has verbs; alone it prints its help.
func family(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: oneOfVerbs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(verbs...)
	return cmd
}

// oneOfVerbs refuses what is not a verb of the command.
func oneOfVerbs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	return usagef("'%s' has no command %q%s; there are %s", cmd.CommandPath(), args[0], meant(args[0], verbs), strings.Join(verbs, ", "))
}

// takes checks the number of arguments; high is -1 for any number of them.
func takes(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return usagef("%s is missing: write '%s'", missingArgument(cmd, len(args)), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		case high >= 0 && len(args) > high:
			return usagef("%q is one argument too many: write '%s'", args[high], strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		return nil
	}
}

// missingArgument is the name of the n-th argument, as the command's usage has it.
func missingArgument(cmd *cobra.Command, n int) string {
	names := strings.Fields(cmd.Use)[1:]
	if n >= len(names) {
		return "an argument"
	}
	return strings.TrimRight(names[n], ".")
}

// flagError says of an unknown flag which one may have been meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if m := meant(unknown.GetSpecifiedName(), known); m != "" {
		return usagef("%w%s", err, strings.Replace(m, "mean ", "mean --", 1))
	}
	return usageError{err}
}

// meant is " (did you mean X?)" if one of the names is like name.
func meant(name string, names []string) string {
	if like := nearest(name, names); like != "" {
		return fmt.Sprintf(" (did you mean %s?)", like)
	}
	return ""
}

// nearest is the name that is most like name, "" if none is like it.
func nearest(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := editdistance.Of(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	if i := slices.IndexFunc(names, func(n string) bool { return len(name) > 2 && strings.HasPrefix(n, name) }); best == "" && i >= 0 {
		best = names[i]
	}
	return best
}

// otherVariables are the environment variables that are no settings of a node.
var otherVariables = []string{"PONOR_CONFIG", "PONOR_BOOTSTRAP", "PONOR_CONTROLLERS"}

// checkVariables looks for PONOR_ variables that nothing reads. One that is like
// one that is read is a mistake, which would else go unnoticed; others are told.
// Kubernetes sets some for a service named ponor.
func checkVariables(cmd *cobra.Command, environ []string) error {
	known := slices.Clone(otherVariables)
	for _, row := range settingsTable() {
		known = append(known, row.env())
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		short, ours := strings.CutPrefix(name, "PONOR_")
		if !ours || slices.Contains(known, name) || strings.HasPrefix(short, "SERVICE_") || short == "PORT" || strings.HasPrefix(short, "PORT_") {
			continue
		}
		if like := meant(name, known); like != "" {
			return usagef("environment variable %s is not read by anything%s: correct it, or unset it", name, like)
		}
		cmd.PrintErrf("ponor: environment variable %s is not read by anything; 'ponor config print' lists the settings\n", name)
	}
	return nil
}
