package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

//go:embed join.py
var joinScript string

//go:embed Join.java
var joinJava string

// How often other clients join, and how long the group of one has been running before each
// join: long enough to know its heartbeats, and at all times of their interval of 3 s.
const (
	clientJoins    = 9
	clientJoinWait = 8 * time.Second
	clientJoinMore = 350 * time.Millisecond
)

// joinClients measures how long it is from a member's start to its first record in a
// running group of one, by the classic protocol, with stock settings but for commits, which
// are on by default: every 5 s.
func (g *groups) joinClients() error {
	stop, err := g.keepProducing()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp(g.o.dir, "join-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	source := filepath.Join(dir, "Join.java")
	if err := os.WriteFile(source, []byte(joinJava), 0o600); err != nil {
		return fmt.Errorf("write program: %w", err)
	}
	python := os.Getenv("PYTHON_CLIENTS")
	clients := []struct {
		name string
		argv []string
	}{
		{"Java", []string{"bash", filepath.Join("deploy", "kafka", "kafka.sh"), "tool", source}},
		{"librdkafka", []string{python, "-c", joinScript, "librdkafka"}},
		{"kafka-python", []string{python, "-c", joinScript, "kafka-python"}},
	}
	for _, commits := range []string{"true", "false"} {
		took, errs := make([][]float64, len(clients)), make([]error, len(clients))
		var all sync.WaitGroup // side by side: they mostly wait
		for i, c := range clients {
			if c.argv[0] == "" {
				continue // PYTHON_CLIENTS names no Python with these libraries
			}
			group := fmt.Sprintf("join-%s-%s-%d", c.name, commits, g.round)
			argv := append(c.argv[1:], g.bootstrap, groupTopic, group, strconv.Itoa(clientJoins),
				fmt.Sprint(clientJoinWait.Seconds()), fmt.Sprint(clientJoinMore.Seconds()), "enable.auto.commit="+commits)
			all.Go(func() { took[i], errs[i] = g.runJoins(c.argv[0], argv) })
		}
		all.Wait()
		for i, c := range clients {
			if errs[i] != nil {
				return fmt.Errorf("%s: %w", c.name, errs[i])
			}
			if took[i] == nil {
				continue
			}
			name := c.name + ": start to first record, running group of one"
			if commits == "false" {
				name += ", no commits"
			}
			fmt.Fprintf(os.Stderr, "%s: %.2f\n", name, took[i])
			g.note(name, "s", median(took[i]))
			g.note(name+", mean", "s", mean(took[i]))
		}
	}
	return nil
}

// runJoins runs a program that prints a time a line; the first warms up.
func (g *groups) runJoins(name string, argv []string) (took []float64, err error) {
	ctx, cancel := context.WithTimeout(g.ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, argv...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run it: %w: %s", err, errOut.String())
	}
	for _, line := range strings.Fields(string(out)) {
		d, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return nil, fmt.Errorf("it printed %q", line)
		}
		took = append(took, d)
	}
	if len(took) != clientJoins {
		return nil, fmt.Errorf("it printed %d times: %s", len(took), errOut.String())
	}
	return took[1:], nil
}

// keepProducing has each partition get 100 records a second until stop.
func (g *groups) keepProducing() (stop func(), err error) {
	c, err := g.producer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(g.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for p := range int32(groupParts) {
				c.Produce(ctx, &kgo.Record{Topic: groupTopic, Partition: p, Value: make([]byte, 100)}, nil)
			}
			pause(ctx, 10*time.Millisecond)
		}
	})
	return func() {
		cancel()
		done.Wait()
		c.Close()
	}, nil
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}
