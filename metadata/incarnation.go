package metadata

import (
	"fmt"

	"ponor/metadata/metadatapb"
)

// BrokerID is a broker's node.id, unique in the cluster.
type BrokerID int32

// Incarnation is one registration of a broker. Its epoch is a counter of the
// image that is never reused. The zero value means none.
type Incarnation struct {
	Broker BrokerID
	Epoch  uint64
}

// String is broker-epoch, "3-17", as object keys spell it.
func (i Incarnation) String() string { return fmt.Sprintf("%d-%d", i.Broker, i.Epoch) }

// IsZero says whether it means none.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// Less orders by broker, then by epoch.
func (i Incarnation) Less(j Incarnation) bool {
	return i.Broker < j.Broker || i.Broker == j.Broker && i.Epoch < j.Epoch
}

// Proto is the wire form; none is nil.
func (i Incarnation) Proto() *metadatapb.Incarnation {
	if i.IsZero() {
		return nil
	}
	return &metadatapb.Incarnation{Broker: int32(i.Broker), Epoch: i.Epoch}
}

// IncarnationFrom reads the wire form; nil is none.
func IncarnationFrom(pb *metadatapb.Incarnation) Incarnation {
	return Incarnation{Broker: BrokerID(pb.GetBroker()), Epoch: pb.GetEpoch()}
}
