package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// tracer is strace on a node, which changes what some of its system calls give.
type tracer struct {
	cmd    *exec.Cmd
	file   string // of what was changed
	said   bytes.Buffer
	exited chan struct{} // closed when it has ended
}

// ended says why strace ended before it was told to. Nil: it runs, or the node has
// ended, with which it does.
func (t *tracer) ended() error {
	select {
	case <-t.exited:
	default:
		return nil
	}
	if t.cmd.ProcessState.Success() {
		return nil
	}
	return fmt.Errorf("strace ended by itself: %v: %s", t.cmd.ProcessState, bytes.TrimSpace(t.said.Bytes()))
}

// Tamper changes what a node's system calls on its quorum log give, as an
// expression of strace's option -e inject says: errors, and delays. One that is on
// ends. Whether it lasts, Tampered says.
func (c *Processes) Tamper(id int32, inject string) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	if err := c.Untamper(id); err != nil {
		return err
	}
	t := &tracer{exited: make(chan struct{}), file: filepath.Join(c.cfg.Dir, fmt.Sprintf("strace%d.txt", id))}
	log := filepath.Join(n.dir, quorumLog)
	if _, err := os.Stat(log); err != nil { // strace would wait for calls that nobody makes
		return err
	}
	t.cmd = exec.CommandContext(context.Background(), "strace", "-f", "-q", "-p", fmt.Sprint(n.pid()), "-P", log,
		"-e", "trace=pwrite64,fdatasync", "-e", "signal=none", "-e", "inject="+inject, "-o", t.file)
	if err := os.Remove(t.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.cmd.Stderr = &t.said
	if err := c.life.start(t.cmd); err != nil {
		return fmt.Errorf("start strace: %w", err)
	}
	go func() {
		_ = t.cmd.Wait() // how it ended is in ProcessState
		close(t.exited)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracers == nil {
		c.tracers = make(map[int32]*tracer)
	}
	c.tracers[id] = t
	return nil
}

// quorumLog is the file with the log of the metadata quorum in a node's directory.
const quorumLog = "metadata/raft.db"

// detachWait is how long strace may take to let its process go on.
const detachWait = 10 * time.Second

// Untamper ends it; the process goes on. An error: it had ended before.
func (c *Processes) Untamper(id int32) error {
	c.mu.Lock()
	t := c.tracers[id]
	delete(c.tracers, id)
	c.mu.Unlock()
	if t == nil {
		return nil
	}
	err := t.ended()
	_ = t.cmd.Process.Signal(syscall.SIGTERM) // it may have ended with the node
	kill := time.AfterFunc(detachWait, func() { _ = t.cmd.Process.Kill() })
	defer kill.Stop()
	<-t.exited
	return err
}

// Tampered is how many calls gave something else, since Tamper. An error: that has
// ended, and the node goes on without it.
func (c *Processes) Tampered(id int32) (int, error) {
	c.mu.Lock()
	t := c.tracers[id]
	c.mu.Unlock()
	if t == nil {
		return 0, nil
	}
	b, err := os.ReadFile(t.file)
	if err != nil {
		b = nil // it has not begun
	}
	return bytes.Count(b, []byte("(INJECTED)")) + bytes.Count(b, []byte("(DELAYED)")), t.ended()
}

// Heal ends all faults but those of processes.
func (c *Processes) Heal() error {
	errs := []error{c.Means.Heal()}
	for _, n := range c.nodes {
		errs = append(errs, c.Untamper(n.id))
	}
	return errors.Join(errs...)
}

// canTrace says why strace cannot be had, or may not look at other processes.
var canTrace = sync.OnceValue(func() error {
	victim := exec.CommandContext(context.Background(), "sleep", "1")
	if err := victim.Start(); err != nil {
		return fmt.Errorf("disks that are slow or fail need strace: %w (%w)", ErrCannot, err)
	}
	out, err := exec.CommandContext(context.Background(), "strace", "-q", "-p", fmt.Sprint(victim.Process.Pid), "-e", "trace=none", "-o", os.DevNull).CombinedOutput()
	_ = victim.Wait()
	if err != nil {
		return fmt.Errorf("disks that are slow or fail need strace: %w (%w) %s", ErrCannot, err, bytes.TrimSpace(out))
	}
	return nil
})
