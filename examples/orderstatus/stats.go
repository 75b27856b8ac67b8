package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/idem-go/idem"
)

// stats counts what happens to the deliveries.
type stats struct {
	handled     atomic.Int64 // runs that were committed
	failed      atomic.Int64 // runs that were not
	duplicates  atomic.Int64 // deliveries of payments that were known
	redelivered atomic.Int64 // those among them that are the very record that was handled
	deadLetters atomic.Int64
	assignments atomic.Int64 // how often partitions came
}

// ObserveClaim counts what was committed: the handler's own success may still be refused by the commit.
func (s *stats) ObserveClaim(_ context.Context, e idem.ClaimEvent) {
	if e.Verdict.Held() {
		if e.Err != nil {
			s.failed.Add(1)
			return
		}
		s.handled.Add(1)
	}
}

// ObserveDuplicate counts copies, and tells those apart that Kafka made.
func (s *stats) ObserveDuplicate(_ context.Context, e idem.DuplicateEvent) {
	s.duplicates.Add(1)
	if e.SameRecord {
		s.redelivered.Add(1)
	}
}

// ObserveDeadLetter counts what was given up.
func (s *stats) ObserveDeadLetter(context.Context, idem.DeadLetterEvent) { s.deadLetters.Add(1) }

// ObserveRebalance counts how often partitions came to this worker.
func (s *stats) ObserveRebalance(_ context.Context, e idem.RebalanceEvent) {
	if e.Kind == idem.Assigned {
		s.assignments.Add(1)
	}
}

// LogValue shows the counts.
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
