package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// TxHarness makes the transactional stores of a test run and writes effects in their transactions.
type TxHarness[Tx any] struct {
	// New returns an empty store, apart from all others, in a database with the tables of Exec.
	// Required.
	New func(t testing.TB) dedup.TxStore[Tx]
	// Exec writes the effect into tx, for example as a row of that name. An effect may be written
	// several times. Required.
	Exec func(ctx context.Context, tx Tx, effect string) error
	// Count returns the number of committed effects of that name. Required.
	Count func(t testing.TB, s dedup.TxStore[Tx], effect string) int
	// Raw executes SQL in tx. Nil: Tx has no SQL, and the tests that need SQL are skipped.
	Raw func(ctx context.Context, tx Tx, sql string) error
	// Slow is SQL that takes half a minute, such as "SELECT pg_sleep(30)". Empty: the test that
	// abandons a run in the middle of a statement is skipped.
	Slow string
	// Horizon is that of [Harness], for the records of ClaimTx.
	Horizon func(t testing.TB, s dedup.Store, scope string, before time.Time)
	// Missing lists the abilities that the store lacks, of Results, Fingerprints, Reopen,
	// StartCount, TxCheck, TxLimit, Savepoints, TxLook, TxKeep, TxGoesOn, TxAborts and TxParallel.
	Missing []Ability
}

// StartCount: [dedup.StartCounter]. Only for [TxHarness.Missing].
const StartCount Ability = "start count"

// TxCheck: [dedup.TxChecker] of the lent transactions. Only for [TxHarness.Missing].
const TxCheck Ability = "check of transactions"

// TxLimit: [dedup.TxLimiter]. Only for [TxHarness.Missing].
const TxLimit Ability = "limit of transactions"

// TxLook: [dedup.TxLooker]. Only for [TxHarness.Missing].
const TxLook Ability = "look at the records of transactions"

// Savepoints: [dedup.Savepointer] of the transactions that are lent. Only for [TxHarness.Missing].
const Savepoints Ability = "savepoints"

// TxKeep: [dedup.TxKeeper] of the transactions that are lent. Only for [TxHarness.Missing].
const TxKeep Ability = "work before commit"

// TxGoesOn: a transaction can still be used after its Commit or Rollback was refused. A
// [database/sql.Tx] cannot. Only for [TxHarness.Missing].
const TxGoesOn Ability = "transactions go on after a refused Commit"

// TxAborts: the database refuses all statements of a transaction after one has failed. MySQL and
// SQLite go on. Only for [TxHarness.Missing].
const TxAborts Ability = "transactions abort after a failed statement"

// TxParallel: transactions of different keys run at the same time. A database with one writer lacks
// this ability. Only for [TxHarness.Missing].
const TxParallel Ability = "transactions at the same time"

// sql is missing if TxHarness.Raw is nil.
const sql Ability = "SQL"

// slowSQL is missing if TxHarness.Slow is empty.
const slowSQL Ability = "slow SQL"

// runLimit is the time limit of the functions of the tests.
const runLimit = 20 * time.Second

type txTest[Tx any] struct {
	name  string
	needs Ability
	alone bool // has a bound on its time that other tests could spoil
	run   func(k *txKit[Tx])
}

// txKit holds the store of one test.
type txKit[Tx any] struct {
	testing.TB
	h   TxHarness[Tx]
	s   dedup.TxStore[Tx]
	ctx context.Context
}

func lacking(missing []Ability, a Ability) bool { return slices.Contains(missing, a) }

// body runs in the transaction.
type body[Tx any] func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error)

// call claims reqs, runs fn in their transaction, and checks the properties of every call.
func (k *txKit[Tx]) call(reqs []dedup.Request, fn body[Tx]) ([]dedup.Answer, error) {
	answers := stale(len(reqs))
	var inside []dedup.Answer
	runs := 0
	err := k.s.ClaimTx(k.ctx, runLimit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
		runs++
		inside = slices.Clone(answers)
		return fn(tx, answers)
	})
	if err != nil {
		return answers, err
	}
	fresh := false
	for i, a := range answers {
		allowed := []dedup.Verdict{dedup.Fresh, dedup.Done, dedup.Dead, dedup.Rescheduled,
			dedup.Conflict, dedup.TooOld}
		if len(reqs) == 1 {
			allowed = append(allowed, dedup.Busy)
		}
		require.Contains(k, allowed, a.Verdict, "%q", reqs[i].Key)
		if runs > 0 {
			require.Equal(k, inside[i].Verdict, a.Verdict, "the answer that fn saw is the answer")
		}
		fresh = fresh || a.Verdict == dedup.Fresh
	}
	require.Equal(k, fresh, runs > 0, "fn runs if there is something to do, and only then: %v",
		answers)
	return answers, nil
}

// effect is a body that writes an effect and returns no completion: Fresh keys become Done.
func (k *txKit[Tx]) effect(name string) body[Tx] {
	return func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		return nil, k.h.Exec(k.ctx, tx, name)
	}
}

// ends is a body that writes an effect and completes the first key with end.
func (k *txKit[Tx]) ends(r dedup.Request, name string,
	end func(dedup.Claim) dedup.Completion) body[Tx] {
	return func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
		return []dedup.Completion{end(r.Held(dedup.Token{}, answers[0]))}, k.h.Exec(k.ctx, tx, name)
	}
}

// one runs fn for a single request and requires this verdict.
func (k *txKit[Tx]) one(v dedup.Verdict, r dedup.Request, fn body[Tx]) dedup.Answer {
	k.Helper()
	answers, err := k.call([]dedup.Request{r}, fn)
	require.NoError(k, err)
	require.Equal(k, v.String(), answers[0].Verdict.String(), "key %q, position %v", r.Key,
		r.Position)
	return answers[0]
}

// meets requires a verdict other than Fresh: fn does not run.
func (k *txKit[Tx]) meets(v dedup.Verdict, r dedup.Request) dedup.Answer {
	k.Helper()
	return k.one(v, r, k.fails(errNotExpected))
}

// fails is a body that fails.
func (k *txKit[Tx]) fails(err error) body[Tx] {
	return func(Tx, []dedup.Answer) ([]dedup.Completion, error) { return nil, err }
}

func (k *txKit[Tx]) count(want int, effect string) {
	k.Helper()
	require.Equal(k, want, k.h.Count(k, k.s, effect), "effects named %q", effect)
}

// unmarked requires that r has no record: r runs once, with an effect.
func (k *txKit[Tx]) unmarked(r dedup.Request) {
	k.Helper()
	after := "after " + r.Key.ID
	k.one(dedup.Fresh, r, k.effect(after))
	k.count(1, after)
	k.meets(dedup.Done, r)
}

var errNotExpected = errors.New("this must not run")

// hold runs a ClaimTx of reqs that stays inside fn until end is called. end returns the error of
// ClaimTx.
func (k *txKit[Tx]) hold(effect string, reqs ...dedup.Request) (end func(error) error) {
	inside, leave, ended := make(chan struct{}), make(chan error, 2), make(chan error, 1)
	var once sync.Once
	// A test that failed meanwhile must not leave ClaimTx inside fn.
	k.Cleanup(func() { leave <- errNotExpected })
	go func() {
		answers := make([]dedup.Answer, len(reqs))
		fn := func(tx Tx) ([]dedup.Completion, error) {
			if err := k.h.Exec(k.ctx, tx, effect); err != nil {
				return nil, err
			}
			once.Do(func() { close(inside) })
			return nil, <-leave
		}
		ended <- k.s.ClaimTx(k.ctx, runLimit, reqs, answers, fn)
	}()
	select {
	case <-inside:
	case err := <-ended:
		require.NoError(k, err)
		require.Fail(k, "fn was not run")
	}
	return func(result error) error {
		leave <- result
		return <-ended
	}
}
