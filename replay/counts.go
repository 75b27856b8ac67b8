package replay

import (
	"context"
	"sync"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Counts are the records of a run by their end.
type Counts struct {
	// Handled events ran, and the store has recorded the success.
	Handled int64 `json:"handled"`
	// Duplicates are records of events that the scope has handled, given up or deferred.
	Duplicates int64 `json:"duplicates"`
	// FailedBefore are the duplicates of events that were given up before.
	FailedBefore int64 `json:"failed_before"`
	// Waiting are the duplicates of events that wait for a delayed retry of the live group.
	Waiting int64 `json:"waiting"`
	// Conflicts are copies with another content. Each is a duplicate or a dead letter too.
	Conflicts int64 `json:"conflicts"`
	// DeadLetters are the records that were given up, see [Result].Failed.
	DeadLetters int64 `json:"dead_letters"`
	// Skipped are tombstones, records of types without a handler, and records without an ID.
	Skipped int64 `json:"skipped"`
	// Unprotected records have no ID and ran nevertheless, by RunNoID: they run again in each run.
	Unprotected int64 `json:"unprotected"`
}

// Settled returns the number of settled records.
func (c Counts) Settled() int64 {
	return c.Handled + c.Duplicates + c.DeadLetters + c.Skipped + c.Unprotected
}

// tally counts the settled records of a run. It observes the processor.
type tally struct {
	failures *failures

	mu     sync.Mutex
	counts Counts
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = Counts{}
}

func (t *tally) now() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// ObserveSettled implements [observe.SettledObserver].
func (t *tally) ObserveSettled(_ context.Context, e observe.SettledEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.counts
	for kind, n := range e.Counts {
		n := int64(n)
		switch observe.Settlement(kind) {
		case observe.SettledHandled:
			c.Handled += n
		case observe.SettledDuplicate, observe.SettledRescheduled:
			c.Duplicates += n
		case observe.SettledDeadLetter:
			c.DeadLetters += n
		case observe.SettledSkipped, observe.SettledFallback:
			c.Skipped += n
		case observe.SettledUnprotected:
			c.Unprotected += n
		}
	}
}

// ObserveDuplicate implements [observe.DuplicateObserver].
func (t *tally) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Verdict == dedup.Dead {
		t.counts.FailedBefore++
		t.failures.addEarlier(e.Message, e.Key)
	}
	if e.Verdict == dedup.Rescheduled {
		t.counts.Waiting++
	}
}

// ObserveConflict implements [observe.ConflictObserver].
func (t *tally) ObserveConflict(context.Context, observe.ConflictEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Conflicts++
}
