package sharedlogtest

import (
	"context"
	"fmt"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/segment"
)

// Locate finds the object and position of the batch with an offset, with no code
// of the engine.
func Locate(ctx context.Context, c *Cluster, b objstore.Bucket, id commitlog.StreamID, o commitlog.Offset) (string, int64, error) {
	p, _ := c.Image().PartitionByStream(id)
	list := p.Extents
	for {
		var x metadata.Extent
		for _, e := range list {
			if e.Base <= o && o < e.End {
				x = e
			}
		}
		if x.Object == "" {
			return "", 0, fmt.Errorf("no extent has offset %d: %+v", o, list)
		}
		key := "AAAAAAAAAAAAAAAAAAAAAA/1/" + x.Object
		buf := make([]byte, x.Length)
		if _, err := b.GetRange(ctx, key, x.Position, buf); err != nil {
			return "", 0, err
		}
		if x.Indirect {
			sec, err := segment.DecodeSection(buf)
			if err != nil {
				return "", 0, err
			}
			list = nil
			for _, e := range sec.Entries {
				if e.Object == "" {
					e.Object = x.Object
				}
				list = append(list, e.Extent)
			}
			continue
		}
		pos, next := x.Position, x.Base
		for len(buf) > 0 {
			batch, rest, err := commitlog.SplitBatch(buf)
			if err != nil {
				return "", 0, err
			}
			next += commitlog.Offset(batch.LastOffsetDelta()) + 1
			if o < next {
				return key, pos, nil
			}
			pos += int64(len(batch))
			buf = rest
		}
		return "", 0, fmt.Errorf("offset %d is not in its extent %+v", o, x)
	}
}
