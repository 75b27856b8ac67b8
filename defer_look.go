package idem

import (
	"context"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// mayJoin returns the events that may be deferred, in their order. A deferred event is never too old (rule 8), so its age must be
// judged before: an event that is too old goes through the gate instead, where its handler's policy decides. An event that is
// done is settled here, since the store may have forgotten that by the time its queue goes on. All others may join.
func (b *batch) mayJoin(l *deferredPartition, entries []*task) ([]*task, error) {
	answers := make(map[*task]dedup.Answer, len(entries))
	for _, tx := range []bool{false, true} {
		if err := b.lookAt(tx, entries, answers); err != nil {
			return nil, err
		}
	}
	joins := make([]*task, 0, len(entries))
	for _, e := range entries {
		switch a := answers[e]; a.Verdict {
		case dedup.Done:
			e.settled, e.end = true, endDone
			b.p.notifyDuplicate(b.ctx, e, a)
		case dedup.TooOld:
			deferred, err := b.isDeferred(l, e)
			if err != nil {
				return nil, err
			}
			if deferred { // it was deferred in time, and comes again
				joins = append(joins, e)
			}
		default:
			joins = append(joins, e)
		}
	}
	return joins, nil
}

// lookAt asks the store what it knows of events of transactional handlers, or of the others, in one call.
func (b *batch) lookAt(tx bool, entries []*task, answers map[*task]dedup.Answer) error {
	var asked []*task
	for _, e := range entries {
		if (e.tx != nil) == tx {
			asked = append(asked, e)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	of := asked[0].access // the events of one partition have one
	look := of.look(tx)
	if look == nil {
		return nil
	}
	byKey := func(x, y *task) int { return x.request.Key.Compare(y.request.Key) }
	slices.SortStableFunc(asked, byKey)
	first := slices.CompactFunc(slices.Clone(asked), func(x, y *task) bool { return x.request.Key == y.request.Key })
	reqs, got := make([]dedup.Request, len(first)), make([]dedup.Answer, len(first))
	for i, e := range first {
		reqs[i] = e.request
	}
	err := b.p.change(b.ctx, b.budget, of, "look before deferral", func(ctx context.Context) error { return look(ctx, reqs, got) })
	if err != nil {
		return err
	}
	for _, e := range asked {
		i, _ := slices.BinarySearchFunc(first, e, byKey)
		answers[e] = got[i]
	}
	return nil
}

// look returns the store's call that tells what it knows, or nil if it has none.
func (l *storeAccess) look(tx bool) func(context.Context, []dedup.Request, []dedup.Answer) error {
	if tx {
		if looker, ok := l.store.(dedup.TxLooker); ok {
			return looker.LookTx
		}
		return nil
	}
	if looker, ok := l.store.(dedup.Looker); ok {
		return looker.Look
	}
	return nil
}

// isDeferred reports whether an event is deferred already.
func (b *batch) isDeferred(l *deferredPartition, e *task) (deferred bool, err error) {
	err = b.p.change(b.ctx, b.budget, e.access, "look for a deferred event", func(ctx context.Context) (err error) {
		_, _, deferred, err = l.deferrer.FindDeferred(ctx, l.id.Scope, l.id.Topic, e.request.Key)
		return err
	})
	return deferred, err
}
