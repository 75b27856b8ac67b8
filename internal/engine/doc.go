// Package engine settles messages for package idem, which documents its behaviour.
//
// A batch resolves its messages to tasks and forms groups of neighbouring tasks. A group claims its
// events in the store, calls the handlers of new events, and settles all the tasks. A single event
// is a group of one. docs/architecture.md has the path of a record, by file and function.
//
// # Claimed and transactional groups
//
// Two functions run groups: runClaimed and runInTx. They share everything before the claim and
// after a result: group, verdict, classify, decide, finish. Between the two, a transaction is one
// call of ClaimTx: the store claims, calls the handlers and commits. So a transactional group
// settles its events at the commit and returns no single claim. After a failure the group is taken
// apart.
//
// One loop over both would need a store contract with begin and commit. A sketch of that loop was a
// third shorter and half a microsecond faster per event. Every TxStore, also those of users, would
// change for that.
//
// # Decisions
//
// The functions classify, verdict and decide are pure, with one table test each. The first decides
// the meaning of an error, the second that of an answer of the store, and the third the next step
// of an event. Only finish carries a step out.
package engine
