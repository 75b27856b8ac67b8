// Package soak kills workers and cuts their connections while they handle millions of events, on
// every store and every Kafka client. `make soak` runs the long form. The command in report writes
// the outcome into docs/proof.md.
//
// A line is a store, a kind of handler and a client. Each line has a crew of worker processes,
// which are the test binary itself. The connections of a worker to its store lead through a proxy
// of its own. A disturbance is a kill -9 of a worker that works at this moment, or the loss of a
// request or of its answer. In a line with transactions the request is a COMMIT.
//
// IDEM_SOAK=1 selects the long form. IDEM_SEED repeats a seed.
package soak
