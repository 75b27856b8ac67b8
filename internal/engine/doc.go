// Package engine settles messages for package idem, which documents its behaviour.
//
// A batch resolves its messages to tasks and forms groups of neighbouring tasks. A group claims its
// events in the store, calls the handlers of new events, and settles all the tasks. A single event
// is a group of one. docs/architecture.md has the path of a record, by file and function.
//
// classify, verdict and decide are pure functions with one table test each. They decide the meaning
// of an error, of an answer of the store, and the next step of an event. Only finish carries a step
// out.
package engine
