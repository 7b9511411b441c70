package controller

import (
	"context"
	"fmt"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// mayClose says why an operator may not cordon or drain a broker: nobody else would
// take its partitions, or new ones.
func mayClose(img *metadata.Image, id metadata.BrokerID, cordoned, draining bool) error {
	if b, ok := img.Broker(id); !ok || b.Fenced {
		return nil
	}
	others := func(accept func(metadata.Broker) bool) bool {
		return len(newPlacement(img, func(b metadata.Broker) bool { return b.ID != id && accept(b) }).seats) > 0
	}
	words := closedBrokers(img, id)
	if words == "" {
		words = "it is the only one"
	}
	switch {
	case draining && !others(func(b metadata.Broker) bool { return !b.Draining }):
		return fmt.Errorf("no other broker can take its partitions: %s", words)
	case cordoned && !others(openToNew):
		return fmt.Errorf("no other broker would take new partitions: %s", words)
	}
	return nil
}

// SetBrokerState notes what is wanted of a broker: Cordoned, that it gets no new
// partitions, and Draining, that its partitions go elsewhere. change gets the
// present values. It returns when this node's image has the new ones; what they
// ask for then happens by moves, with the heartbeats of that broker.
func (n *Node) SetBrokerState(ctx context.Context, id metadata.BrokerID, change func(*metadata.Broker)) error {
	img, err := n.Barrier(ctx)
	if err != nil {
		return err
	}
	b, ok := img.Broker(id)
	if !ok {
		return refuse(CodeUnknownBroker, "broker %d is not registered", id)
	}
	old := b
	if change(&b); b.Cordoned == old.Cordoned && b.Draining == old.Draining {
		return nil
	}
	r, err := n.Submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_BrokerState{BrokerState: &metadatapb.BrokerState{
		Broker: int32(id), Cordoned: b.Cordoned, Draining: b.Draining,
	}}})
	if err != nil {
		return fmt.Errorf("set state of broker %d: %w", id, err)
	}
	return r.Rejected()
}
