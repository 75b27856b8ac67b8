package idem

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is what there is to watch of the engine's work in units larger than an event: cheap to count, and with contexts for
// traces.

// ClaimGroupObserver is told when a run begins and when it ends, and gives it its context.
//
// Begin and end are told on one goroutine, once each. The context must be derived from ctx; what the run does, calls of the
// store and handlers included, is under it. What an observer that panics leaves behind is undefined.
type ClaimGroupObserver interface {
	BeginClaimGroup(ctx context.Context, r *ClaimGroup) context.Context
	// EndClaimGroup gets the context that BeginClaimGroup returned.
	EndClaimGroup(ctx context.Context, r *ClaimGroup)
}

// ClaimGroup is the deliveries that are claimed together: their claims share a round trip, and if their handlers are
// transactional a transaction. A delivery that is busy elsewhere, has failed, or is otherwise out of the ordinary is a run by
// itself, one for each try. A Run must not be kept beyond EndClaimGroup.
type ClaimGroup struct {
	Group string
	// Transactional runs share one transaction with their effects.
	Transactional bool
	// Err is why the run came to nothing, when it has ended: the store gave no answer, the transaction was rolled back, or the
	// consumer stops. The failure of a handler under a claim is that of its call, see [Call].
	Err error

	tasks []*task
}

// Len is how many deliveries there are; at least one. Copies of one event within a batch are settled with the first of them and do not
// count.
func (r *ClaimGroup) Len() int {
	return len(r.tasks)
}

func (r *ClaimGroup) task(i int) *task {
	return r.tasks[i]
}

// Message returns delivery i: the record as its producer wrote it, see [Event].Message.
func (r *ClaimGroup) Message(i int) *Message { return r.task(i).message }

// Key returns what the store remembers of delivery i.
func (r *ClaimGroup) Key(i int) dedup.Key { return r.task(i).request.Key }

// CallObserver is told when a call of a handler begins and when it has ended, and gives it its context. Both are told on the
// goroutine of the call, which need not be that of its run. A call that hangs and was left behind ends when it does.
// A panic of an observer here is logged and otherwise ignored: it would be taken for the handler's.
type CallObserver interface {
	BeginCall(ctx context.Context, c *Call) context.Context
	// EndCall gets the context that BeginCall returned.
	EndCall(ctx context.Context, c *Call)
}

// Call is one call of a handler: with one event, or with many ([OnBatch], [OnBatchTx]). It must not be kept beyond EndCall.
type Call struct {
	Group string
	// Type is what the handler was registered for.
	Type string
	// Batch says that the handler takes many events at once.
	Batch bool
	// Transactional says that its effects are in the transaction of the run.
	Transactional bool
	// Began is when.
	Began time.Time
	// Took is how long, once it has ended.
	Took time.Duration
	// Err is what the handler returned: a panic is a [PanicError]; [context.Canceled] and the like say as a rule that it was
	// stopped. Nil is success of the handler; whether its effect stands is for the run to say.
	Err error

	in []input
}

// Len is how many events there are; at least one.
func (c *Call) Len() int { return len(c.in) }

// Message returns the record of event i.
func (c *Call) Message(i int) *Message { return c.in[i].message }

// Key returns what the store remembers of event i.
func (c *Call) Key(i int) dedup.Key { return c.in[i].key }

// Attempt is 1 for the first run of event i.
func (c *Call) Attempt(i int) int { return c.in[i].attempt }

// StoreCallObserver is told of every call of a store.
type StoreCallObserver interface {
	ObserveStoreCall(context.Context, StoreCallEvent)
}

// StoreVerb is what a store was asked for.
type StoreVerb uint8

const (
	// VerbClaim: [dedup.Store].Claim.
	VerbClaim StoreVerb = iota + 1
	// VerbTransaction: claims, handlers and commit in one ([dedup.TxStore]).
	VerbTransaction
	// VerbComplete: [dedup.Store].Complete.
	VerbComplete
	// VerbRelease: [dedup.Store].Release.
	VerbRelease
)

// String names the verb; fit for a metric label.
func (v StoreVerb) String() string {
	switch v {
	case VerbClaim:
		return "claim"
	case VerbTransaction:
		return "transaction"
	case VerbComplete:
		return "complete"
	case VerbRelease:
		return "release"
	}
	return "unknown"
}

// StoreCallEvent is one call.
type StoreCallEvent struct {
	Group string
	Store string // its type, such as "*pgstore.Store"
	Verb  StoreVerb
	Keys  int           // zero for a transaction without a claim, see [Config].Shadow
	Took  time.Duration // of a transaction with its handlers
	// Err: the state of all keys is unknown; of a transaction it may be the handler's error. A claim that was lost is none:
	// see [LostObserver].
	Err error
	// Verdicts counts the answers by verdict, of claims and transactions that were answered. See [StoreCallEvent.Verdict].
	Verdicts [dedup.TooOld + 1]uint32
	// Takeovers counts the claims among them whose earlier holder had died.
	Takeovers int
}

// Verdict returns how many answers were v.
func (e *StoreCallEvent) Verdict(v dedup.Verdict) int {
	if int(v) >= len(e.Verdicts) {
		return 0
	}
	return int(e.Verdicts[v])
}

// note counts the answers.
func (e *StoreCallEvent) note(answers []dedup.Answer) {
	for i := range answers {
		if v := answers[i].Verdict; int(v) < len(e.Verdicts) {
			e.Verdicts[v]++
		}
		if answers[i].Verdict == dedup.Uncertain {
			e.Takeovers++
		}
	}
}

// SettledObserver is told of what was settled: every delivery once for each time it is fetched, whatever came of it. What is
// told is settled in the store, or on the broker, even if its offset is not committed any more. What lies behind an event that
// [Processor.Settle] returns a [WaitError] for may be settled, and is given to it once more: then it is told again, as a duplicate.
type SettledObserver interface {
	ObserveSettled(context.Context, SettledEvent)
}

// Settlement is what settled a delivery.
type Settlement uint8

const (
	// SettledHandled: its handler has succeeded, and the store knows.
	SettledHandled Settlement = iota
	// SettledDuplicate: its event was handled before, or given up, or goes on elsewhere; see [DuplicateObserver].
	SettledDuplicate
	// SettledDeadLetter: it is in the dead-letter topic; see [DeadLetterObserver].
	SettledDeadLetter
	// SettledRescheduled: it waits for a later attempt, in a retry topic or in the store, where it is met again; see [RetryObserver].
	SettledRescheduled
	// SettledSkipped: a tombstone, or of a type that nobody handles; see [SkippedObserver].
	SettledSkipped
	// SettledFallback: it was given to [Router.NotFound].
	SettledFallback

	settlements
)

// String names it; fit for a metric label.
func (s Settlement) String() string {
	names := [...]string{"handled", "duplicate", "dead_letter", "rescheduled", "skipped", "fallback"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// SettledEvent counts deliveries of one partition that were settled one after the other.
type SettledEvent struct {
	Group string
	// Topic and Partition that the consumer fetched from: for a later attempt the retry topic.
	Topic     string
	Partition int32
	// Counts by [Settlement].
	Counts [settlements]int
	// Deferred says that these are no deliveries: they waited in the store ([KeyOrdered]) and were run from there. When they
	// were delivered they counted as [SettledRescheduled].
	Deferred bool
}

// Total is how many there are.
func (e *SettledEvent) Total() (n int) {
	for _, c := range e.Counts {
		n += c
	}
	return n
}

// LostObserver is told of claims that were lost before the end of their event was recorded, be it done, dead or a later attempt: the lease
// was over, somebody else has taken the event over, or a person has. The event is claimed again.
type LostObserver interface {
	ObserveLost(context.Context, LostEvent)
}

// LostEvent is such a claim.
type LostEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
}
