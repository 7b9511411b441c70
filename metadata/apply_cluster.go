package metadata

import (
	"encoding/base64"
	"math"

	"ponor/metadata/metadatapb"
)

// The features that a cluster has from its first command on, with the levels
// of this format's first release: Kafka's 4.4-IV2, and dynamic quorums
// (KIP-853). They are constants of InitCluster and never change with a release;
// later levels come by SetFeature.
const (
	FeatureMetadataVersion = "metadata.version"
	FeatureKRaftVersion    = "kraft.version"

	initialMetadataVersion = 33
	initialKRaftVersion    = 1
)

const maxFeatureName = 128

// initCluster gives the cluster its identity, once.
func (e *edit) initCluster(c *metadatapb.InitCluster) (Result, *Error) {
	if e.clusterID != "" {
		return Result{}, reject(ErrAlreadyInitialized, "as %s", e.clusterID)
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(c.GetClusterId()); err != nil || len(b) != 16 {
		return Result{}, reject(ErrInvalid, "cluster id %.64q is not 22 characters of base64url", c.GetClusterId())
	}
	if c.GetGeneration() == 0 {
		return Result{}, reject(ErrInvalid, "generations count from 1")
	}
	if len(c.GetStoreUrl()) > maxConfigValue {
		return Result{}, reject(ErrInvalid, "store URL of %d bytes", len(c.GetStoreUrl()))
	}
	e.clusterID, e.generation, e.storeURL = c.GetClusterId(), c.GetGeneration(), c.GetStoreUrl()
	features := own(e, &e.features)
	features.Set(FeatureMetadataVersion, initialMetadataVersion)
	features.Set(FeatureKRaftVersion, initialKRaftVersion)
	for _, f := range c.GetFeatures() {
		if _, err := e.setFeature(&metadatapb.SetFeature{Name: f.GetName(), Level: f.GetLevel()}); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// setFeature finalizes a feature level (KIP-584); 0 turns the feature off.
// Which levels a release can serve is for the proposer to know.
func (e *edit) setFeature(c *metadatapb.SetFeature) (Result, *Error) {
	if c.GetName() == "" || len(c.GetName()) > maxFeatureName || c.GetLevel() < 0 || c.GetLevel() > math.MaxInt16 {
		return Result{}, reject(ErrInvalid, "feature %.64q level %d", c.GetName(), c.GetLevel())
	}
	if c.GetLevel() == 0 {
		own(e, &e.features).Delete(c.GetName())
	} else {
		own(e, &e.features).Set(c.GetName(), c.GetLevel())
	}
	return Result{}, nil
}

// allocateIDs reserves a block of an id space.
func (e *edit) allocateIDs(c *metadatapb.AllocateIDs) (Result, *Error) {
	// Producer ids are int64 in the protocol; the same bound does for objects.
	const most = math.MaxInt64
	var next *uint64
	switch c.GetSpace() {
	case metadatapb.AllocateIDs_PRODUCER:
		next = &e.nextProducerID
	case metadatapb.AllocateIDs_OBJECT:
		next = &e.nextObject
	default:
		return Result{}, reject(ErrUnsupported, "id space %d", c.GetSpace())
	}
	if c.GetCount() == 0 {
		return Result{}, reject(ErrInvalid, "a block of no ids")
	}
	if c.GetCount() > most-*next {
		return Result{}, reject(ErrExhausted, "%d ids of %s from %d on", c.GetCount(), c.GetSpace(), *next)
	}
	r := Result{First: *next}
	*next += c.GetCount()
	return r, nil
}

// claimStore binds the cluster to a store. Repeating the claim is fine.
func (e *edit) claimStore(c *metadatapb.ClaimStore) (Result, *Error) {
	if c.GetStoreId() == "" || len(c.GetStoreId()) > maxFeatureName {
		return Result{}, reject(ErrInvalid, "store id %.64q", c.GetStoreId())
	}
	if e.storeID != "" && e.storeID != c.GetStoreId() {
		return Result{}, reject(ErrOtherStore, "%s, not %s", e.storeID, c.GetStoreId())
	}
	e.storeID = c.GetStoreId()
	return Result{}, nil
}

// claimGeneration moves the cluster to another part of the store after its
// metadata was restored from a backup. What lived in the backup is dead.
func (e *edit) claimGeneration(c *metadatapb.ClaimGeneration) (Result, *Error) {
	if c.GetGeneration() <= e.generation {
		return Result{}, reject(ErrStaleGeneration, "%d, the current one is %d", c.GetGeneration(), e.generation)
	}
	e.generation = c.GetGeneration()
	for _, w := range e.wals.Values() {
		if w.State == Active {
			e.fence(*w, Incarnation{})
		}
	}
	return Result{}, nil
}
