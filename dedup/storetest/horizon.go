package storetest

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// horizonTests cover the answers about times that the store has forgotten (rule 8).
var horizonTests = []testCase{
	{name: "horizon: an older unknown event is TooOld (rule 8)", needs: horizon,
		run: horizonUnknown},
	{name: "horizon: known events are answered as before (rule 8)", needs: horizon,
		run: horizonKnown},
	{name: "horizon: each request of a call is judged alone (rule 8)", needs: horizon,
		run: horizonBatch},
}

// unjudged returns requests for the unknown that are never too old, by their IDs ascending.
func unjudged() []dedup.Request {
	at, none := dated("at the horizon", horizonAt), dated("no time", time.Time{})
	later := dated("a later attempt", beforeHorizon)
	later.Position.Retry = 1
	redriven := dated("redriven", beforeHorizon)
	redriven.Position.Generation = 1
	anyAge := dated("any age", beforeHorizon)
	anyAge.AnyAge = true
	other := dated("other scope", beforeHorizon)
	other.Key.Scope += "2"
	return sorted([]dedup.Request{at, none, later, redriven, anyAge, other})
}

func horizonUnknown(k *kit) {
	k.meets(dedup.Fresh, dated("before there was one", beforeHorizon))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	for range 2 { // the answer leaves no record behind
		k.meets(dedup.TooOld, dated("old", beforeHorizon))
		k.meets(dedup.TooOld, dated("older", time.UnixMilli(1)))
	}
	for _, r := range unjudged() {
		k.meets(dedup.Fresh, r)
	}
	r := dated("old", beforeHorizon)
	r.AnyAge = true
	_, c := k.get(dedup.Fresh, long, r)
	k.complete(completion(c))
	k.meets(dedup.Done, dated("old", beforeHorizon))
}

func horizonKnown(k *kit) {
	_, done := k.get(dedup.Fresh, long, dated("done", beforeHorizon))
	k.complete(completion(done))
	_, killed := k.get(dedup.Fresh, long, dated("dead", beforeHorizon))
	k.complete(dead(killed, "poison"))
	_, waits := k.get(dedup.Fresh, long, dated("moved", beforeHorizon))
	k.complete(moved(waits, 1))
	_, back := k.get(dedup.Fresh, long, dated("released", beforeHorizon))
	k.release(release(back, dedup.Failed))
	k.get(dedup.Fresh, long, dated("claimed", beforeHorizon))
	t := dedup.NewToken()
	k.try(k.s, t, long, dated("repeated", beforeHorizon))

	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	k.meets(dedup.Done, dated("done", beforeHorizon))
	k.meets(dedup.Dead, dated("dead", beforeHorizon))
	k.meets(dedup.Rescheduled, dated("moved", beforeHorizon))
	k.meets(dedup.Busy, dated("claimed", beforeHorizon))
	a, _ := k.get(dedup.Fresh, long, dated("released", beforeHorizon))
	require.EqualValues(k, 1, a.Failures)
	require.Equal(k, dedup.Fresh, k.try(k.s, t, long, dated("repeated", beforeHorizon)).Verdict)
}

func horizonBatch(k *kit) {
	_, c := k.get(dedup.Fresh, long, dated("done", beforeHorizon))
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
	reqs := []dedup.Request{dated("done", beforeHorizon), dated("old", beforeHorizon),
		dated("very old", time.UnixMilli(1))}
	for _, r := range unjudged() {
		reqs, want[r.Key.ID] = append(reqs, r), dedup.Fresh
	}
	return sorted(reqs), want
}
