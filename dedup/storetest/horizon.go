package storetest

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// horizonTests cover the answers about times that the store has forgotten (rule 8).
var horizonTests = []test{
	{name: "horizon: what is older and not known is TooOld (rule 8)", needs: horizon,
		run: horizonUnknown},
	{name: "horizon: what is known is answered as ever (rule 8)", needs: horizon,
		run: horizonKnown},
	{name: "horizon: each request of a call is judged alone (rule 8)", needs: horizon,
		run: horizonBatch},
}

// The horizon of the tests, the time of a record before the horizon, and the time of a record at
// the horizon.
var (
	horizonAt = time.UnixMilli(1_700_000_000_000).UTC()
	before    = horizonAt.Add(-time.Millisecond)
)

func dated(id string, at time.Time) dedup.Request {
	r := request(id)
	r.Origin.Time = at
	return r
}

// unjudged returns requests for the unknown that are never too old, by their IDs ascending.
func unjudged() []dedup.Request {
	at, none := dated("at the horizon", horizonAt), dated("no time", time.Time{})
	later := dated("a later attempt", before)
	later.Position.Retry = 1
	redriven := dated("redriven", before)
	redriven.Position.Generation = 1
	anyAge := dated("any age", before)
	anyAge.AnyAge = true
	other := dated("other scope", before)
	other.Key.Scope += "2"
	return sorted([]dedup.Request{at, none, later, redriven, anyAge, other})
}

func horizonUnknown(k *kit) {
	k.meets(dedup.Fresh, dated("before there was one", before))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	for range 2 { // the answer leaves no record behind
		k.meets(dedup.TooOld, dated("old", before))
		k.meets(dedup.TooOld, dated("older", time.UnixMilli(1)))
	}
	for _, r := range unjudged() {
		k.meets(dedup.Fresh, r)
	}
	r := dated("old", before)
	r.AnyAge = true
	_, c := k.get(dedup.Fresh, long, r)
	k.complete(completion(c))
	k.meets(dedup.Done, dated("old", before))
}

func horizonKnown(k *kit) {
	_, done := k.get(dedup.Fresh, long, dated("done", before))
	k.complete(completion(done))
	_, killed := k.get(dedup.Fresh, long, dated("dead", before))
	k.complete(dead(killed, "poison"))
	_, waits := k.get(dedup.Fresh, long, dated("moved", before))
	k.complete(moved(waits, 1))
	_, back := k.get(dedup.Fresh, long, dated("released", before))
	k.release(release(back, dedup.Failed))
	k.get(dedup.Fresh, long, dated("claimed", before))
	t := dedup.NewToken()
	k.try(k.s, t, long, dated("repeated", before))

	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	k.meets(dedup.Done, dated("done", before))
	k.meets(dedup.Dead, dated("dead", before))
	k.meets(dedup.Rescheduled, dated("moved", before))
	k.meets(dedup.Busy, dated("claimed", before))
	a, _ := k.get(dedup.Fresh, long, dated("released", before))
	require.EqualValues(k, 1, a.Failures)
	require.Equal(k, dedup.Fresh, k.try(k.s, t, long, dated("repeated", before)).Verdict)
}

func horizonBatch(k *kit) {
	_, c := k.get(dedup.Fresh, long, dated("done", before))
	k.complete(completion(c))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	reqs, want := horizonGroup()
	answers := stale(len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i, r := range reqs {
		require.Equal(k, want[r.Key.ID].String(), answers[i].Verdict.String(), r.Key.ID)
	}
}

// horizonGroup returns requests of all kinds, and the answer to each if "done" is done.
func horizonGroup() ([]dedup.Request, map[string]dedup.Verdict) {
	want := map[string]dedup.Verdict{"done": dedup.Done, "old": dedup.TooOld,
		"very old": dedup.TooOld}
	reqs := []dedup.Request{dated("done", before), dated("old", before),
		dated("very old", time.UnixMilli(1))}
	for _, r := range unjudged() {
		reqs, want[r.Key.ID] = append(reqs, r), dedup.Fresh
	}
	return sorted(reqs), want
}

// txHorizonTests cover the same for events remembered in the transaction of the effects.
func txHorizonTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: horizon: what is older and not known is TooOld (rule 8)", needs: horizon,
			run: txHorizonUnknown[Tx]},
		{name: "tx: horizon: each request of a call is judged alone (rule 8)", needs: horizon,
			run: txHorizonGroup[Tx]},
	}
}

func txHorizonUnknown[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, dated("done", before), k.effect("done"))
	r := dated("moved", before)
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 1)
	}))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	for range 2 {
		k.meets(dedup.TooOld, dated("old", before))
	}
	k.meets(dedup.Done, dated("done", before))
	k.meets(dedup.Rescheduled, r)
	r.Position.Retry = 1
	k.one(dedup.Fresh, r, k.effect("later"))
	for _, r := range unjudged() {
		k.one(dedup.Fresh, r, k.effect(r.Key.ID))
		k.count(1, r.Key.ID)
	}
	old := dated("old", before)
	old.AnyAge = true
	k.one(dedup.Fresh, old, k.effect("old"))
	k.meets(dedup.Done, dated("old", before))
}

func txHorizonGroup[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, dated("done", before), k.effect("done"))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	reqs, want := horizonGroup()
	answers, err := k.call(reqs, k.effect("group"))
	require.NoError(k, err)
	for i, r := range reqs {
		require.Equal(k, want[r.Key.ID].String(), answers[i].Verdict.String(), r.Key.ID)
	}
	k.count(1, "group")
	all := []dedup.Request{dated("old", before), dated("very old", before)}
	answers, err = k.call(all, k.fails(errNotExpected))
	require.NoError(k, err)
	require.Equal(k, dedup.TooOld, answers[0].Verdict)
	require.Equal(k, dedup.TooOld, answers[1].Verdict)
}
