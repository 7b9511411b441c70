package objstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrOtherCluster: the store's prefix belongs to another cluster.
var ErrOtherCluster = errors.New("store belongs to another cluster")

// ClusterKey is the object that says which cluster a prefix belongs to.
const ClusterKey = "ponor-cluster"

// Claim makes sure that the bucket is this cluster's: it creates the marker or
// finds its own id in it. A second cluster on one prefix would not damage the
// first (keys begin with the cluster id), but it is always a mistake, so it is
// refused with ErrOtherCluster and a message that says what to do. Trouble of
// the store is waited out for about half a minute.
func Claim(ctx context.Context, b Bucket, clusterID string) error {
	return persist(ctx, 16, func() error { return claim(ctx, b, clusterID) })
}

func claim(ctx context.Context, b Bucket, clusterID string) error {
	err := b.PutNew(ctx, ClusterKey, BytesBody([]byte(clusterID)))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ErrExists):
		return fmt.Errorf("claim store %s: %w", b.Kind().URL, err)
	}
	buf := make([]byte, 256)
	n, err := b.GetRange(ctx, ClusterKey, 0, buf)
	if err != nil {
		return fmt.Errorf("read who owns store %s: %w", b.Kind().URL, err)
	}
	if owner := string(buf[:n]); owner != clusterID {
		return fmt.Errorf("%w: %s holds the logs of cluster %q, this is cluster %q; give --store a prefix of its own, or --data-dir the metadata of that cluster", ErrOtherCluster, b.Kind().URL, owner, clusterID)
	}
	return nil
}

// GenerationPrefix starts every key of a generation of a cluster.
func GenerationPrefix(clusterID string, generation uint64) string {
	return fmt.Sprintf("%s/%d", clusterID, generation)
}
