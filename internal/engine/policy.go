package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// Policy has the settings that decide about answers of the store and about failures.
type Policy struct {
	Retry     idemtype.RetryPolicy
	Mode      OrderMode
	Delays    []time.Duration // of delayed retries, ascending
	Uncertain idemtype.UncertainPolicy
	Conflict  idemtype.ConflictPolicy
	TooOld    idemtype.TooOldPolicy
	NoID      idemtype.NoIDPolicy
	// decides while the store is down
	Unavailable idemtype.UnavailablePolicy
}

// OrderMode decides about the events behind a failing one.
type OrderMode uint8

// The order modes, as the options of package idem.
const (
	Blocking   OrderMode = iota // they wait
	Unordered                   // they go on; the failing event gets a copy in a retry topic
	KeyOrdered                  // those of the Kafka key wait in the store, the others go on
)

// unpublished returns the outcome for the release of a claim if the next step cannot be published. A
// refused event did not run. After a run with NotApplied, a handler at most once may run again.
func (p *Policy) unpublished(o *outcome) dedup.Outcome {
	switch {
	case o.refused:
		return dedup.Unstarted
	case p.atMostOnce() && o.meaning != notApplied && !o.unapplied:
		return dedup.Unknown
	}
	return dedup.Failed
}

// uncertainRule describes a policy for uncertain events.
type uncertainRule struct {
	// An event becomes a dead letter and never runs again if its effect may have happened. The
	// claim directly precedes the run, so that a crash gives up no event that never ran.
	atMostOnce bool
}

// uncertainRules has a rule for each policy.
var uncertainRules = [...]uncertainRule{
	idemtype.RerunUncertain:      {},
	idemtype.DeadLetterUncertain: {atMostOnce: true},
}

// atMostOnce reports whether the handler never runs again after a run that may have had an effect.
// An unknown policy is a mistake of wiring.
func (p *Policy) atMostOnce() bool {
	return int(p.Uncertain) < len(uncertainRules) && uncertainRules[p.Uncertain].atMostOnce
}

// validate returns the unknown values among the policies.
func (p *Policy) validate() (problems []error) {
	if int(p.Uncertain) >= len(uncertainRules) {
		problems = append(problems,
			fmt.Errorf("WhenUncertain: unknown policy %d, use a constant of idem", p.Uncertain))
	}
	if p.Conflict > idemtype.DeadLetterConflict {
		problems = append(problems,
			fmt.Errorf("WhenConflict: unknown policy %d, use a constant of idem", p.Conflict))
	}
	if p.TooOld > idemtype.StopTooOld {
		problems = append(problems,
			fmt.Errorf("WhenTooOld: unknown policy %d, use a constant of idem", p.TooOld))
	}
	if p.NoID > idemtype.RunNoID {
		problems = append(problems,
			fmt.Errorf("WhenNoID: unknown policy %d, use a constant of idem", p.NoID))
	}
	if u := p.Unavailable; u != (idemtype.UnavailablePolicy{}) &&
		(u.RunFor <= 0 || u.MaxEvents <= 0 || u.After < 0) {
		problems = append(problems, errors.New(
			"WhenUnavailable: RunFor and MaxEvents must be positive, and After not negative"))
	}
	return problems
}

// withoutID returns the policy for a record for which the extractor returned no ID. awaited is true
// for a copy that the store waits for. Only a run under the position of that copy ends the wait. An
// error with a mark is no answer. An ID that is there and wrong is a fault of the producer.
func (p *Policy) withoutID(class idemtype.Class, err error, awaited bool) idemtype.NoIDPolicy {
	if class != idemtype.ClassNoID || awaited || mark.Label(err) != "" ||
		!errors.Is(err, idemtype.ErrNotFound) {
		return idemtype.DeadLetterNoID
	}
	return p.NoID
}
