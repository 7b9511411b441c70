package model

import (
	"fmt"

	"ponor/metadata"
)

// Model is a world in which states are explored. It keeps what all states
// share: distinct images and commands, and what commands do to images.
type Model struct {
	cfg      Config
	mutation Mutation

	images   []*imageInfo
	imageIDs map[string]imageID
	commands []command
	cmdIDs   map[command]cmdID
	outcomes map[stepKey]outcome
	applied  int // calls of Apply

	// bad is the first violation of the step that is being made.
	bad *Violation
	// checks counts, per property, how often there was something to check.
	checks [propertyCount]int
	// free: bounds do not count, for bringing a state to rest.
	free bool
}

// New makes a model of a world with one rule left out, or None.
func New(cfg Config, mutation Mutation) (*Model, error) {
	m := &Model{
		cfg: cfg, mutation: mutation, imageIDs: make(map[string]imageID), cmdIDs: make(map[command]cmdID),
		commands: make([]command, 1), outcomes: make(map[stepKey]outcome),
	}
	switch {
	case len(cfg.Brokers) == 0 || cfg.incarnations() > maxProcs-1 && cfg.Sample > 0 || cfg.incarnations() > maxProcs:
		return nil, fmt.Errorf("config %s: %d incarnations, room for %d", cfg.Name, cfg.incarnations(), maxProcs)
	case cfg.Records > maxRecords || cfg.Slots > maxSlots || cfg.Offsets > maxOffsets || cfg.Objects > maxObjects:
		return nil, fmt.Errorf("config %s: bounds are larger than a state", cfg.Name)
	}
	return m, nil
}

// initial is the first state.
func (m *Model) initial() (State, error) {
	img, err := m.begin()
	if err != nil {
		return State{}, fmt.Errorf("make the first image: %w", err)
	}
	id, err := m.intern(img)
	if err != nil {
		return State{}, fmt.Errorf("make the first image: %w", err)
	}
	st := State{img: id, nprocs: uint8(len(m.cfg.Brokers)), producerSeq: 1}
	for i := range m.cfg.Brokers {
		st.proc[i] = process{view: id, wal: uint8(i)}
	}
	return st, nil
}

// fail notes a violation.
func (m *Model) fail(v *Violation) {
	if m.bad == nil {
		m.bad = v
	}
}

// honest says whether every process keeps all the rules, so that nothing may
// ever be refused as evidence of a bug.
func (m *Model) honest() bool { return m.mutation == None && !m.cfg.on(Impatient) }

// newest is the newest image of a state, view what a process has applied.
func (m *Model) newest(st *State) *imageInfo        { return m.images[st.img] }
func (m *Model) view(st *State, i uint8) *imageInfo { return m.images[st.proc[i].view] }

// settled says that a process knows what became of all its commands.
func (m *Model) settled(st *State, i uint8) bool {
	p := &st.proc[i]
	return m.view(st, i).wal[p.wal].seq >= p.seq
}

// mayCommand says that a process may submit one more command.
func (m *Model) mayCommand(st *State, i uint8) bool {
	return m.free || int(st.proc[i].seq) < m.cfg.Commands
}

// submit sends a command of a process.
func (m *Model) submit(st *State, i uint8, c command) bool {
	p := &st.proc[i]
	p.seq++
	p.noop = c.kind == cmdNoop
	c.from, c.seq = p.wal, p.seq
	return st.submit(m.command(c))
}

// owns says whether an image names a process's incarnation owner of a stream,
// alive, with nothing left to seal.
func (info *imageInfo) owns(wal uint8, s int) bool {
	p := &info.part[s]
	return p.owner == wal && p.waits == none && info.wal[wal].state == metadata.Active
}
