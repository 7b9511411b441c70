package cluster

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ponor/internal/steer"
	"ponor/sharedlog/objstore/fault"
)

func readScript(t *testing.T, file string) fault.Script {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s fault.Script
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Two faults of one store do not undo each other, and each counts its own calls.
func TestScriptKeepsOwnersApart(t *testing.T) {
	s := &Script{File: filepath.Join(t.TempDir(), "f")}
	set := func(owner string, lines ...fault.Line) {
		t.Helper()
		if err := s.Set(owner, lines...); err != nil {
			t.Fatal(err)
		}
	}
	set("a", fault.Line{Fails: "full"}, fault.Line{Hang: true})
	set("b", fault.Line{Fails: "lost"})
	now := readScript(t, s.File)
	if len(now.Rules) != 3 || now.Rules[0].Fails != "full" || now.Rules[2].Fails != "lost" {
		t.Errorf("rules %+v", now.Rules)
	}
	seen, err := json.Marshal(fault.Seen{Serial: now.Serial, Hits: []int{1, 2, 4}})
	if err == nil {
		err = os.WriteFile(s.File+steer.SeenSuffix, seen, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, b := s.Hits("a"), s.Hits("b"); a != 3 || b != 4 {
		t.Errorf("hits %d and %d, want 3 and 4", a, b)
	}
	set("a")
	if now := readScript(t, s.File); len(now.Rules) != 1 || now.Rules[0].Fails != "lost" {
		t.Errorf("rules %+v", now.Rules)
	}
	if n := s.Hits("b"); n != 0 {
		t.Errorf("%d hits of what the node has not noticed yet", n)
	}
	if err := s.Clear(); err != nil || len(readScript(t, s.File).Rules) != 0 {
		t.Errorf("not cleared: %v", err)
	}
}

// Proxies and the faulty store stand in the way of a node, and refuse others while
// it does not run.
func TestMeansStandInTheWay(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Store: "dir:///s", Needs: []string{NeedsClients, NeedsLinks, NeedsStore}}
	var m Means
	if err := m.setUp(cfg); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}()
	l, err := m.node(cfg, 1, Link{Listen: "127.0.0.1:1", ControllerListen: "127.0.0.1:2", Store: cfg.Store})
	if err != nil {
		t.Fatal(err)
	}
	if l.Advertise != m.Clients(1).Address() || l.ControllerAdvert == "" || !strings.HasPrefix(l.Store, "dir:///s?faults=") {
		t.Errorf("link %+v", l)
	}
	dial := func(address string) error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	m.ended(1, 5)
	for _, a := range []string{l.Advertise, l.ControllerAdvert} {
		if err := dial(a); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("without its process a node is dialled with %v, want refused", err)
		}
	}
	if err := m.started(1, 6); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{l.Advertise, l.ControllerAdvert} {
		// The proxy dials on, finds nobody, and resets it.
		if err := dial(a); errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	}
	if err := m.Script(1).Set("x", fault.Line{Hang: true}); err != nil {
		t.Fatal(err)
	}
	m.Clients(1).Stall()
	if err := m.Heal(); err != nil || len(readScript(t, m.Script(1).File).Rules) != 0 {
		t.Errorf("not healed: %v", err)
	}
}

func TestStoreFaultsNeedADirectory(t *testing.T) {
	for _, store := range []string{"mem:", "s3://b/p", "dir:///s?latency=s3"} {
		var m Means
		if err := m.setUp(Config{Dir: t.TempDir(), Store: store, Needs: []string{NeedsStore}}); !errors.Is(err, ErrCannot) {
			t.Errorf("%s: %v", store, err)
		}
	}
}

func TestSmallDiskIsFullUntilItIsEmptied(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Needs: []string{NeedsDisk}}
	c := &Processes{cfg: cfg}
	if _, err := c.Means.node(cfg, 1, Link{}); err != nil {
		if !errors.Is(err, ErrCannot) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	file := filepath.Join(dataDir(cfg, 1), "x")
	write := func() error { return os.WriteFile(file, make([]byte, 64<<10), 0o600) }
	if n, err := c.Fill(1); err != nil || n == 0 || write() == nil {
		t.Errorf("filled %d, %v", n, err)
	}
	if err := c.Heal(); err != nil {
		t.Error(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was on the disk is not kept: %v", err)
	}
}
