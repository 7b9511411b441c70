package verify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// suspects is how many objects that an image does not know are gathered before
// a fresh one is fetched to judge them by.
const suspects = 1000

// listing judges every object in the store. The image is older than the listing,
// so objects of an incarnation that it does not know are judged again by a
// fresh one; all other verdicts stay.
func (c *checker) listing(ctx context.Context) error {
	var odd []objstore.Info
	prefix := c.img.ClusterID() + "/"
	n := int64(0)
	// Not repeated as other reads are: what was counted would be counted twice.
	err := c.cfg.Bucket.List(ctx, prefix, "", func(i objstore.Info) error {
		if n++; n%1000 == 0 {
			c.advance(1000)
		}
		name, verdict := c.judge(c.img, i.Key)
		if verdict == metadata.Unknown || verdict == metadata.Alarm {
			if odd = append(odd, i); len(odd) == suspects {
				err := c.stray(ctx, odd)
				odd = nil
				return err
			}
			return nil
		}
		c.count(i, c.fate(name, verdict))
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	c.advance(n % 1000)
	return c.stray(ctx, odd)
}

// judge is what an image says about a key.
func (c *checker) judge(img *metadata.Image, key string) (metadata.ObjectName, metadata.Verdict) {
	gen, object, _ := strings.Cut(strings.TrimPrefix(key, img.ClusterID()+"/"), "/")
	n, err := metadata.ParseObjectName(object)
	if err != nil {
		return n, metadata.Unknown
	}
	if w, ok := img.WAL(n.Creator); !ok || gen != strconv.FormatUint(w.Generation, 10) {
		return n, metadata.Unknown
	}
	return n, img.Judge(object)
}

// fate is what becomes of an object that the image knows.
func (c *checker) fate(n metadata.ObjectName, v metadata.Verdict) fate {
	w, _ := c.img.WAL(n.Creator)
	slot := n.Kind == metadata.WALSlot
	c.mu.Lock()
	defer c.mu.Unlock()
	hole, holed := c.holes[n.Creator]
	switch {
	case c.mu.damaged.has(n):
		return fateDamaged
	case v == metadata.Fence:
		return fateFence
	case v == metadata.Referenced || c.mu.indexed.has(n):
		return fateReferenced
	case v == metadata.Pending && slot && holed && n.Number >= hole.first && n.Number <= hole.last:
		return fateUnresolved
	case v == metadata.Pending && slot:
		return fateLive
	case v == metadata.Pending:
		return fatePending
	case slot && n.Number < w.Trim:
		return fateTrimmed
	case slot && n.Number > w.SealedEnd:
		return fateBeyond
	case slot:
		return fatePacked
	default:
		return fateLeft
	}
}

// count adds an object to its class.
func (c *checker) count(i objstore.Info, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	class := &c.mu.report.Classes[f]
	class.Objects++
	class.Bytes += i.Size
	if class.Name == ClassGarbage && c.cfg.Garbage != nil {
		c.cfg.Garbage(Garbage{Key: i.Key, Bytes: i.Size, Reason: class.Reason})
	}
}

// stray reports objects that a fresh image does not know either, if they are
// still there.
func (c *checker) stray(ctx context.Context, list []objstore.Info) error {
	if len(list) == 0 {
		return nil
	}
	img, err := c.cfg.Image(ctx)
	if err != nil {
		return fmt.Errorf("get metadata: %w", err)
	}
	for _, i := range list {
		n, verdict := c.judge(img, i.Key)
		if verdict != metadata.Unknown && verdict != metadata.Alarm {
			c.count(i, c.newcomer(n))
			continue
		}
		err := c.ask(ctx, func() error {
			_, err := c.cfg.Bucket.GetRange(ctx, i.Key, 0, make([]byte, 1))
			return err
		})
		if errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", i.Key, err)
		}
		p := Problem{Kind: Stray, Key: i.Key, Detail: strangeness(img, i.Key)}
		if verdict == metadata.Alarm {
			p = Problem{Kind: Beyond, Key: i.Key, Detail: "an extent refers to this slot, where nothing was ever acknowledged"}
		}
		c.problem(nil, p)
		c.count(i, fateUnknown)
	}
	return nil
}

// newcomer is the fate of an object whose creator the first image did not know.
func (c *checker) newcomer(n metadata.ObjectName) fate {
	if n.Kind == metadata.WALSlot {
		return fateLive
	}
	return fatePending
}

// strangeness says why an image does not know an object.
func strangeness(img *metadata.Image, key string) string {
	gen, object, _ := strings.Cut(strings.TrimPrefix(key, img.ClusterID()+"/"), "/")
	n, err := metadata.ParseObjectName(object)
	if err != nil {
		return "no object of a cluster has such a name"
	}
	w, ok := img.WAL(n.Creator)
	if !ok {
		return fmt.Sprintf("the metadata at index %d knows no incarnation %s, which is to have made it", img.Index(), n.Creator)
	}
	return fmt.Sprintf("it lies in generation %s, its creator %s belongs to %d", gen, n.Creator, w.Generation)
}
