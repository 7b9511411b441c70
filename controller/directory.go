package controller

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"ponor/metadata"
)

// DirectoryID names one controller directory, as in KIP-853. It is drawn when
// the directory's Raft store is made and lives in that store, so a voter whose
// disk was lost, or only its Raft log, comes back under another one.
type DirectoryID [16]byte

// String is Kafka's way to write a UUID.
func (d DirectoryID) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// newDirectoryID draws an id that does not begin like an option of a command
// line.
func newDirectoryID() (DirectoryID, error) {
	var d DirectoryID
	for d.isZero() || d.String()[0] == '-' {
		if _, err := rand.Read(d[:]); err != nil {
			return d, fmt.Errorf("draw directory id: %w", err)
		}
	}
	return d, nil
}

func (d DirectoryID) isZero() bool { return d == DirectoryID{} }

// ParseDirectoryID reads what String wrote.
func ParseDirectoryID(s string) (DirectoryID, error) {
	var d DirectoryID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("directory id %q: not 22 characters of base64url", s)
	}
	copy(d[:], b)
	return d, nil
}

func directoryFrom(b []byte) DirectoryID {
	var d DirectoryID
	if len(b) == len(d) {
		copy(d[:], b)
	}
	return d
}

// maxServerID is the longest server id in bytes: a node id, a dash, a
// directory id.
const maxServerID = 10 + 1 + 22

// serverID is who Raft counts votes of (K12): a node on one disk. A node on
// another disk is another server.
func serverID(id metadata.BrokerID, d DirectoryID) raft.ServerID {
	return raft.ServerID(strconv.FormatInt(int64(id), 10) + "-" + d.String())
}

// splitServer is the opposite of serverID; the node is -1 if it is none of ours.
func splitServer(id raft.ServerID) (metadata.BrokerID, DirectoryID) {
	node, dir, _ := strings.Cut(string(id), "-")
	n, err := strconv.ParseInt(node, 10, 32)
	if err != nil {
		return -1, DirectoryID{}
	}
	d, err := ParseDirectoryID(dir)
	if err != nil {
		return -1, DirectoryID{}
	}
	return metadata.BrokerID(n), d
}

func nodeID(id raft.ServerID) metadata.BrokerID {
	n, _ := splitServer(id)
	return n
}

// raftAddress is where Raft finds a server. It names the server too, so that
// whoever answers at the address can refuse what is meant for another one, and
// so that two servers may share an address while one replaces the other.
func raftAddress(id raft.ServerID, address string) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + address)
}

// dialAddress is the host:port of a Raft address, and server whose it is.
func dialAddress(a raft.ServerAddress) (server raft.ServerID, address string) {
	id, addr, _ := strings.Cut(string(a), "@")
	return raft.ServerID(id), addr
}

// The keys under which the Raft store keeps what this package adds to it.
var (
	directoryKey  = []byte("ponor-directory")
	generationKey = []byte("ponor-log-generation")
)

// storedDirectory reads the id of a Raft store, or gives it one. A store that
// has a log but no id was not made by us.
func storedDirectory(stable raft.StableStore, fresh bool) (DirectoryID, error) {
	b, err := stable.Get(directoryKey)
	if len(b) == len(DirectoryID{}) {
		return directoryFrom(b), nil
	}
	if err != nil && err.Error() != "not found" {
		return DirectoryID{}, fmt.Errorf("read directory id: %w", err)
	}
	if !fresh {
		return DirectoryID{}, errors.New("there are Raft snapshots or a log, but no directory id: raft.db was lost or is of another version; move the directory away and start with an empty one, the quorum brings this voter back")
	}
	d, err := newDirectoryID()
	if err != nil {
		return d, err
	}
	if err := stable.Set(directoryKey, d[:]); err != nil {
		return d, fmt.Errorf("write directory id: %w", err)
	}
	return d, nil
}

// logGeneration is the generation in which a Raft log began, 0 while there is
// none. Logs of different generations may hold different entries under one
// index and term, so servers of different ones never talk (K12).
func logGeneration(stable raft.StableStore) (uint64, error) {
	b, err := stable.Get(generationKey)
	if err != nil && err.Error() != "not found" {
		return 0, fmt.Errorf("read generation of the Raft log: %w", err)
	}
	if len(b) != 8 {
		return 0, nil
	}
	return binary.BigEndian.Uint64(b), nil
}

func setLogGeneration(stable raft.StableStore, generation uint64) error {
	if err := stable.Set(generationKey, binary.BigEndian.AppendUint64(nil, generation)); err != nil {
		return fmt.Errorf("write generation of the Raft log: %w", err)
	}
	return nil
}
