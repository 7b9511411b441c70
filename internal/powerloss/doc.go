// Package powerloss cuts the power under programs that need a real file system,
// for tests on Linux. Where code takes a vfs.FS, package crashfs alone is
// simpler; a database that maps its file into memory (the Raft log is one) takes
// none.
//
// A test records first: Record starts the test binary again as a process of its
// own, in which Child is not nil, and watches with ptrace(2) every system call
// by which it changes files below one directory or makes them durable. The child
// says with Mark what it promises from then on: what it has acknowledged.
//
// Crashes then plays the recording up to random moments on a crashfs.FS, whose
// rules say what a disk may hold after a power cut: what was synced for sure, of
// the rest any part. Write puts that into a directory, where the real code must
// start and find all that was marked before the cut. A recording is made once and
// cut thousands of times. The child may be started on such a directory again, so
// that crashes follow on crashes.
//
// What the child does beyond the calls that are understood (symbolic links,
// writing through shared mappings and others) makes Record fail, so that nothing
// escapes it.
package powerloss
