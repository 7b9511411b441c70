package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"ponor/jepsen/proxy"
	"ponor/sharedlog/objstore/fault"
)

// What faults may need beside kill, pause and stop, see Config.Needs.
const (
	// NeedsClients: a Kafka proxy between clients and each node.
	NeedsClients = "clients"
	// NeedsLinks: proxies between nodes.
	NeedsLinks = "links"
	// NeedsStore: a store that fails as told.
	NeedsStore = "store"
	// NeedsDisk: nodes whose data are on small file systems of their own.
	NeedsDisk = "disk"
	// NeedsPauseKill: nodes that can be paused and killed.
	NeedsPauseKill = "pause and kill"
	// NeedsClock: nodes whose time of day is what a file says.
	NeedsClock = "clock"
	// NeedsTrace: strace, which changes what system calls of a node give.
	NeedsTrace = "trace"
	// NeedsQuorum: nodes that are Ponor's, whose voters can be changed.
	NeedsQuorum = "quorum"
)

// Means are the harness's hands between the nodes of Processes and the others.
// Those that were not asked for are nil.
type Means struct {
	clients map[int32]*proxy.Kafka
	links   *proxy.Links
	scripts map[int32]*Script
	clocks  map[int32]*Clock
	mounts  []string
	journal *os.File

	mu      sync.Mutex
	pids    map[int]int32 // processes that were started
	tracers map[int32]*tracer
}

// JournalFile has every action of the client proxies, a line each, beside the
// nodes' logs.
const JournalFile = "requests.jsonl"

// setUp makes what the configuration asks for, except what is of one node.
func (m *Means) setUp(cfg Config) error {
	if slices.Contains(cfg.Needs, NeedsClients) {
		m.clients = make(map[int32]*proxy.Kafka)
		var err error
		if m.journal, err = os.Create(filepath.Join(cfg.Dir, JournalFile)); err != nil {
			return fmt.Errorf("write the journal of requests: %w", err)
		}
	}
	if slices.Contains(cfg.Needs, NeedsLinks) {
		m.links = proxy.NewLinks(m.dialler)
	}
	if slices.Contains(cfg.Needs, NeedsStore) {
		if u, err := url.Parse(cfg.Store); err != nil || u.Scheme != "dir" || u.RawQuery != "" {
			return fmt.Errorf("store faults need a store dir:///path, not %s: %w", cfg.Store, ErrCannot)
		}
		m.scripts = make(map[int32]*Script)
	}
	if slices.Contains(cfg.Needs, NeedsTrace) {
		if err := canTrace(); err != nil {
			return err
		}
	}
	if slices.Contains(cfg.Needs, NeedsClock) {
		m.clocks = make(map[int32]*Clock)
	}
	return nil
}

// node puts the proxies and the faulty store in the way of a node. Its list of
// voters is changed by voters.
func (m *Means) node(cfg Config, id int32, l Link) (Link, error) {
	if m.clients != nil {
		p, err := proxy.NewKafka(id, l.Listen, m.note)
		if err != nil {
			return l, err
		}
		m.clients[id], l.Advertise = p, p.Address()
	}
	if m.links != nil {
		var err error
		if l.ControllerAdvert, err = m.links.Add(id, l.ControllerListen); err != nil {
			return l, err
		}
	}
	if m.scripts != nil {
		s := &Script{File: filepath.Join(cfg.Dir, fmt.Sprintf("faults%d.json", id))}
		if err := fault.WriteScript(s.File, fault.Script{}); err != nil {
			return l, fmt.Errorf("write faults of node %d: %w", id, err)
		}
		m.scripts[id], l.Store = s, l.Store+"?faults="+url.QueryEscape(s.File)
	}
	if m.clocks != nil {
		c := NewClock(filepath.Join(cfg.Dir, fmt.Sprintf("clock%d.json", id)))
		if err := c.Set(0, 0); err != nil {
			return l, fmt.Errorf("write the clock of node %d: %w", id, err)
		}
		m.clocks[id], l.Clock = c, c.file
	}
	if slices.Contains(cfg.Needs, NeedsDisk) {
		dir := dataDir(cfg, id)
		if err := mount(dir); err != nil {
			return l, fmt.Errorf("give node %d a small disk: %w (%w)", id, ErrCannot, err)
		}
		m.mounts = append(m.mounts, dir)
	}
	return l, nil
}

// note writes an action down.
func (m *Means) note(a proxy.Applied) {
	b, err := json.Marshal(a)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.journal.Write(append(b, '\n')) // nothing depends on it
}

// dialler is the node that has the other end of a connection.
func (m *Means) dialler(c net.Conn) int32 {
	m.mu.Lock()
	var pids []int
	for pid := range m.pids {
		pids = append(pids, pid)
	}
	m.mu.Unlock()
	pid := proxy.Dialler(c, pids)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pids[pid]
}

// started lets others reach a node that runs.
func (m *Means) started(id int32, pid int) error {
	m.mu.Lock()
	if m.pids == nil {
		m.pids = make(map[int]int32)
	}
	m.pids[pid] = id
	m.mu.Unlock()
	var errs []error
	if p := m.clients[id]; p != nil {
		errs = append(errs, p.Open())
	}
	if m.links != nil {
		errs = append(errs, m.links.Open(id))
	}
	return errors.Join(errs...)
}

// ended has others refused as by a node that does not run.
func (m *Means) ended(id int32, pid int) {
	m.mu.Lock()
	delete(m.pids, pid)
	m.mu.Unlock()
	if p := m.clients[id]; p != nil {
		p.Shut()
	}
	if m.links != nil {
		m.links.Shut(id)
	}
}

// Clients is the proxy between clients and a node.
func (m *Means) Clients(id int32) *proxy.Kafka { return m.clients[id] }

// Links are the proxies between nodes.
func (m *Means) Links() *proxy.Links { return m.links }

// Script is how a node's store fails.
func (m *Means) Script(id int32) *Script { return m.scripts[id] }

// Clock is a node's time of day.
func (m *Means) Clock(id int32) *Clock { return m.clocks[id] }

// Heal ends all that is done through proxies, stores and clocks.
func (m *Means) Heal() error {
	for _, p := range m.clients {
		p.Heal()
	}
	if m.links != nil {
		m.links.MendAll()
	}
	var errs []error
	for _, s := range m.scripts {
		errs = append(errs, s.Clear())
	}
	for _, c := range m.clocks {
		errs = append(errs, c.Set(0, 0))
	}
	for _, dir := range m.mounts {
		if err := os.Remove(filepath.Join(dir, Ballast)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *Means) close() error {
	for _, p := range m.clients {
		p.Close()
	}
	if m.links != nil {
		m.links.Close()
	}
	var errs []error
	for _, dir := range m.mounts {
		errs = append(errs, unmount(dir))
	}
	m.mounts = nil
	if m.journal != nil {
		errs = append(errs, m.journal.Close())
		m.journal = nil
	}
	return errors.Join(errs...)
}

// Ballast is the file that fills a small disk.
const Ballast = "ballast"

// Script is a file that says how a node's store fails.
type Script struct {
	File string

	mu     sync.Mutex
	serial int
	sets   []set
}

// set are the lines of one owner.
type set struct {
	owner string
	lines []fault.Line
}

// Set replaces the faults of one owner, with none if there are no lines. The node
// may not have noticed when it returns.
func (s *Script) Set(owner string, lines ...fault.Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = slices.DeleteFunc(s.sets, func(x set) bool { return x.owner == owner })
	if len(lines) > 0 {
		s.sets = append(s.sets, set{owner, lines})
	}
	return s.write()
}

// Clear ends the faults of all owners.
func (s *Script) Clear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = nil
	return s.write()
}

func (s *Script) write() error {
	s.serial++
	script := fault.Script{Serial: s.serial}
	for _, x := range s.sets {
		script.Rules = append(script.Rules, x.lines...)
	}
	return fault.WriteScript(s.File, script)
}

// Hits are how many calls the node says met an owner's faults, since anybody's
// were changed.
func (s *Script) Hits(owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, err := fault.ReadSeen(s.File)
	if err != nil || seen.Serial != s.serial {
		return 0
	}
	hits, n := seen.Hits, 0
	for _, x := range s.sets {
		for range x.lines {
			if len(hits) == 0 {
				return n
			}
			if x.owner == owner {
				n += hits[0]
			}
			hits = hits[1:]
		}
	}
	return n
}
