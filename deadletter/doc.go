// Package deadletter reads and writes the records that Idem makes of an event: dead letters, and
// copies in retry topics. A dead letter is the original record, byte for byte, with added headers.
//
// A program that consumes a dead-letter topic calls [Parse].
//
// The headers describe an event and grant no run: only the store decides which copy of an event may
// run.
package deadletter
