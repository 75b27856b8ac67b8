package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/idem-go/idem/observe"
)

// stats counts the outcomes of deliveries.
type stats struct {
	handled     atomic.Int64 // committed runs
	failed      atomic.Int64 // runs that were not committed
	duplicates  atomic.Int64 // deliveries of known payments
	redelivered atomic.Int64 // duplicates that are the very record that was handled
	deadLetters atomic.Int64
	assignments atomic.Int64 // partitions assigned to this worker
}

// ObserveClaim counts committed runs. A commit may still fail after a handler has succeeded.
func (s *stats) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	if e.Verdict.Held() {
		if e.Err != nil {
			s.failed.Add(1)
			return
		}
		s.handled.Add(1)
	}
}

// ObserveDuplicate counts duplicates, and separately those that Kafka redelivered.
func (s *stats) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	s.duplicates.Add(1)
	if e.SameRecord {
		s.redelivered.Add(1)
	}
}

// ObserveDeadLetter counts dead letters.
func (s *stats) ObserveDeadLetter(context.Context, observe.DeadLetterEvent) { s.deadLetters.Add(1) }

// ObserveRebalance counts assignments of partitions to this worker.
func (s *stats) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) {
	if e.Kind == observe.Assigned {
		s.assignments.Add(1)
	}
}

// LogValue returns the counts as log attributes.
func (s *stats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("handled", s.handled.Load()),
		slog.Int64("failed", s.failed.Load()),
		slog.Int64("duplicates", s.duplicates.Load()),
		slog.Int64("redelivered", s.redelivered.Load()),
		slog.Int64("dead_letters", s.deadLetters.Load()),
		slog.Int64("assignments", s.assignments.Load()),
	)
}
