// Package observe has the events that Idem reports while it works, and the interfaces of observers.
//
// An observer is any value that implements one or more of the interfaces. Pass observers in
// Config.Observers of package idem or of package consumer; package otelidem has one for metrics and
// traces. Observers are called on the path of an event, from several goroutines at the same time. A
// method must be quick and must not block.
//
// A processor reports runs, answers of the store, settlements, retries and dead letters. A consumer
// also reports rebalances, commits and the progress of partitions. A consumer on another Kafka
// client can report them with the same types.
//
// Every event names its consumer group.
package observe

// Observer is any value that implements at least one of the interfaces of this package.
type Observer any
