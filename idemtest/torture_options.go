package idemtest

import (
	"github.com/idem-go/idem/dedup"
)

// TortureOption changes a call of [Torture].
type TortureOption func(*search)

// Records are the records of each run. A run handles them in order; records with different keys are
// in different partitions.
func Records(list ...Record) TortureOption {
	return func(o *search) { o.records = append(o.records, list...) }
}

// TxStore names the store of each run, for handlers with transactions of the type Tx. The store is
// that of the database of the effects, so it belongs to the world. It must work without a network,
// as one in SQLite does.
func TxStore[W, Tx any](of func(W) dedup.TxStore[Tx]) TortureOption {
	return func(o *search) {
		o.again.options = append(o.again.options, "idemtest.TxStore("+o.again.function("txStore", of)+")")
		o.store = func(world any) opener {
			s := of(world.(W))
			return func(p *process) dedup.Store { return gateTx[Tx]{gate: gate{s, p}, store: s} }
		}
	}
}

// Only runs one schedule, from the output of an earlier run. The test fails if a fault of the
// schedule cannot happen, for example since the handler now has fewer steps.
func Only(schedule string) TortureOption { return func(o *search) { o.only = schedule } }

// Seed sets the seed of the schedules with two faults. The default is a new one. The report and the
// log have it.
func Seed(seed uint64) TortureOption { return func(o *search) { o.seed = seed } }

// Pairs sets how many schedules with two faults are drawn. The default is 300. A schedule that is
// drawn again does not run again.
func Pairs(n int) TortureOption { return func(o *search) { o.pairs = n } }

// AcceptRepeats accepts that the named calls of [Faults.Call] have their effect more often than
// without faults, because the handler has no idempotency key. On allows that: between the effect
// and the completion lies a window. Without the option such a repetition fails the test, if the
// state or an answer differs.
//
// The state of a run with an accepted repetition is not compared further, nor are its answers. The
// test still fails if another call for an event has its effect less often than without faults. For
// batch handlers, which have no event, that is not compared.
func AcceptRepeats(what ...string) TortureOption {
	return func(o *search) { o.accept = append(o.accept, what...) }
}

// AcceptUnknown accepts that a call or a request ends with the answer that its outcome is unknown:
// [dedup.ErrUnknownOutcome], or 409 unknown_outcome of package httpidem. A process that dies while
// its function runs leaves that answer, unless the guard or the middleware has Rerun. Torture of
// handlers has no such answer.
//
// The effect may have happened or not, so the state of such a run is not compared. No call of
// [Faults.Call] may have its effect more often than without faults then, unless [AcceptRepeats]
// names the call.
func AcceptUnknown() TortureOption { return func(o *search) { o.acceptUnknown = true } }

// AcceptDeadLetters accepts that a fault makes a dead letter of an event that is handled without
// faults. So it is with [idem.DeadLetterUncertain] after a crash. Without the option this fails the
// test. A missing dead letter fails the test in any case.
//
// The effect may have happened or not, so the state of a run with such a dead letter is not
// compared. No call of [Faults.Call] may have its effect more often than without faults then,
// unless [AcceptRepeats] names the call. [TortureDo] and [TortureHTTP] have no dead letters.
func AcceptDeadLetters() TortureOption { return func(o *search) { o.acceptDead = true } }

// Guard sets the configuration of the guards of [TortureDo]. The default is the zero value. A lease
// of more than an hour fails the test.
func Guard(cfg dedup.GuardConfig) TortureOption { return func(o *search) { o.guard = cfg } }
