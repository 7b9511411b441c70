// Package history is what clients of a cluster saw during a run: operations with
// their outcomes, the faults that were injected meanwhile, and samples of the
// cluster, as JSON lines.
//
// One line is one object with exactly one field: the first a "header", then "op",
// "event" and "sample" in the order in which they ended. Times are nanoseconds of
// the harness's monotonic clock since the run began.
package history
