package history

import "fmt"

// Key is the number of a partition in Header.Keys.
type Key int32

// Partition names a partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// Header says what was run.
type Header struct {
	Version  int         `json:"version"` // of this format, FormatVersion
	Run      string      `json:"run"`     // unique
	Began    string      `json:"began"`   // RFC 3339
	Workload string      `json:"workload"`
	Nemesis  []string    `json:"nemesis,omitempty"`
	Seed     uint64      `json:"seed"`
	Product  string      `json:"product"` // what the cluster says it is, with its version
	Client   string      `json:"client"`  // driver and its version
	Nodes    int         `json:"nodes"`
	Keys     []Partition `json:"keys"`
	// Compacted and deleting are keys whose records may go away for another
	// reason than the ops of this history.
	Compacted  []Key `json:"compacted,omitempty"`
	Retained   []Key `json:"retained,omitempty"` // with a retention that may expire records in the run
	Idempotent bool  `json:"idempotent"`         // all producers are
	Group      bool  `json:"group,omitempty"`    // consumers subscribe
	AutoCommit bool  `json:"auto_commit,omitempty"`
	// Floor is how many records must be acknowledged for the run to count, 0: 100.
	Floor int64 `json:"floor,omitempty"`
	// Settings are what else one needs to repeat the run.
	Settings map[string]string `json:"settings,omitempty"`
}

// FormatVersion is the version of the files written.
const FormatVersion = 1

// Outcome of an operation.
type Outcome string

// Outcomes: Info has an unknown effect. Its process is retired, and may take
// effect at any time after its invocation.
const (
	OK   Outcome = "ok"
	Fail Outcome = "fail" // it had no effect, for certain
	Info Outcome = "info"
)

// Func is what an operation does.
type Func string

// Functions of operations.
const (
	// Assign Keys. Those of the process's last assignment go on behind what it
	// polled last, others, and all if Seek, start at the beginning of the log.
	Assign    Func = "assign"
	Subscribe Func = "subscribe" // topics of Keys
	Send      Func = "send"      // Sends, one batch for each key
	// Poll gave Polls. With Spec "all" it is no consumer's, but one key's whole
	// log from its start to the high watermark at one moment within the op.
	Poll           Func = "poll"
	ListOffsets    Func = "list-offsets"    // Offsets, see Spec
	Commit         Func = "commit"          // Offsets of a group
	FetchCommitted Func = "fetch-committed" // Offsets of a group
	InitProducer   Func = "init-producer"   // Producer
	DeleteRecords  Func = "delete-records"  // Offsets: low watermark asked, then answered
	CreateTopic    Func = "create-topic"
	DeleteTopic    Func = "delete-topic"
	AlterConfig    Func = "alter-config"
	DescribeTopic  Func = "describe-topic"
	DescribeGroup  Func = "describe-group"
	Crash          Func = "crash" // a client is dropped; always Info
	Join           Func = "join"  // a group's member starts: Group, Member
	Leave          Func = "leave" // and ends in order; its last Rebalance
)

// Phases of a run.
const (
	Load  = ""      // with faults
	Final = "final" // after all were undone, with fresh clients, from the beginning
)

// Op is one operation of one process, written when it ended. A process does one
// at a time; after an Info it does no more.
type Op struct {
	Index     int64       `json:"i"` // position among the ops of the file
	Process   int32       `json:"p"`
	F         Func        `json:"f"`
	Phase     string      `json:"phase,omitempty"`
	Invoked   int64       `json:"at"`  // ns
	Completed int64       `json:"end"` // ns; of an Info: when it was given up
	Type      Outcome     `json:"type"`
	Err       string      `json:"err,omitempty"`
	Node      int32       `json:"node,omitempty"`     // broker that answered, 0 unknown
	Attempts  int32       `json:"attempts,omitempty"` // of a send: produce requests written meanwhile; more than its keys means that some were repeated
	Keys      []Key       `json:"keys,omitempty"`
	Seek      bool        `json:"seek,omitempty"`
	Sends     []Sent      `json:"sends,omitempty"`
	Polls     []Polled    `json:"polls,omitempty"`
	Offsets   []Offset    `json:"offsets,omitempty"`
	Spec      string      `json:"spec,omitempty"` // list-offsets: earliest, latest, or a timestamp; poll: see Poll
	Group     string      `json:"group,omitempty"`
	Member    string      `json:"member,omitempty"`
	Gen       int32       `json:"gen,omitempty"` // generation or member epoch the op was sent under
	Producer  *Producer   `json:"producer,omitempty"`
	Topic     *Topic      `json:"topic,omitempty"`
	Rebalance []Rebalance `json:"rebalance,omitempty"` // what happened to the process's assignment since its last op
}

// Value identifies a record. No value is sent twice. 0 is none.
type Value int64

// Sent is a record that was to be appended. The records of one key in one op are
// one batch.
type Sent struct {
	Key    Key   `json:"k"`
	ID     int32 `json:"id,omitempty"` // number of the record's own key in a compacted topic; 0: unique
	Value  Value `json:"v"`
	Offset int64 `json:"o"` // -1: not known
}

// Polled is a record that was read.
type Polled struct {
	Key    Key    `json:"k"`
	Value  Value  `json:"v"`
	Offset int64  `json:"o"`
	Damage string `json:"damage,omitempty"` // how it differs from what is sent under this value
}

// Offset is an offset of a key, in what F says.
type Offset struct {
	Key    Key    `json:"k"`
	Offset int64  `json:"o"` // -1: none
	Asked  int64  `json:"asked,omitempty"`
	Epoch  int32  `json:"epoch,omitempty"` // leader epoch
	Err    string `json:"err,omitempty"`
}

// Producer is what init-producer answered.
type Producer struct {
	ID    int64 `json:"id"`
	Epoch int16 `json:"epoch"`
}

// Topic is what an operation on a topic asked for or answered.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id,omitempty"` // hex
	Partitions int32             `json:"partitions,omitempty"`
	Config     map[string]string `json:"config,omitempty"`
	Exists     bool              `json:"exists,omitempty"`
}

// Rebalance is one change of a member's assignment, when its callback returned.
type Rebalance struct {
	At     int64  `json:"at"`
	Kind   string `json:"kind"` // assigned, revoked, lost
	Keys   []Key  `json:"keys"`
	Gen    int32  `json:"gen"`
	Member string `json:"member"`
}

// Event is something that a nemesis did or undid.
type Event struct {
	At     int64    `json:"at"`
	End    int64    `json:"end"`    // when doing it ended; At if it was instant
	Fault  string   `json:"fault"`  // its name in --nemesis
	Phase  string   `json:"phase"`  // start, stop, heal
	Target []string `json:"target"` // nodes, links, files
	// Proof is how it was seen that the fault happened: "pid 12 state T",
	// "3 requests held". Empty: it was not, which makes the run unknown.
	Proof string `json:"proof,omitempty"`
	Err   string `json:"err,omitempty"`
}

// Sample is the state of the cluster as the harness saw it at a time.
type Sample struct {
	At     int64 `json:"at"`
	Acked  int64 `json:"acked"`  // records acknowledged since the run began
	Failed int64 `json:"failed"` // ops
	Polled int64 `json:"polled"` // records
	Unseen int64 `json:"unseen"` // acknowledged and polled by nobody yet
	Up     int   `json:"up"`     // nodes that should be running
}

// History is a whole run in memory. Ops are in the order in which they ended.
type History struct {
	Header  Header
	Ops     []Op
	Events  []Event
	Samples []Sample
}
