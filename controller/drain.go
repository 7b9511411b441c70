package controller

import (
	"context"
	"fmt"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// mayClose says why an operator may not cordon or drain a broker: nobody else would
// take its partitions, or new ones.
func mayClose(img *metadata.Image, b metadata.Broker, cordoned, draining bool) *Error {
	if b.Fenced {
		return nil
	}
	others := func(accept func(metadata.Broker) bool) bool {
		return len(newPlacement(img, func(o metadata.Broker) bool { return o.ID != b.ID && accept(o) }).seats) > 0
	}
	words := closedBrokers(img, b.ID)
	if words == "" {
		words = "it is the only one"
	}
	switch {
	case draining && !others(func(o metadata.Broker) bool { return !o.Draining }):
		return refuse(CodeInvalidRequest, "no other broker can take its partitions: %s", words)
	case cordoned && !others(openToNew):
		return refuse(CodeInvalidRequest, "no other broker would take new partitions: %s", words)
	}
	return nil
}

// operatorState is SetBrokerState for an operator, whom the leader may refuse it
// with an *Error.
func (n *Node) operatorState(ctx context.Context, s *metadatapb.BrokerState) error {
	errs, err := n.adminErrors(ctx, "ask the controller", &controllerpb.AdminRequest{BrokerState: s}, 1)
	if err == nil && errs[0] != nil {
		return errs[0]
	}
	return err
}

// planState judges a change by an image that has all earlier ones: two at the same time
// would close the last two brokers, each relying on the other.
func planState(img *metadata.Image, s *metadatapb.BrokerState) *plan {
	p := newPlan(1)
	b, ok := img.Broker(metadata.BrokerID(s.Broker))
	switch {
	case !ok:
		p.refuse(0, refuse(CodeUnknownBroker, "broker %d is not registered", s.Broker))
		return p
	case b.Cordoned == s.Cordoned && b.Draining == s.Draining:
		return p
	}
	if err := mayClose(img, b, s.Cordoned, s.Draining); err != nil {
		p.refuse(0, err)
		return p
	}
	p.add(0, &metadatapb.Command{Body: &metadatapb.Command_BrokerState{BrokerState: s}})
	return p
}

// SetBrokerState notes what is wanted of a broker: Cordoned, that it gets no new
// partitions, and Draining, that its partitions go elsewhere. change gets the
// present values. It returns when this node's image has the new ones; what they
// ask for then happens by moves, with the heartbeats of that broker. Nobody judges
// it: a process that stops goes anyway.
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
