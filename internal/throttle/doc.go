// Package throttle bounds the runs of one handler in one process: concurrency, rate and retries. It
// also bounds the events claimed ahead of their runs, and the events that share a transaction. All
// types are safe for concurrent use.
package throttle
