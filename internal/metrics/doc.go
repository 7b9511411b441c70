// Package metrics is the one table of what a node counts (table.go), the
// counters and histograms that hot paths write to, and the page on which a node
// shows them: Prometheus text, version 0.0.4.
//
// There is no registry. Each part keeps its numbers in fields of its own and
// whoever assembles a node (cmd/node/process) writes them to a Page when it is
// asked, by ID: a name that is not in the table does not compile. Several nodes
// in one process share nothing.
//
// Writing to a Counter, Durations or Sizes allocates nothing and takes one to
// three atomic additions. Their zero values are ready; they must not be copied.
package metrics
