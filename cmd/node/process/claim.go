package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
)

// claimRetry is the pause between attempts to claim or verify a store that does
// not answer.
const claimRetry = 500 * time.Millisecond

// claimStore makes sure that this node's store is the one that has the
// cluster's logs, before it serves or seals anything. The first node of a new
// cluster marks its store and binds the cluster to it in the metadata.
func (n *Node) claimStore(ctx context.Context) error {
	for {
		img := n.ctl.Image()
		if img.StoreID() == "" {
			// A node that starts reads its log again and may not have come to the
			// command that names the store: an empty directory where a mount is
			// missing must not become one.
			var err error
			if img, err = n.ctl.Barrier(ctx); ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				n.log.Warn("cannot learn of the cluster's store yet", "err", err)
				pause(ctx, claimRetry)
				continue
			}
		}
		marker := objstore.Marker{Cluster: img.ClusterID(), Store: img.StoreID()}
		if marker.Store != "" {
			return untilAnswered(ctx, n.log, func() error {
				if err := objstore.Verify(ctx, n.meters.store, marker); err != nil {
					return err
				}
				return objstore.CheckGeneration(ctx, n.meters.store, marker.Cluster, img.Generation())
			})
		}
		err := untilAnswered(ctx, n.log, func() (err error) {
			marker, err = objstore.Claim(ctx, n.meters.store, img.ClusterID())
			return err
		})
		if err != nil {
			return err
		}
		// Whether this claim wins or another node's did, the image says.
		_, err = n.ctl.Submit(ctx, &metadatapb.Command{Body: &metadatapb.Command_ClaimStore{
			ClaimStore: &metadatapb.ClaimStore{StoreId: marker.Store}}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			n.log.Warn("cannot bind the cluster to its store yet", "err", err)
			pause(ctx, claimRetry)
		}
	}
}

// GenerationEvery is how long a node may go on after its cluster was restored from a
// backup. It costs one request to the store for each time.
const GenerationEvery = 10 * time.Second

// endIfRestored ends the node when its cluster was restored: whatever it acknowledges
// from then on is in no log of the restored cluster. Nothing is handed over.
func (n *Node) endIfRestored(ctx context.Context, end context.CancelCauseFunc) {
	for {
		pause(ctx, cmp.Or(n.cfg.GenerationEvery, GenerationEvery))
		if ctx.Err() != nil {
			return
		}
		img := n.ctl.Image()
		if err := objstore.CheckGeneration(ctx, n.meters.store, img.ClusterID(), img.Generation()); errors.Is(err, objstore.ErrRestored) {
			end(err)
			n.abort()
			return
		}
	}
}

// decisive are answers of a store that asking again does not change.
var decisive = []error{
	objstore.ErrOtherCluster, objstore.ErrOtherStore, objstore.ErrRestored, objstore.ErrUnfit,
	objstore.ErrNotFound, objstore.ErrRefused, objstore.ErrFull, objstore.ErrUndurable,
}

// untilAnswered asks a store again that only fails to answer: a node that starts in
// such a moment must not end.
func untilAnswered(ctx context.Context, log *slog.Logger, ask func() error) error {
	for {
		err := ask()
		if err == nil || ctx.Err() != nil || slices.ContainsFunc(decisive, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		log.Warn("the store does not answer yet", "err", err)
		pause(ctx, claimRetry)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// guardedSealer seals only while the store is the cluster's: in an empty
// directory where a mount went away every WAL looks empty, and sealing it there
// would give up what was acknowledged.
type guardedSealer struct {
	sealer controller.Sealer
	node   *Node
}

// Seal verifies the store before and after.
func (g guardedSealer) Seal(ctx context.Context, wal metadata.WAL) (*metadatapb.Sealed, error) {
	img := g.node.ctl.Image()
	marker := objstore.Marker{Cluster: img.ClusterID(), Store: img.StoreID()}
	if err := objstore.Verify(ctx, g.node.meters.store, marker); err != nil {
		return nil, fmt.Errorf("seal WAL of %s: %w", wal.Incarnation, err)
	}
	sealed, err := g.sealer.Seal(ctx, wal)
	if err != nil {
		return nil, err
	}
	if err := objstore.Verify(ctx, g.node.meters.store, marker); err != nil {
		return nil, fmt.Errorf("seal WAL of %s: %w", wal.Incarnation, err)
	}
	return sealed, nil
}

// joinPatience is how long a node may look for its cluster before it says so,
// and how often it says it again.
const joinPatience = 5 * time.Second

// waitCluster returns once this node knows which cluster it belongs to.
func (n *Node) waitCluster(ctx context.Context) error {
	for {
		changed := n.ctl.Changed()
		if n.ctl.Image().ClusterID() != "" {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(joinPatience):
			n.log.Warn("no cluster yet: no controller with metadata answers; are these the --controller-listen addresses of running controllers?", "join", n.cfg.Join)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ignoreCancel is nil when ctx was ended by a signal: leaving is no error.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
