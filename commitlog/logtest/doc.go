// Package logtest is the contract of package commitlog as a test suite. Every
// implementation and every decorator passes Run; each numbered clause is a
// named subtest that fails if the clause is broken (which this package's own
// test proves with broken logs).
//
// What is tested is a World: a commitlog.Store over a fresh medium, where Open
// means "as a new owner would", even while an older owner has the log open.
// What else a World can do, it says by implementing Holder, Failer, Crasher or
// Corrupter; clauses that need a power the World lacks are skipped by name.
package logtest
