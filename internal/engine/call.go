package engine

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// call is one call of a handler, with one event or, for a batch handler, several.
type handlerCall struct {
	route *bound
	tasks []*task
	held  *dedup.HeldClaims // nil for a transactional handler
}

// outcomes has the outcome of each event of one call of a handler.
type outcomes struct {
	all   outcome
	many  bool              // the call was about more than one event
	named map[*task]outcome // of the events that a BatchError names; the others have succeeded
}

func newOutcomes(ctx context.Context, all outcome, tasks []*task) outcomes {
	named := namedIn(all.err, len(tasks))
	if named == nil || all.meaning == abandoned {
		return outcomes{all: all, many: len(tasks) > 1}
	}
	o := outcomes{many: len(tasks) > 1, named: make(map[*task]outcome, len(named))}
	cause := context.Cause(ctx)
	if all.class == idemtype.ClassTimeout { // of a context that has ended with the run
		cause = idemtype.ErrHandlerTimeout
	}
	for i, err := range named {
		if err != nil {
			o.named[tasks[i]] = classify(cause, err)
		}
	}
	return o
}

func (o *outcomes) of(t *task) outcome {
	if o.named == nil {
		return o.all
	}
	return o.named[t] // succeeded if it is not there
}

// split separates the events that succeeded from the others.
func (o *outcomes) split(tasks []*task) (good, bad []*task) {
	if o.named == nil && o.all.meaning == succeeded {
		return tasks, nil
	}
	for _, t := range tasks {
		if o.of(t).meaning == succeeded {
			good = append(good, t)
		} else {
			bad = append(bad, t)
		}
	}
	return good, bad
}

// completions returns the completions for a successful call.
func completions(tasks []*task) []dedup.Completion {
	done := make([]dedup.Completion, len(tasks))
	for i, t := range tasks {
		done[i] = dedup.Completion{Claim: t.claim, Retention: t.route.Retention}
	}
	return done
}

func (c *handlerCall) completions() []dedup.Completion { return completions(c.tasks) }

func noClaims() []dedup.Completion { return nil }

func (t *task) completions() []dedup.Completion {
	if !t.claimed || t.claim.Key.ID == "" {
		return nil
	}
	return []dedup.Completion{{Claim: t.claim, Retention: t.route.Retention}}
}
