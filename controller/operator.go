package controller

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/rpc"
)

// The calls of operators' tools, for which Kafka's protocol has nothing. They
// stand apart from the cluster's own keys because clients' listeners serve them.
const (
	keyBrokerState = rpc.InternalKey + 100 + iota // cordon and drain brokers
	keyImage                                      // read the metadata
	keyVoters                                     // look at the quorum and change it
	keyAskBalance                                 // how brokers are loaded, what the balancer does
)

// operatorPatience bounds an operator's call.
const operatorPatience = 20 * time.Second

// statePatience bounds a change of a broker's state: less than operators' tools wait
// before they ask another broker, so that they hear why it was not done.
const statePatience = 4 * time.Second

// OperatorAPIs are the calls for operators' tools, to be served beside Kafka's
// on the listeners of clients.
func (n *Node) OperatorAPIs() []rpc.API {
	images := new(imageReader)
	return []rpc.API{call(keyImage, func(ctx context.Context, _ *rpc.Conn, q *controllerpb.SnapshotRequest) response {
		ctx, cancel := context.WithTimeout(ctx, operatorPatience)
		defer cancel()
		return images.piece(ctx, n, q)
	}), call(keyVoters, n.passQuorum), call(keyAskBalance, n.passBalance), call(keyBrokerState, func(ctx context.Context, _ *rpc.Conn, q *metadatapb.BrokerState) response {
		ctx, cancel := context.WithTimeout(ctx, statePatience)
		defer cancel()
		if err := n.operatorState(ctx, q); err != nil {
			return &controllerpb.AdminResponse{Outcome: n.server.outcome(controllerpb.Code_INVALID, err)}
		}
		return &controllerpb.AdminResponse{Outcome: n.server.ok()}
	})}
}

// callAsTool makes a call of an operator's tool. ErrForeign: there was time, and no answer.
func callAsTool(ctx context.Context, c *rpc.Client, key int16, body []byte) ([]byte, error) {
	reply, err := c.Call(ctx, key, 0, body)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w; is this a Ponor cluster?", ErrForeign, err)
	}
	return reply, err
}

// AskBrokerState has the cluster behind a client connection cordon or drain a
// broker, or stop doing so. Draining goes on after it returns.
func AskBrokerState(ctx context.Context, c *rpc.Client, id metadata.BrokerID, cordoned, draining bool) error {
	b, err := proto.Marshal(&metadatapb.BrokerState{Broker: int32(id), Cordoned: cordoned, Draining: draining})
	if err != nil {
		return fmt.Errorf("encode broker state: %w", err)
	}
	reply, err := callAsTool(ctx, c, keyBrokerState, b)
	if err != nil {
		return fmt.Errorf("set state of broker %d: %w", id, err)
	}
	resp := new(controllerpb.AdminResponse)
	if err := proto.Unmarshal(reply, resp); err != nil {
		return fmt.Errorf("set state of broker %d: reply: %w", id, err)
	}
	if o := resp.GetOutcome(); o.GetCode() != controllerpb.Code_OK {
		return fmt.Errorf("set state of broker %d: %s", id, o.GetMessage())
	}
	return nil
}
