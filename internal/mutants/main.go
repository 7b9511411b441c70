// Mutants proves that every rule of the shared log has a test that fails
// without it: it breaks one rule after another in the product's own code and
// runs the tests that are to notice. 'make mutants' runs it.
//
// The breaks are in table/*.txt, by area. Each is a block:
//
//	== RULES  FILE  PACKAGE  TESTS
//	what is wrong with the mutated code, in words
//	-- old
//	text that FILE has exactly once
//	-- new
//	text in its place, may be nothing
//
// RULES are ids with commas between them; TESTS is a regular expression for
// go test -run. The source is not touched: the go command gets the changed file
// by its -overlay. Lines that begin with # before the first block are comments.
//
// A mutant that survives says that a test is missing. The tests of this package
// are cheap and run no mutant: they keep the table, the rule list of
// sharedlog/DESIGN.md and the citations in the code in step.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("root", ".", "the repository")
	only := flags.String("only", "", "run only mutants whose rules, file or words match this regular expression")
	jobs := flags.Int("jobs", 2, "how many to run at a time; each compiles and tests one package")
	timeout := flags.Duration("timeout", time.Minute, "how long the tests of one mutant may take; one that hangs them is caught")
	if err := flags.Parse(args); err != nil {
		return err
	}
	filter, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	dir, err := filepath.Abs(*root)
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	all, err := loadTable(dir)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if filter.MatchString(m.heading()) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q chooses none of %d mutants", *only, len(all))
	}
	r := runner{root: dir, timeout: *timeout, jobs: max(*jobs, 1), out: out}
	return r.run(ctx, chosen)
}
