package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// ErrOtherCluster says that the store belongs to another cluster.
var ErrOtherCluster = errors.New("store belongs to another cluster")

// ErrOtherStore says that the cluster's logs are in another store than this
// one: the path is wrong, or what should be mounted there is not.
var ErrOtherStore = errors.New("not the store of this cluster")

// ClusterKey is the object that says which cluster a store belongs to, and
// which store it is.
const ClusterKey = "ponor-cluster"

// Marker is the content of the object ClusterKey: the cluster's id and the
// store's, separated by a space.
type Marker struct{ Cluster, Store string }

// Claim makes a bucket this cluster's: it creates the marker with a random
// store id, or finds the cluster's own. Only for a cluster that has no store
// yet; see Verify. A second cluster on one prefix would not damage the first
// (keys begin with the cluster id), but it is always a mistake, so it is refused
// with ErrOtherCluster and a message that says what to do.
func Claim(ctx context.Context, b Bucket, cluster string) (Marker, error) {
	m := Marker{Cluster: cluster, Store: rand.Text()}
	err := b.PutNew(ctx, ClusterKey, BytesBody([]byte(m.Cluster+" "+m.Store)))
	switch {
	case err == nil:
		return m, nil
	case !errors.Is(err, ErrExists):
		return Marker{}, fmt.Errorf("claim store %s: %w", b.Kind().URL, err)
	}
	return readMarker(ctx, b, cluster)
}

// Verify makes sure that a bucket is the store that the cluster's metadata
// names. An empty directory where a mount is missing is not: serving from it
// would pass over everything that was acknowledged. It never writes.
func Verify(ctx context.Context, b Bucket, want Marker) error {
	m, err := readMarker(ctx, b, want.Cluster)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: %s has no object %s, but cluster %s has its logs in a store that does; is --store right, and is it mounted?", ErrOtherStore, b.Kind().URL, ClusterKey, want.Cluster)
	case err != nil:
		return err
	case m.Store != want.Store:
		return fmt.Errorf("%w: %s is store %s, the logs of cluster %s are in store %s; give every node the same --store", ErrOtherStore, b.Kind().URL, m.Store, want.Cluster, want.Store)
	}
	return nil
}

func readMarker(ctx context.Context, b Bucket, cluster string) (Marker, error) {
	buf := make([]byte, 256)
	n, err := b.GetRange(ctx, ClusterKey, 0, buf)
	if err != nil {
		return Marker{}, fmt.Errorf("read who owns store %s: %w", b.Kind().URL, err)
	}
	var m Marker
	m.Cluster, m.Store, _ = strings.Cut(string(buf[:n]), " ")
	if m.Cluster != cluster {
		return Marker{}, fmt.Errorf("%w: %s holds the logs of cluster %q, this is cluster %q; give --store a prefix of its own, or --data-dir the metadata of that cluster", ErrOtherCluster, b.Kind().URL, m.Cluster, cluster)
	}
	return m, nil
}

// GenerationPrefix starts every key of a generation of a cluster.
func GenerationPrefix(cluster string, generation uint64) string {
	return fmt.Sprintf("%s/%d", cluster, generation)
}

// generationKey is made by who claims a generation; auditedKey by who found,
// after that, that the metadata and the store agree. They lie beside the
// clusters' own prefixes, where every object is one that metadata knows.
func generationKey(cluster string, generation uint64) string {
	return "ponor-generation/" + GenerationPrefix(cluster, generation)
}

func auditedKey(cluster string, generation uint64) string {
	return "ponor-audited/" + GenerationPrefix(cluster, generation)
}

// ClaimGeneration takes the first generation above one that nobody has claimed.
// Two restores of one backup get two, and the newer one counts.
func ClaimGeneration(ctx context.Context, b Bucket, cluster string, above uint64) (uint64, error) {
	for g := above + 1; ; g++ {
		err := b.PutNew(ctx, generationKey(cluster, g), BytesBody([]byte(rand.Text())))
		switch {
		case err == nil:
			return g, nil
		case !errors.Is(err, ErrExists):
			return 0, fmt.Errorf("claim generation %d in store %s: %w", g, b.Kind().URL, err)
		}
	}
}

// ErrRestored says that the cluster was restored from a backup since.
var ErrRestored = errors.New("cluster was restored from a backup")

// CheckGeneration makes sure that no newer generation than ours was claimed.
// Whoever is of an older one must not write any more.
func CheckGeneration(ctx context.Context, b Bucket, cluster string, ours uint64) error {
	claimed, err := exists(ctx, b, generationKey(cluster, ours+1))
	if err != nil {
		return fmt.Errorf("look for generation %d in store %s: %w", ours+1, b.Kind().URL, err)
	}
	if claimed {
		return fmt.Errorf("%w: store %s has generation %d of cluster %s, this node's metadata is of generation %d; move its metadata directory away and start it again, to follow the restored quorum",
			ErrRestored, b.Kind().URL, ours+1, cluster, ours)
	}
	return nil
}

// Audited says whether what a restored cluster refers to was found to be all
// there is. Before that nothing may be deleted: the metadata does not know what
// came after the backup. A cluster that was never restored needs no audit.
func Audited(ctx context.Context, b Bucket, cluster string, generation uint64) (bool, error) {
	if generation <= 1 {
		return true, nil
	}
	ok, err := exists(ctx, b, auditedKey(cluster, generation))
	if err != nil {
		return false, fmt.Errorf("look for the audit of generation %d in store %s: %w", generation, b.Kind().URL, err)
	}
	return ok, nil
}

// MarkAudited allows deletion again.
func MarkAudited(ctx context.Context, b Bucket, cluster string, generation uint64) error {
	err := b.PutNew(ctx, auditedKey(cluster, generation), BytesBody([]byte(rand.Text())))
	if err != nil && !errors.Is(err, ErrExists) {
		return fmt.Errorf("mark generation %d as audited in store %s: %w", generation, b.Kind().URL, err)
	}
	return nil
}

func exists(ctx context.Context, b Bucket, key string) (bool, error) {
	_, err := b.GetRange(ctx, key, 0, make([]byte, 256))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
