// Package report shows a correctness run to a person: Write one HTML page, Text a
// summary for a terminal.
//
// The page stands alone. It names no other file but the visualisations that are
// too large for it, and its content security policy forbids to load anything. It
// stays under two megabytes however long the run was: operations are drawn as at
// most maxBuckets buckets, and lists end at a bound and say how much they left out.
//
// Every string that comes from a history or a check is data: the template escapes
// it, wherever it stands.
package report
