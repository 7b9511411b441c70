package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"ponor/metadata"
)

// maxVoters is how many votes a quorum may have: five, and room to add the new
// ones before the old ones go.
const maxVoters = 7

// finding is what the leader last found at the address of a node that votes, or
// could.
type finding struct {
	node       metadata.BrokerID
	address    string
	id         raft.ServerID // that answered; empty if none ever did
	last       uint64        // index of its Raft log
	generation uint64        // of its Raft log, 0 without one
	heard      time.Time     // of the last answer
	caughtUp   time.Time     // when it last had what the leader had
	behind     uint64        // entries, at the last answer
	current    bool          // it has what the leader had one look before, or has now
	err        error         // of the last question
}

// answers says whether it is the server id that answered the last question.
func (f finding) answers(id raft.ServerID) bool { return f.err == nil && f.id == id }

// quorumChange is one step from a configuration to the next.
type quorumChange struct {
	kind    changeKind
	id      raft.ServerID
	address raft.ServerAddress
	why     string
}

type changeKind int

const (
	addNonvoter changeKind = iota + 1
	addVoter
	removeServer
)

// roster is a configuration and what was found of its servers. The leader's
// own finding is among them.
type roster struct {
	servers    []raft.Server
	found      map[metadata.BrokerID]finding
	generation uint64 // of the leader's log
}

func (m roster) server(id raft.ServerID) (raft.Server, bool) {
	i := slices.IndexFunc(m.servers, func(s raft.Server) bool { return s.ID == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return m.servers[i], true
}

// of are the servers of one node: more than one while its disk is replaced.
func (m roster) of(node metadata.BrokerID) []raft.Server {
	var out []raft.Server
	for _, s := range m.servers {
		if nodeID(s.ID) == node {
			out = append(out, s)
		}
	}
	return out
}

// voters are the nodes that have a vote, by id.
func (m roster) voters() []metadata.BrokerID {
	var out []metadata.BrokerID
	for _, s := range m.servers {
		if s.Suffrage == raft.Voter {
			out = append(out, nodeID(s.ID))
		}
	}
	slices.Sort(out)
	return out
}

// repair is what a quorum needs without being asked, one step at a time, so
// that a leader that finds a change half done goes on with it: servers that
// moved are given their new address; a voter that has come back with another
// disk gets a new server, which has no vote until it has the log; when it has,
// it takes the vote of the old one (K12).
func (m roster) repair() (quorumChange, bool) {
	for _, next := range []func(raft.Server, finding) (quorumChange, bool){m.readdress, m.forget, m.promote, m.replace} {
		for _, s := range m.servers {
			if c, ok := next(s, m.found[nodeID(s.ID)]); ok {
				return c, true
			}
		}
	}
	return quorumChange{}, false
}

func (m roster) readdress(s raft.Server, f finding) (quorumChange, bool) {
	address := raftAddress(s.ID, f.address)
	if !f.answers(s.ID) || address == s.Address {
		return quorumChange{}, false
	}
	kind := addNonvoter
	if s.Suffrage == raft.Voter {
		kind = addVoter
	}
	return quorumChange{kind, s.ID, address, "it has another address"}, true
}

// forget drops a server that never got its vote and whose disk is gone again.
func (m roster) forget(s raft.Server, f finding) (quorumChange, bool) {
	if s.Suffrage == raft.Voter || f.err != nil || f.id == "" || f.id == s.ID {
		return quorumChange{}, false
	}
	return quorumChange{kind: removeServer, id: s.ID, why: "its directory is gone before it had a vote"}, true
}

// promote gives a server that caught up its vote. The server that it comes in
// place of goes first: a quorum must not count one node twice.
func (m roster) promote(s raft.Server, f finding) (quorumChange, bool) {
	if s.Suffrage == raft.Voter || !f.answers(s.ID) || !f.current {
		return quorumChange{}, false
	}
	for _, old := range m.of(nodeID(s.ID)) {
		if old.ID == s.ID || old.Suffrage != raft.Voter {
			continue
		}
		if m.safeWithout(old.ID) != nil {
			return quorumChange{}, false
		}
		return quorumChange{kind: removeServer, id: old.ID, why: "the node's new directory has caught up"}, true
	}
	return quorumChange{addVoter, s.ID, s.Address, "it has caught up"}, true
}

func (m roster) replace(s raft.Server, f finding) (quorumChange, bool) {
	if s.Suffrage != raft.Voter || f.err != nil || f.id == "" || f.id == s.ID || m.joinable(f) != nil {
		return quorumChange{}, false
	}
	if _, ok := m.server(f.id); ok {
		return quorumChange{}, false
	}
	return quorumChange{addNonvoter, f.id, raftAddress(f.id, f.address), "the voter came back with another directory"}, true
}

// stuck says what an operator must do before a voter that came back with
// another directory can have its vote.
func (m roster) stuck() error {
	for _, s := range m.servers {
		f := m.found[nodeID(s.ID)]
		if s.Suffrage != raft.Voter || f.err != nil || f.id == s.ID {
			continue
		}
		if err := m.joinable(f); err != nil {
			return err
		}
	}
	return nil
}

// joinable says why a server cannot become a member.
func (m roster) joinable(f finding) error {
	switch {
	case f.err != nil:
		return fmt.Errorf("node %d does not answer at %s: %w", f.node, f.address, f.err)
	case f.id == "":
		return fmt.Errorf("node %d at %s keeps no Raft log: start it with the controller role, a --controller-listen address and a --data-dir", f.node, f.address)
	case f.generation != 0 && f.generation != m.generation:
		return fmt.Errorf("the controller directory of node %d is of generation %d of this cluster, the quorum's is %d: move the directory away and start the node with an empty one", f.node, f.generation, m.generation)
	}
	return nil
}

// safeWithout says why the quorum could not go on without a server: those that
// are left must have a majority that answers.
func (m roster) safeWithout(id raft.ServerID) error {
	left, live := 0, 0
	var silent []metadata.BrokerID
	for _, s := range m.servers {
		if s.Suffrage != raft.Voter || s.ID == id {
			continue
		}
		left++
		if m.found[nodeID(s.ID)].answers(s.ID) {
			live++
		} else {
			silent = append(silent, nodeID(s.ID))
		}
	}
	switch {
	case left == 0:
		return fmt.Errorf("node %d is the only voter: add another one first", nodeID(id))
	case live <= left/2:
		return fmt.Errorf("of the %d voters that would be left only %d answer, not %v: a majority of them must; bring those back first", left, live, silent)
	}
	return nil
}

// heir is the voter to hand leadership to: one that answers and lags least.
func (m roster) heir(self raft.ServerID) (raft.Server, bool) {
	var able []raft.Server
	for _, s := range m.servers {
		if s.Suffrage == raft.Voter && s.ID != self && m.found[nodeID(s.ID)].answers(s.ID) {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return raft.Server{}, false
	}
	return slices.MinFunc(able, func(a, b raft.Server) int {
		return cmp.Compare(m.found[nodeID(a.ID)].behind, m.found[nodeID(b.ID)].behind)
	}), true
}
