// Command compare sends the same requests to a node of Ponor and to one of Apache
// Kafka and prints every field of their answers that differs:
//
//	go run ./deploy/compare                  # both (make compare)
//	go run ./deploy/compare -only static -v  # one script, and all its answers
//
// A difference that is meant is in intended.go with its reason; any other, and one of
// those that is not there any more, makes it fail.
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
	"sync"
	"syscall"
	"time"
)

// script is a conversation. It must send the same to both, whatever they answer.
type script struct {
	name string
	run  func(*session)
}

// scriptTimeout ends a script that waits for what does not come.
const scriptTimeout = 3 * time.Minute

func main() {
	binary := flag.String("binary", "bin/ponor", "the binary to compare")
	ponor := flag.String("ponor", "", "address of a node that runs; default starts one")
	kafka := flag.String("kafka", "", "address of a Kafka that runs; default starts one (needs Java and 'deploy/kafka/kafka.sh fetch')")
	only := flag.String("only", "", "regular expression: run these scripts only")
	verbose := flag.Bool("v", false, "print all answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := comparison{addrs: [2]string{*ponor, *kafka}, verbose: *verbose, out: os.Stdout}
	ok, err := c.run(ctx, *binary, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// comparison is one run.
type comparison struct {
	addrs   [2]string // Ponor's and Kafka's
	verbose bool
	out     io.Writer
}

func (c *comparison) run(ctx context.Context, binary, only string) (bool, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("read -only: %w", err)
	}
	dir, err := os.MkdirTemp("", "ponor-compare-")
	if err != nil {
		return false, fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stop, err := c.start(ctx, binary, dir)
	defer stop()
	if err != nil {
		return false, err
	}
	seen, failed, answers := map[int]bool{}, 0, 0
	for _, s := range scripts() {
		if !wanted.MatchString(s.name) {
			continue
		}
		both, err := c.play(ctx, s)
		if err != nil {
			failed++
			fmt.Fprintf(c.out, "%s ended early %v\n", s.name, err)
		}
		answers += len(both[0])
		for _, d := range differences(both[0], both[1]) {
			if i, ok := intends(s.name, d); ok {
				seen[i] = true
				continue
			}
			failed++
			fmt.Fprintf(c.out, "%s: %s\n", s.name, d)
		}
	}
	for i, in := range intended {
		if !seen[i] && only == "" {
			failed++
			fmt.Fprintf(c.out, "intended, and not seen: %s\n", in.where)
		}
	}
	fmt.Fprintf(c.out, "%d answers compared, %d differences, %d kinds that are intended\n", answers, failed, len(seen))
	return failed == 0, nil
}

// play runs a script on both at the same time.
func (c *comparison) play(ctx context.Context, s script) (both [2][]answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, addr := range c.addrs {
		wg.Go(func() { both[i], errs[i] = runScript(ctx, addr, s) })
	}
	wg.Wait()
	for i, name := range []string{"ponor", "kafka"} {
		if c.verbose {
			for _, a := range both[i] {
				fmt.Fprintf(c.out, "%s %s/%s\n", name, s.name, a)
			}
		}
		if errs[i] != nil && err == nil {
			err = fmt.Errorf("on %s: %w", name, errs[i])
		}
	}
	return both, err
}

// start starts what has no address yet.
func (c *comparison) start(ctx context.Context, binary, dir string) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for i, f := range []func(context.Context, string, string) (string, func(), error){startPonor, startKafka} {
		if c.addrs[i] != "" {
			continue
		}
		addr, end, err := f(ctx, binary, filepath.Join(dir, []string{"ponor", "kafka"}[i]))
		if end != nil {
			stops = append(stops, end)
		}
		if err != nil {
			return stop, err
		}
		c.addrs[i] = addr
	}
	if err := setOnNode(ctx, c.addrs[0]); err != nil {
		return stop, fmt.Errorf("set up ponor: %w", err)
	}
	for _, addr := range c.addrs {
		if err := prepare(ctx, addr); err != nil {
			return stop, fmt.Errorf("prepare %s: %w", addr, err)
		}
	}
	return stop, nil
}
