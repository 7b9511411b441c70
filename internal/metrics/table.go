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

// The rows, in the order of the page and of docs/metrics.md.
const (
	BuildInfo ID = iota
	Ready

	StoreRequests
	StoreErrors
	StoreBytes
	StoreSeconds

	numIDs
)

// labels of requests to the store.
var storeLabels = []string{"op", "reason"}

var table = [numIDs]Metric{
	BuildInfo: {"ponor_build_info", KindGauge, []string{"version", "go_version"}, "Always 1; the labels say what runs."},
	Ready:     {"ponor_ready", KindGauge, nil, "1 if the node serves clients: it is registered, not fenced, and its store takes writes."},

	StoreRequests: {"ponor_store_requests_total", KindCounter, storeLabels, "Requests to the object store."},
	StoreErrors:   {"ponor_store_request_errors_total", KindCounter, storeLabels, "Requests to the object store that failed; that an object exists or does not is an answer."},
	StoreBytes:    {"ponor_store_request_bytes_total", KindCounter, storeLabels, "Bytes of objects written to or read from the store."},
	StoreSeconds:  {"ponor_store_request_seconds", KindHistogram, storeLabels, "Time of requests to the store."},
}

// Table lists every metric, by ID.
func Table() []Metric { return slices.Clone(table[:]) }

// Name is the metric's name.
func (id ID) Name() string { return table[id].Name }
