// Package cluster is what a run tests: nodes that can be killed, paused and
// started again, and where clients find them. Processes are nodes that the
// harness runs itself; External is a cluster of any Kafka-protocol brokers that
// somebody else runs, whose nodes obey commands that the user gave.
package cluster
