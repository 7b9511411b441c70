package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/rpc"
)

// keyGroup asks the coordinator of a group for what Kafka's protocol cannot say of
// it. The request is the group's name, the reply a groupReply as JSON.
const keyGroup = rpc.InternalKey + 121

// errNoGroup: the coordinator has none of that name.
var errNoGroup = errors.New("there is no such group")

type groupReply struct {
	Error string            `json:"error,omitempty"`
	Group *group.Inspection `json:"group,omitempty"`
}

// groupAPI answers keyGroup.
func (n *Node) groupAPI() rpc.API {
	return rpc.API{Key: keyGroup, Raw: true, Handle: func(ctx context.Context, r *rpc.Request) rpc.Response {
		var reply groupReply
		if v, err := n.inspect(ctx, string(r.Raw), r.Received); err != nil {
			reply.Error = err.Error()
		} else {
			reply.Group = &v
		}
		b, err := json.Marshal(reply)
		if err != nil {
			return rpc.Response{CloseErr: fmt.Errorf("encode group: %w", err)}
		}
		return rpc.Response{Buffers: net.Buffers{b}}
	}}
}

func (n *Node) inspect(ctx context.Context, id string, arrived time.Time) (v group.Inspection, err error) {
	found := false
	err = n.groups.Do(ctx, id, arrived, func(m *group.Machine, _ time.Time) []coordinator.Record {
		v, found = m.Inspect(id)
		return nil
	})
	if err == nil && !found {
		err = errNoGroup
	}
	return v, err
}

// AskGroup asks the broker behind a client connection, which must coordinate the
// group, what it knows of it.
func AskGroup(ctx context.Context, c *rpc.Client, id string) (group.Inspection, error) {
	b, err := c.Call(ctx, keyGroup, 0, []byte(id))
	if err != nil {
		return group.Inspection{}, fmt.Errorf("ask about group %s: %w; is this a Ponor broker?", id, err)
	}
	var reply groupReply
	switch err := json.Unmarshal(b, &reply); {
	case err != nil:
		return group.Inspection{}, fmt.Errorf("ask about group %s: reply: %w", id, err)
	case reply.Error != "":
		return group.Inspection{}, fmt.Errorf("ask about group %s: %s", id, reply.Error)
	case reply.Group == nil:
		return group.Inspection{}, fmt.Errorf("ask about group %s: an empty reply", id)
	}
	return *reply.Group, nil
}
