// Package workload drives a cluster with real clients in this process and
// writes down what they saw. A workload plans its keys, loads the cluster while
// faults happen, and reads everything back when they are over.
//
// Every process does one operation at a time. One whose operation has an unknown
// effect is retired: its connections are cut and a new process with new clients
// takes its place, as after the crash of a program. Outcomes are classified so
// that none is called a failure that may have happened: a request that was
// perhaps repeated, or whose answer was not seen, is Info.
package workload
