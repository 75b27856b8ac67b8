package engine

import (
	"context"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// mayJoin returns the events that may be deferred, in their order.
//
// A deferred event is never too old (rule 8), so its age is judged here. An event that is too old
// is claimed instead, and the policy of the handler decides. An event that was dead before is
// claimed too: in the queue such an event would block those behind it. An event that is done is
// settled here: when the queue goes on, the store may have deleted the record. All others may be
// deferred.
func (p *Processor) mayJoin(
	ctx context.Context, part *deferredPartition, tasks []*task,
) ([]*task, error) {
	answers := make(map[*task]dedup.Answer, len(tasks))
	for _, tx := range []bool{false, true} {
		if err := p.lookAt(ctx, tx, tasks, answers); err != nil {
			return nil, err
		}
	}
	joins := make([]*task, 0, len(tasks))
	for _, t := range tasks {
		switch a := answers[t]; a.Verdict {
		case dedup.Done:
			t.settled, t.ending = true, endDone
			p.notifyDuplicate(ctx, t, a)
		case dedup.TooOld, dedup.Dead:
			deferred, err := p.isDeferred(ctx, part, t)
			if err != nil {
				return nil, err
			}
			if deferred { // the event comes again, and keeps its place in the queue
				joins = append(joins, t)
			}
		default:
			joins = append(joins, t)
		}
	}
	return joins, nil
}

// lookAt asks the store for the state of events, in one call. tx chooses the events of
// transactional handlers, or those of the others.
func (p *Processor) lookAt(
	ctx context.Context, tx bool, tasks []*task, answers map[*task]dedup.Answer,
) error {
	var asked []*task
	for _, t := range tasks {
		if (t.tx != nil) == tx {
			asked = append(asked, t)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	access := asked[0].access // the events of one partition share a store
	look := access.look(tx)
	if look == nil {
		return nil
	}
	byKey := func(x, y *task) int { return x.request.Key.Compare(y.request.Key) }
	slices.SortStableFunc(asked, byKey)
	first := slices.CompactFunc(
		slices.Clone(asked), func(x, y *task) bool { return x.request.Key == y.request.Key },
	)
	reqs, got := make([]dedup.Request, len(first)), make([]dedup.Answer, len(first))
	for i, t := range first {
		reqs[i] = t.request
	}
	err := access.repeatLook(
		ctx, asked[0].budget, "look before deferral",
		func(ctx context.Context) error { return look(ctx, reqs, got) },
	)
	if err != nil {
		return err
	}
	for _, t := range asked {
		i, _ := slices.BinarySearchFunc(first, t, byKey)
		answers[t] = got[i]
	}
	return nil
}

func (p *Processor) isDeferred(
	ctx context.Context, part *deferredPartition, t *task,
) (deferred bool, err error) {
	err = t.access.repeatLook(
		ctx,
		t.budget,
		"look for a deferred event",
		func(ctx context.Context) (err error) {
			_, _, deferred, err = part.deferrer.FindDeferred(
				ctx, part.id.Scope, part.id.Topic, t.request.Key,
			)
			return err
		},
	)
	return deferred, err
}
