// Package memlog keeps commit logs in memory: for tests and demos, and as the
// simplest implementation of the contract in package commitlog to read first.
//
// A Store is a medium and outlives the owners of its logs. It can be told to
// misbehave: Hold stops writes from becoming durable, Fail makes them fail,
// Crash drops every owner with what was not durable, Corrupt damages a stored
// batch. Nothing survives the process.
//
// One mutex guards a whole Store; it is never held across a wait, so logs work
// inside a testing/synctest bubble. A log has a goroutine only while it has
// appends that are not durable yet.
package memlog
