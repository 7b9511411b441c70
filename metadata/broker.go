package metadata

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"ponor/metadata/metadatapb"
)

// BrokerID is a broker's number, Kafka's node id; 0 is a valid one.
type BrokerID int32

// NonceBytes is the length of the random nonce of a broker process.
const NonceBytes = 16

// Nonce tells two processes with the same broker id apart (cmd-6).
type Nonce [NonceBytes]byte

// Incarnation is one registration of a broker. Epoch counts the registrations
// of the whole cluster from 1 and is never reused, so it alone is unique. The
// zero value means none.
type Incarnation struct {
	Broker BrokerID
	Epoch  uint64
}

// IsZero says whether i means no incarnation.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// String is the form used in object names, "3-17".
func (i Incarnation) String() string {
	return strconv.Itoa(int(i.Broker)) + "-" + strconv.FormatUint(i.Epoch, 10)
}

// ParseIncarnation reads the form that String writes and no other.
func ParseIncarnation(s string) (Incarnation, error) {
	b, e, ok := strings.Cut(s, "-")
	broker, err := strconv.ParseInt(b, 10, 32)
	epoch, err2 := strconv.ParseUint(e, 10, 64)
	i := Incarnation{Broker: BrokerID(broker), Epoch: epoch}
	if !ok || err != nil || err2 != nil || broker < 0 || epoch == 0 || i.String() != s {
		return Incarnation{}, fmt.Errorf("parse incarnation %q: not of the form broker-epoch", s)
	}
	return i, nil
}

// Less orders incarnations by registration.
func (i Incarnation) Less(o Incarnation) bool { return i.compare(o) < 0 }

func (i Incarnation) compare(o Incarnation) int {
	return cmp.Or(cmp.Compare(i.Epoch, o.Epoch), cmp.Compare(i.Broker, o.Broker))
}

// Proto is the wire form; the zero Incarnation is nil.
func (i Incarnation) Proto() *metadatapb.Incarnation {
	if i.IsZero() {
		return nil
	}
	return &metadatapb.Incarnation{Broker: int32(i.Broker), Epoch: i.Epoch}
}

// IncarnationFrom reads the wire form; nil is the zero Incarnation.
func IncarnationFrom(pb *metadatapb.Incarnation) Incarnation {
	return Incarnation{Broker: BrokerID(pb.GetBroker()), Epoch: pb.GetEpoch()}
}

// Endpoint is one advertised listener of a broker.
type Endpoint struct {
	Name     string // listener name, "PLAINTEXT"
	Host     string
	Port     int32
	Security string // security protocol
}

// Address is what clients dial, host:port.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Broker is a registered broker with its newest incarnation.
type Broker struct {
	ID                BrokerID
	Incarnation       Incarnation
	Nonce             Nonce
	Endpoints         []Endpoint // shared: do not change
	Zone              string     // Kafka's rack
	Version           string     // of its software, informative
	ControllerAddress string     // where its controller listens, if it has one
	Voter             bool       // it takes part in the metadata quorum
	// Fenced: the incarnation has ended. The broker is offline until it
	// registers again.
	Fenced   bool
	Cordoned bool // an operator wants no new partitions on it
	Draining bool // an operator wants its partitions elsewhere; a new registration ends it
}

// Endpoint finds a listener by name.
func (b Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// WALState is the life of an incarnation's WAL; it only moves forward.
type WALState uint8

// The states of a WAL.
const (
	// Active: the incarnation lives and may submit commands.
	Active WALState = iota
	// Fenced: the incarnation has ended in the metadata (cmd-4), and what its
	// WAL holds beyond the committed ends is yet to be found.
	Fenced
	// Sealed: the slot SealedEnd holds its fence; nothing can follow (slot-3).
	Sealed
)

// String is the state in lower case.
func (s WALState) String() string {
	switch s {
	case Active:
		return "active"
	case Fenced:
		return "fenced"
	case Sealed:
		return "sealed"
	default:
		return fmt.Sprintf("WALState(%d)", uint8(s))
	}
}

// WAL is what the image knows of one incarnation's write-ahead log. The record
// stays for ever, because object names and the fence (slot-3) outlive the
// incarnation.
type WAL struct {
	Incarnation Incarnation
	// Generation is the one under whose prefix all objects of the incarnation
	// lie.
	Generation uint64
	State      WALState
	// Trim is the first slot still needed for recovery. It never moves back
	// and freezes with the Fence (cmd-4).
	Trim uint64
	// SealedEnd is the slot that holds the fence, once Sealed.
	SealedEnd uint64
	// CmdSeq is the number of the incarnation's last command (cmd-1).
	CmdSeq uint64
	// Sealer is who shall seal a Fenced WAL; zero: nobody was named yet.
	Sealer Incarnation
}
