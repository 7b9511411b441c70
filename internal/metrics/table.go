package metrics

import "slices"

// Kind is Prometheus' type of a metric.
type Kind uint8

// The kinds. A counter only grows until its process ends; a gauge is a value of
// now.
const (
	KindCounter Kind = iota
	KindGauge
	KindHistogram
)

// String is the name in the text format.
func (k Kind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// Metric is a row of the table. Its name ends in its unit, _seconds or _bytes,
// where it has one, and in _total if it is a counter.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string
}

// ID names a row of the table.
type ID int

// The rows, in the order of the page and of docs/metrics.md. Every label has few
// values, whatever clients do: none names a topic, a partition or a client.
const (
	// The node.
	BuildInfo ID = iota
	Ready
	Registrations

	// Partitions.
	Partitions
	PartitionAbsent
	OpenErrors
	ProduceBytes
	ProduceRecords
	ProduceBatches
	FetchBytes
	PartitionErrors

	// Takeovers.
	Fences
	TakeoverSeconds

	// Moves.
	Moves
	MoveSeconds
	MovePause
	BalanceMoves

	// Coordinators.
	CoordinatorShards
	CoordinatorLoadSeconds
	CoordinatorReplayed
	CoordinatorBatches
	CoordinatorBytes
	CoordinatorCompactions
	CoordinatorFreed

	// Write-ahead log.
	SlotPutSeconds
	SlotCommitSeconds
	SlotBytes
	SlotFlushes
	SlotPutRetries
	SlotsInFlight
	SlotsQueued
	OldestUnresolved
	StoreTrouble
	StoreTroubleTime
	AppendsRefused
	Streams
	UnpackedSlots
	UnpackedAge
	UnpackedFull
	Packs
	Swept

	// Memory.
	Reads
	CacheHits
	CacheMisses
	CacheEvictions
	BudgetUsed
	BudgetLimit
	ColdReads
	ColdReadsLimit

	// Object store.
	StoreRequests
	StoreErrors
	StoreBytes
	StoreSeconds

	// Clients.
	Connections
	ConnectionsOpened
	ConnectionsRefused
	RequestsInFlight
	Requests
	RequestSeconds
	RequestQueueSeconds
	RequestBytes
	ResponseBytes
	Throttled
	FetchSessions
	FetchSessionsEvicted

	// Cluster metadata.
	Controller
	RaftLeader
	RaftState
	RaftTerm
	RaftLastIndex
	RaftCommitIndex
	RaftAppliedIndex
	RaftLastContact
	RaftCommitSeconds
	RaftSnapshotIndex
	RaftSnapshotSeconds
	RaftSnapshotBytes
	RaftLogBytes
	MetadataIndex
	MetadataCommands
	ClusterBrokers
	ClusterTopics
	ClusterPartitions
	ClusterOwned
	ClusterOffline
	ClusterUnsealed

	// The process (names as every exporter has them; nodes of one process share them).
	ProcessCPU
	ProcessMemory
	ProcessFDs
	ProcessMaxFDs
	ProcessStart
	Goroutines
	GoHeap
	GoGCs
	GoGCCPU

	numIDs
)

// labels of requests to the store.
var storeLabels = []string{"op", "reason"}

var table = [numIDs]Metric{
	BuildInfo:     {"ponor_build_info", KindGauge, []string{"version", "go_version"}, "Always 1; the labels say what runs."},
	Ready:         {"ponor_ready", KindGauge, nil, "1 if the node serves clients: it is registered, not fenced, and its store takes writes."},
	Registrations: {"ponor_registrations_total", KindCounter, nil, "Incarnations this process has lived as a broker; more than one means that it was fenced and came back."},

	Partitions:      {"ponor_partitions", KindGauge, []string{"state"}, "Partitions that this broker owns: open, moving (frozen for a hand-over), opening, unsealed (the log of the last owner is not sealed), failing (did not open, is tried again), closing."},
	PartitionAbsent: {"ponor_partition_open_wait_seconds", KindHistogram, nil, "From a partition becoming this broker's until it serves: what clients wait in a takeover or move, and for a new topic."},
	OpenErrors:      {"ponor_partition_open_errors_total", KindCounter, nil, "Attempts to open a partition that failed."},
	ProduceBytes:    {"ponor_produce_bytes_total", KindCounter, nil, "Bytes of batches appended."},
	ProduceRecords:  {"ponor_produce_records_total", KindCounter, nil, "Records appended."},
	ProduceBatches:  {"ponor_produce_batches_total", KindCounter, nil, "Batches appended."},
	FetchBytes:      {"ponor_fetch_bytes_total", KindCounter, nil, "Bytes of batches given to consumers."},
	PartitionErrors: {"ponor_partition_errors_total", KindCounter, []string{"api", "error"}, "Partitions of Produce and Fetch requests that were answered with an error, by Kafka's name of it; only those that occurred."},

	Fences:          {"ponor_takeovers_total", KindCounter, nil, "Brokers that this node fenced as the controller, so that others take their partitions over."},
	TakeoverSeconds: {"ponor_takeover_step_seconds", KindHistogram, []string{"step"}, "Steps of takeovers, each where it is done: detect (from a broker's last sign of life until it is given up; controller), fence (commit that; controller), seal (end its write-ahead log and index what is in it; the broker named), open (one partition, once its log is sealed; the new owner, also after moves and for new topics)."},

	Moves:        {"ponor_moves_total", KindCounter, []string{"result"}, "Partitions handed to other brokers: moved, or stayed (it is tried again)."},
	MoveSeconds:  {"ponor_move_step_seconds", KindHistogram, []string{"step"}, "Steps of moves, of up to 256 partitions each: index (while appends go on), drain (appends stopped, until all are durable), commit."},
	MovePause:    {"ponor_move_pause_seconds", KindHistogram, nil, "How long appends to a partition were held up by its move."},
	BalanceMoves: {"ponor_balance_moves_total", KindCounter, []string{"cause"}, "Moves that this node, as the controller, planned to balance the cluster: preferred (leaders go back home), partitions (a new broker gets its share), bytes and requests (a broker had too much load)."},

	CoordinatorShards:      {"ponor_coordinator_partitions", KindGauge, nil, "Partitions of __consumer_offsets whose groups this node coordinates."},
	CoordinatorLoadSeconds: {"ponor_coordinator_load_seconds", KindHistogram, nil, "How long such a partition took to load after it had opened."},
	CoordinatorReplayed:    {"ponor_coordinator_replayed_total", KindCounter, []string{"when"}, "Records of such partitions that were read to load them: ahead (while they were still another node's) or after (they had opened here, and nobody was answered meanwhile)."},
	CoordinatorBatches:     {"ponor_coordinator_batches_total", KindCounter, nil, "Batches written to __consumer_offsets."},
	CoordinatorBytes:       {"ponor_coordinator_bytes_total", KindCounter, nil, "Their bytes."},
	CoordinatorCompactions: {"ponor_coordinator_compactions_total", KindCounter, nil, "Times that such a partition was written anew to drop what it no longer needs."},
	CoordinatorFreed:       {"ponor_coordinator_compacted_bytes_total", KindCounter, nil, "Bytes that such partitions had when they were written anew."},

	SlotPutSeconds:    {"ponor_slot_put_seconds", KindHistogram, nil, "Time to write a slot to the store, all attempts."},
	SlotCommitSeconds: {"ponor_slot_commit_seconds", KindHistogram, nil, "From the first batch in a slot until it is acknowledged."},
	SlotBytes:         {"ponor_slot_bytes", KindHistogram, nil, "Bytes of batches in a slot (flush size)."},
	SlotFlushes:       {"ponor_slot_flushes_total", KindCounter, []string{"reason"}, "Why slots were sent off: full, idle (nothing in flight), freed (a write had ended), linger (open for the longest time), asked (a move, a proof of ownership or the end)."},
	SlotPutRetries:    {"ponor_slot_put_retries_total", KindCounter, nil, "Writes of slots that failed and were repeated."},
	SlotsInFlight:     {"ponor_slots_in_flight", KindGauge, nil, "Slots being written."},
	SlotsQueued:       {"ponor_slots_queued", KindGauge, nil, "Full slots that wait for one to end."},
	OldestUnresolved:  {"ponor_slot_oldest_unresolved_seconds", KindGauge, nil, "Age of the oldest batch that is not durable."},
	StoreTrouble:      {"ponor_store_trouble", KindGauge, nil, "1 while the store does not take writes."},
	StoreTroubleTime:  {"ponor_store_trouble_seconds", KindGauge, []string{"reason"}, "For how long the store has not taken writes, 0 if it does: full, refused (no access and the like), silent (no answer), error (any other)."},
	AppendsRefused:    {"ponor_appends_refused_total", KindCounter, []string{"reason"}, "Batches refused: budget (too much waits for the store), store (it has not taken writes for 2 s)."},
	Streams:           {"ponor_streams", KindGauge, nil, "Streams with state in memory."},
	UnpackedSlots:     {"ponor_unpacked_slots", KindGauge, nil, "Durable slots that are not packed into segment objects."},
	UnpackedAge:       {"ponor_unpacked_oldest_seconds", KindGauge, nil, "Age of the oldest of them."},
	UnpackedFull:      {"ponor_unpacked_full", KindGauge, nil, "1 while appends are pushed back because too much is unpacked."},
	Packs:             {"ponor_packs_total", KindCounter, nil, "Rounds of packing."},
	Swept:             {"ponor_swept_objects_total", KindCounter, nil, "Garbage objects deleted."},

	Reads:          {"ponor_log_reads_total", KindCounter, []string{"from"}, "Reads of logs for consumers: memory (recent data), store (read cache or object store)."},
	CacheHits:      {"ponor_read_cache_hits_total", KindCounter, nil, "Blocks and indexes found in the read cache."},
	CacheMisses:    {"ponor_read_cache_misses_total", KindCounter, nil, "Blocks and indexes that had to be read."},
	CacheEvictions: {"ponor_read_cache_evictions_total", KindCounter, nil, "Entries dropped to make room."},
	BudgetUsed:     {"ponor_budget_used_bytes", KindGauge, []string{"budget"}, "Memory in use: append (not durable yet), recent (write-ahead log kept for consumers), read (read cache), unpacked (data to be packed, not memory), requests (frames being handled)."},
	BudgetLimit:    {"ponor_budget_limit_bytes", KindGauge, []string{"budget"}, "The bound of each."},
	ColdReads:      {"ponor_cold_reads", KindGauge, nil, "Reads from the store for consumers now."},
	ColdReadsLimit: {"ponor_cold_reads_limit", KindGauge, nil, "The bound of them."},

	StoreRequests: {"ponor_store_requests_total", KindCounter, storeLabels, "Requests to the object store."},
	StoreErrors:   {"ponor_store_request_errors_total", KindCounter, storeLabels, "Requests to the object store that failed; that an object exists or does not is an answer."},
	StoreBytes:    {"ponor_store_request_bytes_total", KindCounter, storeLabels, "Bytes of objects written to or read from the store."},
	StoreSeconds:  {"ponor_store_request_seconds", KindHistogram, storeLabels, "Time of requests to the store; only those that occurred."},

	Connections:          {"ponor_connections", KindGauge, nil, "Open client connections."},
	ConnectionsOpened:    {"ponor_connections_opened_total", KindCounter, nil, "Client connections ever accepted."},
	ConnectionsRefused:   {"ponor_connections_refused_total", KindCounter, nil, "Connections turned away because there are too many."},
	RequestsInFlight:     {"ponor_requests_in_flight", KindGauge, nil, "Requests read and not answered; waiting fetches are among them."},
	Requests:             {"ponor_requests_total", KindCounter, []string{"api"}, "Requests answered, by Kafka API."},
	RequestSeconds:       {"ponor_request_seconds", KindHistogram, []string{"api"}, "From a complete request until its reply is written, waits of Fetch included; only APIs that were used."},
	RequestQueueSeconds:  {"ponor_request_queue_seconds_total", KindCounter, []string{"api"}, "Time that requests waited for those before them on their connection."},
	RequestBytes:         {"ponor_request_bytes_total", KindCounter, []string{"api"}, "Bytes of requests."},
	ResponseBytes:        {"ponor_response_bytes_total", KindCounter, []string{"api"}, "Bytes of replies."},
	Throttled:            {"ponor_throttled_replies_total", KindCounter, nil, "Replies that told a client to slow down."},
	FetchSessions:        {"ponor_fetch_sessions", KindGauge, nil, "Incremental fetch sessions."},
	FetchSessionsEvicted: {"ponor_fetch_sessions_evicted_total", KindCounter, nil, "Sessions that made room for others."},

	Controller:          {"ponor_controller", KindGauge, nil, "1 on the node that is the controller; the sum over the cluster should be 1."},
	RaftLeader:          {"ponor_raft_leader_id", KindGauge, nil, "Node id of the leader as this node knows it, -1 for none."},
	RaftState:           {"ponor_raft_state", KindGauge, []string{"state"}, "1 for the state this voter is in."},
	RaftTerm:            {"ponor_raft_term", KindGauge, nil, "Raft's term."},
	RaftLastIndex:       {"ponor_raft_last_index", KindGauge, nil, "Last entry in this voter's log."},
	RaftCommitIndex:     {"ponor_raft_commit_index", KindGauge, nil, "Last entry this voter knows to be committed."},
	RaftAppliedIndex:    {"ponor_raft_applied_index", KindGauge, nil, "Last entry applied here."},
	RaftLastContact:     {"ponor_raft_last_contact_seconds", KindGauge, nil, "Since this voter last heard of the leader, 0 on the leader."},
	RaftCommitSeconds:   {"ponor_raft_commit_seconds", KindHistogram, nil, "Time to commit one entry, on the leader."},
	RaftSnapshotIndex:   {"ponor_raft_snapshot_index", KindGauge, nil, "Entry of the last snapshot."},
	RaftSnapshotSeconds: {"ponor_raft_snapshot_seconds", KindHistogram, nil, "Time to write a snapshot."},
	RaftSnapshotBytes:   {"ponor_raft_snapshot_bytes", KindGauge, nil, "Size of the last snapshot that this process wrote."},
	RaftLogBytes:        {"ponor_raft_log_bytes", KindGauge, nil, "Size of the log's file."},
	MetadataIndex:       {"ponor_metadata_index", KindGauge, nil, "Version of the metadata that this node has."},
	MetadataCommands:    {"ponor_metadata_commands_total", KindCounter, nil, "Commands committed by this node as the leader; several share an entry."},
	ClusterBrokers:      {"ponor_cluster_brokers", KindGauge, []string{"state"}, "Brokers: live or fenced. This and the following are shown by the controller alone."},
	ClusterTopics:       {"ponor_cluster_topics", KindGauge, nil, "Topics."},
	ClusterPartitions:   {"ponor_cluster_partitions", KindGauge, nil, "Partitions."},
	ClusterOwned:        {"ponor_cluster_partitions_owned", KindGauge, []string{"broker"}, "Partitions of each live broker."},
	ClusterOffline:      {"ponor_cluster_partitions_offline", KindGauge, nil, "Partitions that nobody can serve now: their owner is dead, or its log not sealed."},
	ClusterUnsealed:     {"ponor_cluster_unsealed_logs", KindGauge, nil, "Write-ahead logs of dead brokers that are not sealed."},

	ProcessCPU:    {"process_cpu_seconds_total", KindCounter, nil, "CPU time, user and system."},
	ProcessMemory: {"process_resident_memory_bytes", KindGauge, nil, "Resident memory."},
	ProcessFDs:    {"process_open_fds", KindGauge, nil, "Open file descriptors."},
	ProcessMaxFDs: {"process_max_fds", KindGauge, nil, "The bound of them."},
	ProcessStart:  {"process_start_time_seconds", KindGauge, nil, "When the process started, in Unix time."},
	Goroutines:    {"go_goroutines", KindGauge, nil, "Goroutines."},
	GoHeap:        {"go_memstats_heap_alloc_bytes", KindGauge, nil, "Bytes of heap objects."},
	GoGCs:         {"go_gc_cycles_total", KindCounter, nil, "Garbage collections."},
	GoGCCPU:       {"go_gc_cpu_seconds_total", KindCounter, nil, "Estimated CPU time of garbage collection."},
}

// sections are the headings of docs/metrics.md, by the first row below each.
var sections = map[ID]string{
	BuildInfo:         "The node",
	Partitions:        "Partitions",
	Fences:            "Takeovers",
	Moves:             "Moves",
	CoordinatorShards: "Coordinators",
	SlotPutSeconds:    "Write-ahead log",
	Reads:             "Memory",
	StoreRequests:     "Object store",
	Connections:       "Clients",
	Controller:        "Cluster metadata",
	ProcessCPU:        "The process (names as every exporter has them; nodes of one process share them)",
}

// Table lists every metric, by ID.
func Table() []Metric { return slices.Clone(table[:]) }

// Section is the heading under which a row comes if it is the first there.
func (id ID) Section() (string, bool) { s, ok := sections[id]; return s, ok }

// Name is the metric's name.
func (id ID) Name() string { return table[id].Name }
