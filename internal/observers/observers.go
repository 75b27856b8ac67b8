// Package observers sorts observers by their interfaces. Processors and runners share it, so that
// both agree on the observers of a processor.
package observers

import "github.com/idem-go/idem/observe"

// Processor has the observers of a processor, by interface. A new interface of package observe that
// a processor calls gets a field here, and lines in the methods.
type Processor struct {
	Handled     []observe.HandledObserver
	Duplicate   []observe.DuplicateObserver
	DeadLetter  []observe.DeadLetterObserver
	Retry       []observe.RetryObserver
	Skipped     []observe.SkippedObserver
	Claim       []observe.ClaimObserver
	Store       []observe.StoreObserver
	Stall       []observe.StallObserver
	ClaimGroup  []observe.ClaimGroupObserver
	Call        []observe.CallObserver
	StoreCall   []observe.StoreCallObserver
	Settled     []observe.SettledObserver
	Lost        []observe.LostObserver
	Conflict    []observe.ConflictObserver
	Unprotected []observe.UnprotectedObserver
	Breaker     []observe.BreakerObserver
}

// Add adds o under each interface that o implements, and reports whether there is one.
func (p *Processor) Add(o observe.Observer) bool {
	before := p.count()
	p.Handled = Pick(p.Handled, o)
	p.Duplicate = Pick(p.Duplicate, o)
	p.DeadLetter = Pick(p.DeadLetter, o)
	p.Retry = Pick(p.Retry, o)
	p.Skipped = Pick(p.Skipped, o)
	p.Claim = Pick(p.Claim, o)
	p.Store = Pick(p.Store, o)
	p.Stall = Pick(p.Stall, o)
	p.ClaimGroup = Pick(p.ClaimGroup, o)
	p.Call = Pick(p.Call, o)
	p.StoreCall = Pick(p.StoreCall, o)
	p.Settled = Pick(p.Settled, o)
	p.Lost = Pick(p.Lost, o)
	p.Conflict = Pick(p.Conflict, o)
	p.Unprotected = Pick(p.Unprotected, o)
	p.Breaker = Pick(p.Breaker, o)
	return p.count() > before
}

func (p *Processor) count() int {
	return len(p.Handled) + len(p.Duplicate) + len(p.DeadLetter) + len(p.Retry) + len(p.Skipped) +
		len(p.Claim) + len(p.Store) + len(p.Stall) + len(p.ClaimGroup) + len(p.Call) +
		len(p.StoreCall) + len(p.Settled) + len(p.Lost) + len(p.Conflict) + len(p.Unprotected) +
		len(p.Breaker)
}

// Pick returns list with o, if o implements O.
func Pick[O any](list []O, o observe.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}
