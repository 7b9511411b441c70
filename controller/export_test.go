package controller

import (
	"context"

	"ponor/controller/controllerpb"
)

// AskUnknown asks the leader for what its build does not know: of a request of a newer
// one it sees nothing.
func (n *Node) AskUnknown(ctx context.Context) error {
	_, err := n.admin(ctx, new(controllerpb.AdminRequest), 1)
	return err
}
