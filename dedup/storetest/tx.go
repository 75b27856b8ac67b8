package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// TxHarness says how to make a transactional store and how an effect is written in its transactions.
type TxHarness[Tx any] struct {
	// New returns an empty store of its own, in a database that has what Exec needs. Required.
	New func(t testing.TB) dedup.TxStore[Tx]
	// Exec writes the effect into tx, for example as a row of that name. The same effect may be written often: how
	// often is what is counted. Required.
	Exec func(ctx context.Context, tx Tx, effect string) error
	// Count returns how many effects of that name are committed. Required.
	Count func(t testing.TB, s dedup.TxStore[Tx], effect string) int
	// Raw executes SQL in tx. Nil if Tx is not SQL: the tests that need it are then skipped by name.
	Raw func(ctx context.Context, tx Tx, sql string) error
	// Slow is SQL that takes half a minute, such as "SELECT pg_sleep(30)". Empty: the test that abandons a run in the
	// middle of a statement is skipped by name.
	Slow string
	// Horizon is that of [Harness], for what is remembered by ClaimTx.
	Horizon func(t testing.TB, s dedup.Store, scope string, before time.Time)
	// Missing names what the store cannot do: Results, Fingerprints, Reopen, StartCount, TxCheck, TxLimit,
	// Savepoints, TxLook, TxKeep.
	Missing []Ability
}

// StartCount: [dedup.StartCounter]. Only for [TxHarness.Missing].
const StartCount Ability = "start count"

// TxCheck: [dedup.TxChecker] of the transactions that are lent. Only for [TxHarness.Missing].
const TxCheck Ability = "check of transactions"

// TxLimit: [dedup.TxLimiter]. Only for [TxHarness.Missing].
const TxLimit Ability = "limit of transactions"

// sql: a transaction that speaks SQL. It is missing where TxHarness.Raw is.
const sql Ability = "SQL"

// slowSQL is missing where TxHarness.Slow is.
const slowSQL Ability = "slow SQL"

// limit is how long the functions of the tests may take.
const limit = 20 * time.Second

type txTest[Tx any] struct {
	name  string
	needs Ability
	run   func(k *txKit[Tx])
}

// txKit is what one test works with.
type txKit[Tx any] struct {
	*testing.T
	h   TxHarness[Tx]
	s   dedup.TxStore[Tx]
	ctx context.Context
}

// RunTx tests that the stores of h keep the contract of [dedup.TxStore] and of the abilities they do not lack. Such a
// store must pass [ClaimGroup] as well.
func RunTx[Tx any](t *testing.T, h TxHarness[Tx]) {
	require.NotNil(t, h.New, "TxHarness.New is required")
	require.NotNil(t, h.Exec, "TxHarness.Exec is required")
	require.NotNil(t, h.Count, "TxHarness.Count is required")
	lacks := func(a Ability) bool {
		return lacking(h.Missing, a) || a == sql && h.Raw == nil || a == slowSQL && (h.Raw == nil || h.Slow == "") ||
			a == horizon && h.Horizon == nil
	}
	for _, c := range slices.Concat(txClaimTests[Tx](), txFaultTests[Tx](), txGroupTests[Tx](),
		txHorizonTests[Tx](), txAbilityTests[Tx](), txNoWaitTests[Tx](), txSavepointTests[Tx](), txLookTests[Tx](), txWorkTests[Tx]()) {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" && lacks(c.needs) {
				t.Skipf("the store has no %s, says its harness", c.needs)
			}
			t.Parallel()
			c.run(&txKit[Tx]{T: t, h: h, s: h.New(t), ctx: t.Context()})
		})
	}
}

func lacking(missing []Ability, a Ability) bool { return slices.Contains(missing, a) }

// body is what runs in the transaction.
type body[Tx any] func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error)

// call claims reqs, runs fn in their transaction, and checks what must be true of every call.
func (k *txKit[Tx]) call(reqs []dedup.Request, fn body[Tx]) ([]dedup.Answer, error) {
	answers := stale(len(reqs))
	var inside []dedup.Answer
	runs := 0
	err := k.s.ClaimTx(k.ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
		runs++
		inside = slices.Clone(answers)
		return fn(tx, answers)
	})
	if err != nil {
		return answers, err
	}
	fresh := false
	for i, a := range answers {
		allowed := []dedup.Verdict{dedup.Fresh, dedup.Done, dedup.Dead, dedup.Rescheduled, dedup.Conflict, dedup.TooOld}
		if len(reqs) == 1 {
			allowed = append(allowed, dedup.Busy)
		}
		require.Contains(k, allowed, a.Verdict, "%q", reqs[i].Key)
		if runs > 0 {
			require.Equal(k, inside[i].Verdict, a.Verdict, "the answer that fn saw is the answer")
		}
		fresh = fresh || a.Verdict == dedup.Fresh
	}
	require.Equal(k, fresh, runs > 0, "fn runs if there is something to do, and only then: %v", answers)
	return answers, nil
}

// effect is a body that writes an effect and completes nothing by itself: Fresh keys become Done.
func (k *txKit[Tx]) effect(name string) body[Tx] {
	return func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) { return nil, k.h.Exec(k.ctx, tx, name) }
}

// ends is a body that writes an effect and ends its first key as end says.
func (k *txKit[Tx]) ends(r dedup.Request, name string, end func(dedup.Claim) dedup.Completion) body[Tx] {
	return func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
		return []dedup.Completion{end(r.Held(dedup.Token{}, answers[0]))}, k.h.Exec(k.ctx, tx, name)
	}
}

// one runs fn for a single request and requires its verdict.
func (k *txKit[Tx]) one(v dedup.Verdict, r dedup.Request, fn body[Tx]) dedup.Answer {
	k.Helper()
	answers, err := k.call([]dedup.Request{r}, fn)
	require.NoError(k, err)
	require.Equal(k, v.String(), answers[0].Verdict.String(), "key %q, position %v", r.Key, r.Position)
	return answers[0]
}

// meets requires a verdict other than Fresh: nothing runs.
func (k *txKit[Tx]) meets(v dedup.Verdict, r dedup.Request) dedup.Answer {
	k.Helper()
	return k.one(v, r, k.fails(errNotExpected))
}

// fails is a body that does nothing but fail.
func (k *txKit[Tx]) fails(err error) body[Tx] {
	return func(Tx, []dedup.Answer) ([]dedup.Completion, error) { return nil, err }
}

func (k *txKit[Tx]) count(want int, effect string) {
	k.Helper()
	require.Equal(k, want, k.h.Count(k, k.s, effect), "effects named %q", effect)
}

// unmarked requires nothing to be remembered of r: it runs, once, with an effect of its own.
func (k *txKit[Tx]) unmarked(r dedup.Request) {
	k.Helper()
	after := "after " + r.Key.ID
	k.one(dedup.Fresh, r, k.effect(after))
	k.count(1, after)
	k.meets(dedup.Done, r)
}
