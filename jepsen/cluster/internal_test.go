package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper is a program that does nothing for long, whatever it is told.
func sleeper(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sleeper")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 300\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Processes are paused, killed and started again, and each is seen; one that
// ends by itself is told.
func TestProcesses(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	cfg := Config{Binary: sleeper(t), Dir: t.TempDir(), Rewire: func(_ int32, l Link) Link {
		l.Advertise = "proxy:1"
		return l
	}}
	c := &Processes{cfg: cfg}
	for id := range int32(2) {
		c.nodes = append(c.nodes, newNode(cfg, id+1, Link{Listen: "127.0.0.1:1", ControllerListen: "127.0.0.1:2", Join: []string{"127.0.0.1:2"}, Store: "mem:"}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Cleanup(func() { _ = c.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if !c.Down(1) || c.State(1) != "never started" {
		t.Errorf("before its start: %s", c.State(1))
	}
	must(c.Start(ctx, 1))
	must(c.Start(ctx, 2))
	if c.Start(ctx, 1) == nil {
		t.Error("a running node was started")
	}
	if c.Down(1) || c.Paused(1) {
		t.Errorf("after its start: %s", c.State(1))
	}
	must(c.Pause(ctx, 1))
	if !c.Paused(1) || !strings.HasSuffix(c.State(1), "state T") {
		t.Errorf("paused: %s", c.State(1))
	}
	must(c.Resume(ctx, 1))
	eventually(t, "node 1 goes on", func() bool { return !c.Paused(1) })
	must(c.Kill(ctx, 1))
	if !c.Down(1) || !strings.HasSuffix(c.State(1), "is gone") {
		t.Errorf("killed: %s", c.State(1))
	}
	must(c.Start(ctx, 1))
	stopped, stop := context.WithCancel(ctx)
	stop()
	must(c.Kill(stopped, 1)) // the run was interrupted meanwhile
	must(c.Start(ctx, 1))
	must(c.Stop(ctx, 1))
	if !c.Down(1) || len(c.Exited()) != 0 {
		t.Errorf("stopped: %s, %v", c.State(1), c.Exited())
	}
	must(syscall.Kill(c.nodes[1].pid(), syscall.SIGKILL))
	eventually(t, "node 2 is told to have ended", func() bool { return c.Exited()[2] != "" })
	if got := c.Bootstrap()[0]; got != "proxy:1" {
		t.Errorf("clients are told %s", got)
	}
	must(c.Close())
}

// Another's nodes obey the commands that the user gave, and no others.
func TestExternalCommands(t *testing.T) {
	dir := t.TempDir()
	c := &External{nodes: []int32{7}, commands: Commands{
		Kill: "touch " + dir + "/killed-{node}", Start: "touch " + dir + "/started-{node}", State: "echo node {node} is dead",
	}}
	c.mu.down, c.mu.paused = map[int32]bool{}, map[int32]bool{}
	if !c.Can("kill") || c.Can("pause") || c.Can("stop") {
		t.Error("it can do what there is no command for, or not what there is")
	}
	if err := c.Kill(t.Context(), 7); err != nil || !c.Down(7) || c.State(7) != "node 7 is dead" {
		t.Errorf("killed: %v, down %v, %s", err, c.Down(7), c.State(7))
	}
	if err := c.Start(t.Context(), 7); err != nil || c.Down(7) {
		t.Errorf("started: %v, down %v", err, c.Down(7))
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Kill(stopped, 7); err != nil || !c.Down(7) {
		t.Errorf("killed when the load ended: %v, down %v", err, c.Down(7))
	}
	if err := c.Start(stopped, 7); err != nil || c.Down(7) {
		t.Errorf("started when the load ended: %v, down %v", err, c.Down(7))
	}
	for _, file := range []string{"killed-7", "started-7"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if err := c.Pause(t.Context(), 7); !errors.Is(err, ErrCannot) || c.Paused(7) {
		t.Errorf("paused: %v", err)
	}
	c.commands.Kill = "echo no such host >&2; exit 3"
	if err := c.Kill(t.Context(), 7); err == nil || !strings.Contains(err.Error(), "no such host") || !c.Down(7) {
		t.Errorf("a command that failed, and may have ended the node: %v, down %v", err, c.Down(7))
	}
}

// A command may leave a server running that has its output; it can go on to print.
func TestCommandsThatLeaveSomethingRunning(t *testing.T) {
	dir := t.TempDir()
	c := &External{nodes: []int32{7}, commands: Commands{
		Kill: "true", Start: "echo starting; (while [ ! -e " + dir + "/go ]; do sleep 0.01; done; echo on; echo on; touch " + dir + "/printed) &",
	}}
	c.mu.down, c.mu.paused = map[int32]bool{}, map[int32]bool{}
	started := make(chan error)
	go func() { started <- c.Start(t.Context(), 7) }()
	select {
	case err := <-started:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a command is waited for whose server runs")
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has printed", func() bool { _, err := os.Stat(filepath.Join(dir, "printed")); return err == nil })
}

// A node that does not end when it is told to is killed, so that it is seen to
// be down.
func TestStubbornNodeIsKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stubborn")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ntrap '' TERM\necho ready\nwhile :; do sleep 0.05; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Binary: path, Dir: t.TempDir()}
	c := &Processes{cfg: cfg, nodes: []*node{newNode(cfg, 1, Link{})}}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "the trap is set", func() bool { b, err := os.ReadFile(c.Log(1)); return err == nil && len(b) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Stop(ctx, 1); err == nil || !c.Down(1) {
		t.Errorf("stopped with %v, down %v", err, c.Down(1))
	}
}

// A node that ends at once is not waited for.
func TestNodesThatEndAtOnce(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "dead")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Binary: binary, Dir: t.TempDir(), Nodes: 1})
	if err == nil || !strings.Contains(err.Error(), "a node has ended") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("start: %v", err)
	}
}

// A node that ended and was started again is waited for.
func TestNodesThatAreBackAreWaitedFor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "once")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ -e "+dir+"/ended ] && exec sleep 60\ntouch "+dir+"/ended\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Binary: path, Dir: dir}
	c := &Processes{cfg: cfg, nodes: []*node{newNode(cfg, 1, Link{Listen: "127.0.0.1:1"})}}
	t.Cleanup(func() { _ = c.Close() })
	wait := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return WaitReady(ctx, c)
	}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return c.Down(1) })
	if err := wait(); err == nil || !strings.Contains(err.Error(), "a node has ended") {
		t.Errorf("it is down: %v", err)
	}
	if err := c.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err == nil || strings.Contains(err.Error(), "a node has ended") {
		t.Errorf("it was started again: %v", err)
	}
	if c.Exited()[1] == "" {
		t.Error("that it had ended was forgotten")
	}
}
