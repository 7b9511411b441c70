package check

import (
	"ponor/jepsen/history"
	"ponor/sharedlog/verify"
)

// White is what was seen inside the cluster. What is nil was not looked at:
// checks on it are unknown if the cluster is ours, and absent if it is another's.
type White struct {
	// Leaders of the metadata quorum, as the voters reported them.
	Leaders []Leader `json:"leaders,omitempty"`
	// Hashes of the metadata, of the same index on several nodes.
	Hashes []Hash `json:"hashes,omitempty"`
	// Owners in the order in which the metadata named them.
	Owners []Owner `json:"owners,omitempty"`
	// Batches are the headers of a partition's whole log, by offset.
	Batches map[history.Key][]Batch `json:"batches,omitempty"`
	// Store is what a verification of the whole store found after the run.
	Store *verify.Report `json:"store,omitempty"`
	// Findings of those who looked at something else, by id of the check: M2,
	// M3, M8, S2, S4, S5, S7, S9 to S12, or more on another M, S or L25.
	Findings map[string]Finding `json:"findings,omitempty"`
}

// Leader says that a node led in a term.
type Leader struct {
	Term uint64 `json:"term"`
	Node int32  `json:"node"`
}

// Hash is the metadata's at an index on a node.
type Hash struct {
	Node  int32  `json:"node"`
	Index uint64 `json:"index"`
	Hash  string `json:"hash"`
	// Snapshot: restored from a snapshot and what follows it.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Owner says who owned a stream from an epoch on.
type Owner struct {
	Stream uint64 `json:"stream"`
	Epoch  int64  `json:"epoch"`
	Node   int32  `json:"node"`
}

// Batch is a header of a record batch.
type Batch struct {
	Base     int64 `json:"base"`
	Last     int64 `json:"last"` // offset
	Epoch    int32 `json:"epoch"`
	Producer int64 `json:"producer"` // -1: none
	PEpoch   int16 `json:"pepoch"`
	Sequence int32 `json:"seq"` // of the first record
	Txn      bool  `json:"txn,omitempty"`
	Control  bool  `json:"control,omitempty"`
}

// Finding is what another one's check found.
type Finding struct {
	Checked   int64     `json:"checked"`
	Anomalies []Anomaly `json:"anomalies,omitempty"`
	Note      string    `json:"note,omitempty"`
	// Unknown: the check could not tell, Note says why.
	Unknown bool `json:"unknown,omitempty"`
}
