// Package throttle bounds how often and how many events of one handler run in one process: its
// concurrency and rate, its retries, the events claimed ahead of their runs, and the events that
// share a transaction. All types are safe for concurrent use.
package throttle
