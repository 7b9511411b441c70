package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/rpc"
)

// imageReader serves the metadata to operators' tools, in pieces. It holds one
// encoded image, from the first to the last piece.
type imageReader struct {
	mu    sync.Mutex
	index metadata.Index
	bytes []byte
}

// piece answers a request with index 0 by the beginning of an image that holds
// all that had happened before, and others by more of that image.
func (r *imageReader) piece(ctx context.Context, n *Node, q *controllerpb.SnapshotRequest) response {
	resp := &controllerpb.SnapshotResponse{}
	index, b := r.held()
	switch {
	case q.Index == 0:
		img, err := n.Barrier(ctx)
		if err == nil {
			index = img.Index()
			b, err = encodeSnapshot(img)
		}
		if err != nil {
			resp.Outcome = n.server.outcome(controllerpb.Code_UNAVAILABLE, err)
			return resp
		}
	case metadata.Index(q.Index) != index || q.Offset > uint64(len(b)):
		resp.Outcome = n.server.outcome(controllerpb.Code_UNAVAILABLE, errors.New("somebody else reads another image, begin again"))
		return resp
	}
	at := min(int(q.Offset), len(b))
	end := min(at+snapshotPiece, len(b))
	resp.Outcome, resp.Index, resp.Total, resp.Data = n.server.ok(), uint64(index), uint64(len(b)), b[at:end]
	switch {
	case end < len(b):
		r.hold(index, b)
	case at > 0: // the last of several
		r.hold(0, nil)
	}
	return resp
}

func (r *imageReader) held() (metadata.Index, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index, r.bytes
}

func (r *imageReader) hold(index metadata.Index, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index, r.bytes = index, b
}

// imageTries is how often AskImage begins again when others read images too.
const imageTries = 20

// AskImage reads the metadata of the cluster behind a client connection: an image
// that holds everything that had happened before the call.
func AskImage(ctx context.Context, c *rpc.Client) (*metadata.Image, error) {
	var err error
	for try := range imageTries {
		var img *metadata.Image
		var again bool
		if img, again, err = askImage(ctx, c); err == nil || !again {
			return img, err
		}
		select {
		case <-time.After(time.Duration(try+1) * 50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
	return nil, err
}

func askImage(ctx context.Context, c *rpc.Client) (img *metadata.Image, again bool, err error) {
	var data []byte
	var index uint64
	for {
		q, err := proto.Marshal(&controllerpb.SnapshotRequest{Index: index, Offset: uint64(len(data))})
		if err != nil {
			return nil, false, fmt.Errorf("encode request for metadata: %w", err)
		}
		reply, err := c.Call(ctx, keyImage, 0, q)
		if err != nil {
			return nil, false, fmt.Errorf("read metadata: %w; is this a Ponor cluster?", err)
		}
		resp := new(controllerpb.SnapshotResponse)
		if err := proto.Unmarshal(reply, resp); err != nil {
			return nil, false, fmt.Errorf("read metadata: reply: %w", err)
		}
		if o := resp.GetOutcome(); o.GetCode() != controllerpb.Code_OK {
			return nil, true, fmt.Errorf("read metadata: %s", o.GetMessage())
		}
		index = resp.Index
		data = append(data, resp.Data...)
		if uint64(len(data)) >= resp.Total {
			break
		}
		if len(resp.Data) == 0 || index == 0 {
			return nil, false, errors.New("read metadata: no progress")
		}
	}
	img, err = decodeSnapshot(data)
	return img, false, err
}
