package storetest

import (
	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txOperatorTests cover the operations of a person on the records of ClaimTx.
func txOperatorTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: inspect tells the record of a transaction", needs: Reopen, run: txInspect[Tx]},
		{name: "tx: inspect and forget find the records of both ways", needs: Reopen,
			run: txBothWays[Tx]},
		{name: "tx: forget, in every state, copies are Fresh again", needs: Reopen,
			run: txForget[Tx]},
		{name: "tx: discard, in every state, copies are Dead", needs: Reopen, run: txDiscard[Tx]},
		{name: "tx: discard, a handled event is refused", needs: Reopen, run: txDiscardDone[Tx]},
		{name: "tx: import is Done from then on", needs: Reopen, run: txImport[Tx]},
		{name: "tx: import leaves known events as they are", needs: Reopen,
			run: txImportKnown[Tx]},
	}
}

// everyState makes an event in each state that a transaction leaves behind. The ID names the state.
func (k *txKit[Tx]) everyState() map[string]dedup.State {
	k.Helper()
	k.one(dedup.Fresh, request("done"), k.effect("done"))
	k.killed(request("dead"))
	r := request("moved")
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 2)
	}))
	return map[string]dedup.State{"done": dedup.Finished, "dead": dedup.GivenUp,
		"moved": dedup.Waiting}
}

// sees requires the only record of an event to be one of a transaction, in that state.
func (k *txKit[Tx]) sees(s dedup.State, id string) dedup.Record {
	k.Helper()
	all, err := k.reopener().Inspect(k.ctx, key("unknown"), key(id))
	require.NoError(k, err)
	require.Len(k, all, 1, "records of %q", id)
	require.Equal(k, key(id), all[0].Key)
	require.True(k, all[0].Tx, "%q: a record of a transaction", id)
	require.Equal(k, s.String(), all[0].State.String(), id)
	return all[0]
}

func txInspect[Tx any](k *txKit[Tx]) {
	for id, s := range k.everyState() {
		r := k.sees(s, id)
		sameOrigin(k, request(id).Origin, r.First)
		require.Equal(k, s == dedup.Finished, r.Settled())
		require.False(k, r.Discarded())
	}
	require.Equal(k, "poison", k.sees(dedup.GivenUp, "dead").Reason)
	require.Equal(k, dedup.Position{Retry: 2}, k.sees(dedup.Waiting, "moved").Position)
}

// txBothWays: A handler was made transactional, so an event may have a record of each way.
func txBothWays[Tx any](k *txKit[Tx]) {
	k.killed(request("e"))
	var a [1]dedup.Answer
	t, r := dedup.NewToken(), request("e")
	require.NoError(k, k.s.Claim(k.ctx, t, long, []dedup.Request{r}, a[:]))
	require.Equal(k, dedup.Fresh, a[0].Verdict, "the records of the two ways are apart")
	claim := r.Held(t, a[0])
	require.NoError(k, k.s.Complete(k.ctx, []dedup.Completion{completion(claim)}))
	all, err := k.reopener().Inspect(k.ctx, r.Key)
	require.NoError(k, err)
	states := make(map[bool]dedup.State)
	for _, r := range all {
		states[r.Tx] = r.State
	}
	require.Len(k, all, 2)
	require.Equal(k, map[bool]dedup.State{false: dedup.Finished, true: dedup.GivenUp}, states)
	require.NoError(k, k.reopener().Forget(k.ctx, r.Key))
	all, err = k.reopener().Inspect(k.ctx, r.Key)
	require.NoError(k, err)
	require.Empty(k, all)
	k.unmarked(r)
}

func txForget[Tx any](k *txKit[Tx]) {
	for id := range k.everyState() {
		require.NoError(k, k.reopener().Forget(k.ctx, key(id)), id)
		require.ErrorIs(k, k.reopener().Forget(k.ctx, key(id)), dedup.ErrNotFound, id)
		k.unmarked(request(id))
	}
}

// discards gives an event up, and requires that every copy is Dead with the reason.
func (k *txKit[Tx]) discards(id, why string) {
	k.Helper()
	require.NoError(k, k.reopener().Discard(k.ctx, key(id), retention, why), id)
	for _, p := range anyPosition {
		a := k.meets(dedup.Dead, at(id, p.Generation, p.Retry))
		require.Equal(k, dedup.ReasonDiscarded+why, a.Reason, id)
	}
}

func txDiscard[Tx any](k *txKit[Tx]) {
	for id := range k.everyState() {
		if id == "done" {
			continue
		}
		for _, why := range []string{"enough", "enough", "a better reason"} {
			k.discards(id, why)
		}
		require.True(k, k.sees(dedup.GivenUp, id).Discarded(), id)
	}
	k.discards("unknown", "known to be poison")
	p, err := k.reopener().Reopen(k.ctx, key("moved"))
	require.NoError(k, err)
	require.Equal(k, dedup.Position{Generation: 1}, p)
	k.meets(dedup.Rescheduled, request("moved"))
	k.one(dedup.Fresh, at("moved", 1, 0), k.effect("after all"))
	k.count(1, "after all")
}

func txDiscardDone[Tx any](k *txKit[Tx]) {
	k.everyState()
	for range 2 {
		require.ErrorIs(k, k.reopener().Discard(k.ctx, key("done"), retention, "too late"),
			dedup.ErrSettled)
	}
	k.sees(dedup.Finished, "done")
	k.meets(dedup.Done, request("done"))
}

func (k *txKit[Tx]) imports(added int, events ...dedup.Imported) {
	k.Helper()
	n, err := k.reopener().Import(k.ctx, events)
	require.NoError(k, err)
	require.Equal(k, added, n, "new events")
}

func txImport[Tx any](k *txKit[Tx]) {
	events := []dedup.Imported{
		{Key: key("b"), Origin: origin(1, 2), Retention: retention, Tx: true},
		{Key: key("claimed"), Retention: retention},
		{Key: key("a"), Retention: retention, Tx: true},
	}
	k.imports(3, events...)
	k.imports(0, events...)
	for _, id := range []string{"a", "b"} {
		require.True(k, k.sees(dedup.Finished, id).Settled())
		for _, p := range anyPosition {
			k.meets(dedup.Done, at(id, p.Generation, p.Retry))
		}
	}
	sameOrigin(k, origin(1, 2), k.meets(dedup.Done, request("b")).First)
	all, err := k.reopener().Inspect(k.ctx, key("claimed"))
	require.NoError(k, err)
	require.Len(k, all, 1)
	require.False(k, all[0].Tx, "a record of a claim")
}

func txImportKnown[Tx any](k *txKit[Tx]) {
	states := k.everyState()
	events := []dedup.Imported{{Key: key("new"), Retention: retention, Tx: true}}
	for id := range states {
		events = append(events, dedup.Imported{Key: key(id), Origin: origin(9, 9),
			Retention: retention, Tx: true})
	}
	k.imports(1, events...)
	for id, s := range states {
		require.False(k, k.sees(s, id).First.Same(origin(9, 9)), id)
	}
	require.Equal(k, "poison", k.meets(dedup.Dead, request("dead")).Reason)
	k.meets(dedup.Rescheduled, request("moved"))
}
