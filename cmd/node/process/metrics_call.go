package process

import (
	"bytes"
	"context"
	"fmt"
	"net"

	"ponor/rpc"
)

// keyMetrics is the call by which operators' tools ask a broker for its metrics
// on its listener for clients, so that an address of the cluster is all they
// need. The request is empty, the reply the text of a scrape.
const keyMetrics = rpc.InternalKey + 120

// metricsAPI answers keyMetrics.
func (n *Node) metricsAPI() rpc.API {
	return rpc.API{Key: keyMetrics, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
		var page bytes.Buffer
		if err := n.WriteMetrics(&page); err != nil {
			return rpc.Response{CloseErr: err}
		}
		return rpc.Response{Buffers: net.Buffers{page.Bytes()}}
	}}
}

// AskMetrics asks the broker behind a client connection for its metrics, in
// Prometheus' text format.
func AskMetrics(ctx context.Context, c *rpc.Client) ([]byte, error) {
	text, err := c.Call(ctx, keyMetrics, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w; is this a Ponor broker?", err)
	}
	return text, nil
}
