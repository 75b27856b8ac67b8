package engine

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Policy has the settings that decide about answers of the store and about failures.
type Policy struct {
	Retry     idemtype.RetryPolicy
	Mode      OrderMode
	Delays    []time.Duration // of delayed retries, ascending
	Uncertain idemtype.UncertainPolicy
	Conflict  idemtype.ConflictPolicy
	TooOld    idemtype.TooOldPolicy
}

// OrderMode decides about the events behind a failing one.
type OrderMode uint8

// The order modes, as the options of package idem.
const (
	Blocking   OrderMode = iota // they wait
	Unordered                   // they go on; the failing event gets a copy in a retry topic
	KeyOrdered                  // those of the Kafka key wait in the store, the others go on
)

// failed returns the outcome for the release of a claim after a failure if the next step cannot be
// published.
func (p *Policy) failed() dedup.Outcome {
	if p.atMostOnce() {
		return dedup.Unknown
	}
	return dedup.Failed
}

// uncertainRule describes a policy for uncertain events.
type uncertainRule struct {
	// An event whose effect may have happened becomes a dead letter and never runs again. The claim
	// directly precedes the run, so that a crash gives up no event that never ran.
	atMostOnce bool
}

// uncertainRules has a rule for each policy.
var uncertainRules = [...]uncertainRule{
	idemtype.RerunUncertain:      {},
	idemtype.DeadLetterUncertain: {atMostOnce: true},
}

// atMostOnce reports whether the handler never runs again after a run that may have had its effect.
func (p *Policy) atMostOnce() bool { return uncertainRules[p.Uncertain].atMostOnce }

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
	return problems
}
