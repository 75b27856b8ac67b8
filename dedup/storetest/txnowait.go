package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txNoWaitTests cover requests that are not to wait for the transaction that holds their key (rule
// 20).
func txNoWaitTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: NoWait, Busy at once while another NoWait call holds the key (rule 20)",
			needs: TxParallel, run: txNoWaitTwin[Tx]},
		{name: "tx: NoWait, Busy at once while a waiting call holds the key (rule 20)",
			run: txNoWaitOther[Tx]},
		{name: "tx: NoWait, Busy at once for a row that waits for this copy (rule 20)",
			run: txNoWaitRow[Tx]},
		{name: "tx: NoWait, many at once leave room for others (rule 20)", needs: TxParallel,
			alone: true,
			run:   txNoWaitMany[Tx]},
		{name: "tx: NoWait, a race has one winner (rule 20)", run: txNoWaitRace[Tx]},
		{name: "tx: NoWait answers as usual if no call holds the key",
			run: txNoWaitVerdicts[Tx]},
		{name: "tx: NoWait, an error and a panic let the key go", run: txNoWaitError[Tx]},
		{name: "tx: NoWait is nothing to a group", run: txNoWaitGroup[Tx]},
	}
}

func noWait(r dedup.Request) dedup.Request {
	r.NoWait = true
	return r
}

// atOnce is shorter than the shortest wait of a store for a transaction.
const atOnce = time.Second

// busyAtOnce requires Busy without waiting. The machine may be slow once: of three times the
// shortest counts.
func (k *txKit[Tx]) busyAtOnce(r dedup.Request) {
	k.Helper()
	least := time.Hour
	for range 3 {
		began := time.Now()
		a := k.meets(dedup.Busy, noWait(r))
		require.Equal(k, dedup.Answer{Verdict: dedup.Busy}, a)
		least = min(least, time.Since(began))
	}
	require.Less(k, least, atOnce, "NoWait has waited")
}

func txNoWaitTwin[Tx any](k *txKit[Tx]) {
	end := k.hold("one", noWait(request("e")))
	k.busyAtOnce(request("e"))
	k.one(dedup.Fresh, noWait(request("f")), k.effect("another key"))
	require.NoError(k, end(nil))
	k.meets(dedup.Done, noWait(request("e")))
	k.meets(dedup.Done, request("e"))
	k.count(1, "one")
}

func txNoWaitOther[Tx any](k *txKit[Tx]) {
	end := k.hold("one", request("e"))
	k.busyAtOnce(request("e"))
	require.ErrorIs(k, end(errNotExpected), errNotExpected)
	k.one(dedup.Fresh, noWait(request("e")), k.effect("one"))
	k.count(1, "one")
}

func txNoWaitRow[Tx any](k *txKit[Tx]) {
	for _, holder := range []dedup.Request{at("e", 0, 1), noWait(at("f", 0, 1))} {
		first := holder
		first.Position = dedup.Position{}
		k.one(dedup.Fresh, first, k.ends(first, "moved", func(c dedup.Claim) dedup.Completion {
			return moved(c, 1)
		}))
		end := k.hold("retried", holder)
		k.busyAtOnce(at(holder.Key.ID, 0, 1))
		require.NoError(k, end(nil))
		k.meets(dedup.Done, noWait(holder))
	}
	k.count(2, "retried")
}

func txNoWaitMany[Tx any](k *txKit[Tx]) {
	const callers = 100
	end := k.hold("one", noWait(request("e")))
	began := time.Now()
	verdicts, errs := make([]dedup.Verdict, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			var a [1]dedup.Answer
			errs[i] = k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{noWait(request("e"))}, a[:],
				func(Tx) ([]dedup.Completion, error) { return nil, errNotExpected })
			verdicts[i] = a[0].Verdict
		})
	}
	others := make([]error, 5)
	for i := range others {
		all.Go(func() {
			var a [1]dedup.Answer
			r := noWait(request(numbered("other", i)))
			others[i] = k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{r}, a[:],
				func(tx Tx) ([]dedup.Completion, error) {
					return nil, k.h.Exec(k.ctx, tx, "other")
				})
		})
	}
	all.Wait()
	took := time.Since(began)
	require.NoError(k, errors.Join(slices.Concat(errs, others)...))
	for _, v := range verdicts {
		require.Equal(k, dedup.Busy.String(), v.String())
	}
	require.Less(k, took, 8*time.Second, "%d callers of a key that is held", callers)
	require.NoError(k, end(nil))
	k.count(len(others), "other")
	k.count(1, "one")
}

func txNoWaitRace[Tx any](k *txKit[Tx]) {
	const callers, keys = 20, 5
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() {
			for n := range keys {
				r := noWait(request(numbered("race", n)))
				for busy := true; busy && errs[i] == nil && k.ctx.Err() == nil; {
					var a [1]dedup.Answer
					errs[i] = k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{r}, a[:],
						func(tx Tx) ([]dedup.Completion, error) {
							return nil, k.h.Exec(k.ctx, tx, r.Key.ID)
						})
					busy = a[0].Verdict == dedup.Busy
				}
			}
		})
	}
	all.Wait()
	require.NoError(k, errors.Join(errs...))
	for n := range keys {
		k.count(1, numbered("race", n))
		k.meets(dedup.Done, noWait(request(numbered("race", n))))
	}
}

func txNoWaitVerdicts[Tx any](k *txKit[Tx]) {
	r := noWait(request("e"))
	a := k.one(dedup.Fresh, r, k.effect("once"))
	sameOrigin(k, r.Origin, a.First)
	require.EqualValues(k, 1, a.Fence)
	a = k.meets(dedup.Done, r)
	sameOrigin(k, r.Origin, a.First)
	k.count(1, "once")

	r = noWait(request("dead"))
	k.one(dedup.Fresh, r, k.ends(r, "dead", func(c dedup.Claim) dedup.Completion {
		return dead(c, "poison")
	}))
	require.Equal(k, "poison", k.meets(dedup.Dead, r).Reason)

	r = noWait(request("moved"))
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 1)
	}))
	k.meets(dedup.Rescheduled, r)
	a = k.one(dedup.Fresh, noWait(at("moved", 0, 1)), k.effect("again"))
	require.EqualValues(k, 2, a.Fence)
	k.meets(dedup.Done, r)
}

func txNoWaitError[Tx any](k *txKit[Tx]) {
	r, why := noWait(request("e")), errors.New("no such order")
	for range 2 {
		_, err := k.call([]dedup.Request{r}, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion,
			error) {
			return nil, errors.Join(k.h.Exec(k.ctx, tx, "undone"), why)
		})
		require.ErrorIs(k, err, why)
	}
	func() {
		defer func() { _ = recover() }() // a store may return a panic as an error
		_, _ = k.call([]dedup.Request{r}, func(Tx, []dedup.Answer) ([]dedup.Completion, error) {
			panic("boom")
		})
	}()
	k.count(0, "undone")
	k.one(dedup.Fresh, r, k.effect("done"))
	k.count(1, "done")
}

func txNoWaitGroup[Tx any](k *txKit[Tx]) {
	group := []dedup.Request{noWait(request("e")), noWait(request("f"))}
	end := k.hold("one", request("e"))
	_, err := k.call(group, k.fails(errNotExpected))
	require.ErrorIs(k, err, dedup.ErrContended)
	require.NoError(k, end(nil))
	answers, err := k.call(group, k.effect("group"))
	require.NoError(k, err)
	require.Equal(k, dedup.Done, answers[0].Verdict)
	require.Equal(k, dedup.Fresh, answers[1].Verdict)
}
