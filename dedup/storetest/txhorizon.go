package storetest

import (
	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txHorizonTests cover the same for events remembered in the transaction of the effects.
func txHorizonTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: horizon: an older unknown event is TooOld (rule 8)", needs: horizon,
			run: txHorizonUnknown[Tx]},
		{name: "tx: horizon: each request of a call is judged alone (rule 8)", needs: horizon,
			run: txHorizonGroup[Tx]},
	}
}

func txHorizonUnknown[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, dated("done", beforeHorizon), k.effect("done"))
	r := dated("moved", beforeHorizon)
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 1)
	}))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	for range 2 {
		k.meets(dedup.TooOld, dated("old", beforeHorizon))
	}
	k.meets(dedup.Done, dated("done", beforeHorizon))
	k.meets(dedup.Rescheduled, r)
	r.Position.Retry = 1
	k.one(dedup.Fresh, r, k.effect("later"))
	for _, r := range unjudged() {
		k.one(dedup.Fresh, r, k.effect(r.Key.ID))
		k.count(1, r.Key.ID)
	}
	old := dated("old", beforeHorizon)
	old.AnyAge = true
	k.one(dedup.Fresh, old, k.effect("old"))
	k.meets(dedup.Done, dated("old", beforeHorizon))
}

func txHorizonGroup[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, dated("done", beforeHorizon), k.effect("done"))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	reqs, want := horizonGroup()
	answers, err := k.call(reqs, k.effect("group"))
	require.NoError(k, err)
	for i, r := range reqs {
		require.Equal(k, want[r.Key.ID].String(), answers[i].Verdict.String(), r.Key.ID)
	}
	k.count(1, "group")
	all := []dedup.Request{dated("old", beforeHorizon), dated("very old", beforeHorizon)}
	answers, err = k.call(all, k.fails(errNotExpected))
	require.NoError(k, err)
	require.Equal(k, dedup.TooOld, answers[0].Verdict)
	require.Equal(k, dedup.TooOld, answers[1].Verdict)
}
