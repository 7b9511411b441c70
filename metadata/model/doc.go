// Package model explores the shared log exhaustively, within bounds, to see
// whether any order of events loses or forks acknowledged records. It drives
// the real metadata.Apply with a model of everything around it: a store, broker
// processes, a controller, sealers, a sweeper, a reader and one idempotent
// producer on two streams. It is a test that happens to be a program; nothing
// of the product imports it.
//
// A state is a small value without pointers. A step is one atomic event: an
// append, a PUT that lands, a command that is applied, and so on. A process
// that is paused or dead is one that makes no more steps, so nothing is
// modelled for it. Explore visits every state that a Config allows, breadth
// first, and checks every property in each; Walk makes random runs in larger
// bounds. A Mutation leaves out one rule: the properties must then fail, which
// shows that they see something. See DESIGN.md for what is abstracted, and why
// that is sound.
//
// Explore and Walk use one goroutine and no clock but for the time they report;
// several may run at once.
package model
