package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"ponor/commitlog"
	"ponor/coordinator"
	"ponor/metadata"
	"ponor/rpc"
)

// keyAhead is the call by which the owner of a partition of consumer groups sends its
// log ahead to the broker that it is about to move to, see coordinator.SendAhead. The
// request is a piece of it, the reply empty, or why the piece was of no use.
const keyAhead = rpc.InternalKey + 122

const (
	// aheadLimit bounds how long a move waits for that: the target replays what is left
	// by itself. A drain that goes nowhere for drainStall is given up.
	aheadLimit = drainStall / 2
	// aheadFrame is the largest piece as a frame, in bytes: twice what a sender reads.
	aheadFrame = 16 << 20
	// aheadAtOnce is how many partitions are on their way at a time. Each has up to two
	// pieces in memory, here and there.
	aheadAtOnce = 4
)

// aheadAPI answers keyAhead.
func (n *Node) aheadAPI() rpc.API {
	return rpc.API{Key: keyAhead, Raw: true, Limit: aheadFrame, Handle: func(_ context.Context, r *rpc.Request) rpc.Response {
		piece, err := decodePiece(r.Raw)
		if err == nil {
			err = n.groups.TakeAhead(piece)
		}
		if err != nil {
			return rpc.Response{Buffers: net.Buffers{[]byte(err.Error())}}
		}
		return rpc.Response{}
	}}
}

// pieceHead is the size of a piece without its batches.
const pieceHead = len(metadata.TopicID{}) + 4 + 4 + 1 + 8 + 8

func encodePiece(p coordinator.Piece) []byte {
	b := make([]byte, 0, pieceHead+len(p.Batches))
	b = append(b, p.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partition))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Epoch))
	first := byte(0)
	if p.First {
		first = 1
	}
	b = append(b, first)
	b = binary.BigEndian.AppendUint64(b, uint64(p.From))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Live))
	return append(b, p.Batches...)
}

// decodePiece does not copy the batches.
func decodePiece(b []byte) (coordinator.Piece, error) {
	if len(b) < pieceHead {
		return coordinator.Piece{}, fmt.Errorf("a piece of a log of %d bytes, at least %d are needed", len(b), pieceHead)
	}
	var p coordinator.Piece
	b = b[copy(p.Topic[:], b):]
	p.Partition = int32(binary.BigEndian.Uint32(b))
	p.Epoch = commitlog.Epoch(binary.BigEndian.Uint32(b[4:]))
	p.First = b[8] != 0
	p.From = commitlog.Offset(binary.BigEndian.Uint64(b[9:]))
	p.Live = int64(binary.BigEndian.Uint64(b[17:]))
	p.Batches = b[25:]
	return p, nil
}

// sendAhead sends the log of a partition of this node to a broker.
func (n *Node) sendAhead(ctx context.Context, topic metadata.TopicID, partition int32, to metadata.Incarnation) error {
	b, ok := n.ctl.Image().Broker(to.Broker)
	e, has := b.Endpoint(listenerName)
	if !ok || !has || b.Incarnation != to {
		return fmt.Errorf("broker %s is gone", to)
	}
	c, err := rpc.Dial(ctx, n.dial(), e.Address(), rpc.ClientConfig{ClientID: fmt.Sprint("broker-", n.cfg.NodeID)})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return n.groups.SendAhead(ctx, topic, partition, func(ctx context.Context, p coordinator.Piece) error {
		switch reply, err := c.Call(ctx, keyAhead, 0, encodePiece(p)); {
		case err != nil:
			return err
		case len(reply) > 0:
			return errors.New(string(reply))
		}
		return nil
	})
}

// dial reaches other nodes.
func (n *Node) dial() rpc.Dialer {
	if n.cfg.Dial != nil {
		return n.cfg.Dial
	}
	return new(net.Dialer).DialContext
}
