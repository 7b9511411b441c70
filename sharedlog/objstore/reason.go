package objstore

// Reason says on whose behalf a request goes to the store, for those who count.
type Reason uint8

// The reasons.
const (
	ReasonProbe    Reason = iota // is this the cluster's store: markers; also what names no reason
	ReasonWAL                    // slots of this node's write-ahead log
	ReasonPack                   // packing slots into segment objects, trimming them
	ReasonIndex                  // sections, directories and index objects
	ReasonRead                   // record bytes for consumers
	ReasonRecovery               // sealing the write-ahead log of another incarnation
	ReasonSweep                  // looking for garbage
	Reasons                      // how many there are
)

// String is the reason as a label.
func (r Reason) String() string {
	return [...]string{"probe", "wal", "pack", "index", "read", "recovery", "sweep"}[r]
}

// For is b for requests of one reason: b itself unless it counts them.
func For(b Bucket, r Reason) Bucket {
	if c, ok := b.(interface{ For(Reason) Bucket }); ok {
		return c.For(r)
	}
	return b
}
