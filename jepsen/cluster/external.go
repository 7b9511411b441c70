package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Commands are what a user's cluster obeys, for a shell, with {node} in place of
// the broker's id. An empty one: the fault is not possible.
type Commands struct {
	Start, Stop, Kill, Pause, Resume string
	// State prints something about a node that proves a fault, such as ps's
	// line. Empty: the proof of a fault is that its command succeeded.
	State string
}

// External is a cluster that the harness did not start.
type External struct {
	seeds    []string
	nodes    []int32
	commands Commands

	mu struct {
		sync.Mutex
		down, paused map[int32]bool // by the harness's own commands; down also if one failed
	}
}

// Connect asks a cluster which nodes it has.
func Connect(ctx context.Context, seeds []string, commands Commands) (*External, error) {
	cl, err := Client(seeds)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	md, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("no broker answers at %s: %w", strings.Join(seeds, ","), err)
	}
	c := &External{seeds: seeds, commands: commands}
	c.mu.down, c.mu.paused = make(map[int32]bool), make(map[int32]bool)
	for _, b := range md.Brokers {
		c.nodes = append(c.nodes, b.NodeID)
	}
	slices.Sort(c.nodes)
	return c, nil
}

// Nodes implements Cluster.
func (c *External) Nodes() []int32 { return c.nodes }

// Bootstrap implements Cluster.
func (c *External) Bootstrap() []string { return c.seeds }

// Can implements Cluster.
func (c *External) Can(what string) bool {
	switch what {
	case "kill":
		return c.commands.Kill != "" && c.commands.Start != ""
	case "stop":
		return c.commands.Stop != "" && c.commands.Start != ""
	case "pause":
		return c.commands.Pause != "" && c.commands.Resume != ""
	case NeedsPauseKill:
		return c.Can("pause") && c.Can("kill")
	}
	return false
}

// commandTimeout bounds a command.
const commandTimeout = time.Minute

// outputMost is how much of what a command prints is read.
const outputMost = 64 << 10

// shell runs a command for a node and returns its output. It ends though the
// context does: nobody would know whether a command that was cut off took effect.
// What it leaves running is not waited for, and may go on to print: a server that a
// command starts has its output, often.
func (c *External) shell(ctx context.Context, command string, node int32) (string, error) {
	if command == "" {
		return "", ErrCannot
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	out, err := os.CreateTemp("", "ponor-jepsen-")
	if err != nil {
		return "", fmt.Errorf("keep what a command prints: %w", err)
	}
	defer out.Close()
	_ = os.Remove(out.Name()) // it lasts as long as somebody has it open
	line := strings.ReplaceAll(command, "{node}", fmt.Sprint(node))
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr = out, out // a pipe would be read until nobody has it open
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end within %v: %w", commandTimeout, err)
	}
	said, rerr := io.ReadAll(io.NewSectionReader(out, 0, outputMost))
	text := strings.TrimSpace(string(said))
	if err = errors.Join(err, rerr); err != nil {
		return text, fmt.Errorf("%s: %w: %s", line, err, text)
	}
	return text, nil
}

// Start implements Cluster.
func (c *External) Start(ctx context.Context, node int32) error {
	_, err := c.shell(ctx, c.commands.Start, node)
	c.note(err, func() { c.mu.down[node] = false })
	return err
}

// Stop implements Cluster.
func (c *External) Stop(ctx context.Context, node int32) error {
	return c.end(ctx, c.commands.Stop, node)
}

// Kill implements Cluster.
func (c *External) Kill(ctx context.Context, node int32) error {
	return c.end(ctx, c.commands.Kill, node)
}

// end runs a command that ends a node. One that fails may have ended it all the same, so
// that it is started again.
func (c *External) end(ctx context.Context, command string, node int32) error {
	_, err := c.shell(ctx, command, node)
	if !errors.Is(err, ErrCannot) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.down[node] = true
	}
	return err
}

// Pause implements Cluster.
func (c *External) Pause(ctx context.Context, node int32) error {
	_, err := c.shell(ctx, c.commands.Pause, node)
	c.note(err, func() { c.mu.paused[node] = true })
	return err
}

// Resume implements Cluster.
func (c *External) Resume(ctx context.Context, node int32) error {
	_, err := c.shell(ctx, c.commands.Resume, node)
	c.note(err, func() { c.mu.paused[node] = false })
	return err
}

func (c *External) note(err error, change func()) {
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// State implements Cluster.
func (c *External) State(node int32) string {
	out, err := c.shell(context.Background(), c.commands.State, node)
	switch {
	case errors.Is(err, ErrCannot) && c.Down(node):
		return "the command to end it succeeded"
	case errors.Is(err, ErrCannot) && c.Paused(node):
		return "the command to pause it succeeded"
	case errors.Is(err, ErrCannot):
		return "the command to run it succeeded"
	case err != nil:
		return err.Error()
	}
	return out
}

// Down implements Cluster.
func (c *External) Down(node int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.down[node]
}

// Paused implements Cluster.
func (c *External) Paused(node int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.paused[node]
}

// Exited implements Cluster: nobody knows.
func (c *External) Exited() map[int32]string { return nil }

// Logs implements Cluster.
func (c *External) Logs() string { return "" }

// Close implements Cluster: the cluster is not ours.
func (c *External) Close() error { return nil }
