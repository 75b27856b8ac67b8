package storetest

import (
	"errors"
	"sync"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txAbilityTests cover the additional abilities of transactional stores.
func txAbilityTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: starts are counted outside the transaction (rule 18)", needs: StartCount,
			run: txStarts[Tx]},
		{name: "tx: reopen, only the next generation runs (rule 6, T-02)", needs: Reopen,
			run: txReopen[Tx]},
		{name: "tx: a repaired copy is not compared after a reopening, others are (rules 6d and 17)",
			needs: Reopen, run: txReopenFingerprint[Tx]},
		{name: "tx: reopen dead events only", needs: Reopen, run: txReopenNotDead[Tx]},
		{name: "tx: the reported number of transactions runs at once (rules 25 and 26)", needs: TxLimit,
			run: txLimit[Tx]},
	}
}

func txStarts[Tx any](k *txKit[Tx]) {
	s, ok := k.s.(dedup.StartCounter)
	require.True(k, ok, "%T has no CountStart, and Missing of the harness does not list it", k.s)
	record := request("e").Origin
	counts := func(id string, want uint32) {
		k.Helper()
		n, err := s.CountStart(k.ctx, key(id), record)
		require.NoError(k, err)
		require.Equal(k, want, n)
	}
	counts("e", 1)
	counts("e", 2)
	counts("f", 1)
	why := errors.New("rolled back")
	_, err := k.call([]dedup.Request{request("e")}, func(Tx, []dedup.Answer) ([]dedup.Completion,
		error) {
		counts("e", 3)
		return nil, why
	})
	require.ErrorIs(k, err, why)
	counts("e", 4) // a rollback leaves the trace
	require.NoError(k, s.ClearStarts(k.ctx, key("e"), record))
	require.NoError(k, s.ClearStarts(k.ctx, key("e"), record))
	require.NoError(k, s.ClearStarts(k.ctx, key("never started"), record))
	counts("e", 1)
	counts("f", 2)
	copied := record
	copied.Offset++
	n, err := s.CountStart(k.ctx, key("e"), copied)
	require.NoError(k, err)
	require.EqualValues(k, 1, n, "copies that begin at once are no crash")
	k.one(dedup.Fresh, request("e"), k.effect("e")) // a start is no claim
	counts("e", 0)                                  // done: no handler to watch
	counts("e", 0)
}

func (k *txKit[Tx]) reopener() dedup.Operator {
	k.Helper()
	r, ok := k.s.(dedup.Operator)
	require.True(k, ok, "%T has no Reopen, and Missing of the harness does not list it", k.s)
	return r
}

func (k *txKit[Tx]) killed(r dedup.Request) {
	k.Helper()
	k.one(dedup.Fresh, r, k.ends(r, "killed", func(c dedup.Claim) dedup.Completion {
		return dead(c, "poison")
	}))
}

func txReopen[Tx any](k *txKit[Tx]) {
	k.killed(request("e"))
	k.meets(dedup.Dead, at("e", 1, 0)) // not reopened
	for range 2 {
		p, err := k.reopener().Reopen(k.ctx, key("e"))
		require.NoError(k, err)
		require.Equal(k, dedup.Position{Generation: 1}, p)
	}
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 3))
	k.meets(dedup.Rescheduled, at("e", 2, 0))
	k.killed(at("e", 1, 0))
	k.meets(dedup.Dead, at("e", 0, 0))
	p, err := k.reopener().Reopen(k.ctx, key("e"))
	require.NoError(k, err)
	require.Equal(k, dedup.Position{Generation: 2}, p)
	a := k.one(dedup.Fresh, at("e", 2, 0), k.effect("redriven"))
	sameOrigin(k, request("e").Origin, a.First)
	k.meets(dedup.Done, at("e", 0, 0))
	k.count(1, "redriven")
}

func txReopenFingerprint[Tx any](k *txKit[Tx]) {
	r := request("e")
	r.Fingerprint = dedup.Fingerprint{1}
	k.killed(r)
	_, err := k.reopener().Reopen(k.ctx, r.Key)
	require.NoError(k, err)
	k.meets(dedup.Rescheduled, r)
	r.Fingerprint = dedup.Fingerprint{2}
	if !lacking(k.h.Missing, Fingerprints) {
		require.Equal(k, dedup.Rescheduled, k.meets(dedup.Conflict, r).Known,
			"the answer to an equal copy")
	}
	r.Position.Generation = 1
	k.one(dedup.Fresh, r, k.effect("repaired"))
}

func txReopenNotDead[Tx any](k *txKit[Tx]) {
	notDead := func(id string) {
		k.Helper()
		_, err := k.reopener().Reopen(k.ctx, key(id))
		require.ErrorIs(k, err, dedup.ErrNotDead)
	}
	notDead("unknown")
	k.unmarked(request("unknown"))
	notDead("unknown") // done
	r := request("moved")
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 1)
	}))
	notDead("moved")
	k.meets(dedup.Rescheduled, r)
}

// txLimit lets as many transactions as the store allows wait for each other, and claims beside
// these. A run without a connection would stand still until the time limit of the run.
func txLimit[Tx any](k *txKit[Tx]) {
	l, ok := k.s.(dedup.TxLimiter)
	require.True(k, ok, "%T has no MaxTx, and Missing of the harness does not list it", k.s)
	n := l.MaxTx()
	require.GreaterOrEqual(k, n, 0)
	if n == 0 || n > 64 {
		k.Logf("limit %d: nothing to be seen", n)
		n = 64
	}
	var inside, left sync.WaitGroup
	inside.Add(n)
	errs := make([]error, n)
	for i := range n {
		left.Go(func() {
			var a [1]dedup.Answer
			arrived := sync.OnceFunc(inside.Done)
			defer arrived() // else the others would wait for ever for one that failed
			errs[i] = k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{request(numbered("at once", i))},
				a[:],
				func(tx Tx) ([]dedup.Completion, error) {
					arrived()
					inside.Wait()
					return nil, k.h.Exec(k.ctx, tx, "at once")
				})
		})
	}
	inside.Wait()
	left.Wait()
	require.NoError(k, errors.Join(errs...))
	k.count(n, "at once")
}
