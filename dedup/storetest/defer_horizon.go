package storetest

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// deferAges holds the store's knowledge of the events of a deferWalk beside the queues. The
// store forgets the oldest events one by one. A deferred event stays deferred, and may run at
// any age (rule 8).
type deferAges struct {
	horizon time.Time
	records map[string]dedup.Verdict // by ID: Done, or Fresh after a release
}

// deferEvents is how many events there are, each a minute younger than the one before.
const deferEvents = 12

func madeAt(n int) time.Time { return horizonAt.Add(time.Duration(n) * time.Minute) }

// forget moves the horizon on by a minute and removes the records that are older, as a reaper
// does. A store without a horizon only loses the records.
func (w *deferWalk) forget() {
	w.ages.horizon = w.ages.horizon.Add(time.Minute)
	if !w.h.lacks(horizon) {
		w.h.Horizon(w, w.s, part.Scope, w.ages.horizon)
	}
	o, canForget := w.s.(dedup.Operator)
	for n := range deferEvents {
		id := numbered("e", n)
		if !canForget || w.ages.records[id] == 0 || !madeAt(n).Before(w.ages.horizon) {
			continue
		}
		require.NoError(w, o.Forget(w.ctx, key(id)))
		delete(w.ages.records, id)
	}
}

// claim asks for an event as the engine does for a delivery. For an event that the engine has
// deferred, claim asks at any age. Without Harness.Horizon, the horizon of the store is not known,
// so claim asks at any age too.
func (w *deferWalk) claim() {
	n := w.rng.IntN(deferEvents)
	r := dated(numbered("e", n), madeAt(n))
	r.AnyAge = w.rng.IntN(2) == 0 || w.h.lacks(horizon)
	want := w.ages.records[r.Key.ID]
	switch {
	case want != 0:
	case !r.AnyAge && r.Origin.Time.Before(w.ages.horizon):
		w.meets(dedup.TooOld, r) // and no record is left behind
		return
	default:
		want = dedup.Fresh
	}
	if want == dedup.Done {
		w.meets(want, r)
		return
	}
	_, c := w.get(want, long, r)
	if w.rng.IntN(3) == 0 {
		w.complete(completion(c))
		w.ages.records[r.Key.ID] = dedup.Done
		return
	}
	w.release(release(c, dedup.Unstarted))
	w.ages.records[r.Key.ID] = dedup.Fresh
}
