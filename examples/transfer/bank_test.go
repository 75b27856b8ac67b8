package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// vault is a bank in a schema of the test's own, with direct access to its tables.
type vault struct {
	*bank
	t   testing.TB
	url string
}

func newVault(t testing.TB, accounts int64) *vault {
	// tells its sessions from others
	url := testenv.Postgres(t) + "&application_name=" + rand.Text()
	pool, err := openPool(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, migrate(t.Context(), pool))
	added, err := seed(t.Context(), pool, accounts)
	require.NoError(t, err)
	require.Equal(t, accounts, added)
	return &vault{bank: &bank{pool}, t: t, url: url}
}

// number returns the single number that a query selects.
func (v *vault) number(query string, args ...any) (n int64) {
	v.t.Helper()
	require.NoError(v.t, v.pool.QueryRow(v.t.Context(), query, args...).Scan(&n), query)
	return n
}

func (v *vault) balance(account int64) int64 {
	v.t.Helper()
	return v.number(`SELECT balance FROM accounts WHERE id = $1`, account)
}

// requireSound checks the invariants of the bank by SQL.
func (v *vault) requireSound() {
	v.t.Helper()
	for what, query := range map[string]string{
		"money was made or lost":            `SELECT coalesce(sum(balance) - sum(opening), 0)::bigint FROM accounts`,
		"account below zero":                `SELECT count(*) FROM accounts WHERE balance < 0`,
		"balance is not what entries say":   `SELECT count(*) FROM accounts a WHERE balance <> opening + (SELECT coalesce(sum(amount), 0) FROM entries WHERE account_id = a.id)`,
		"entries do not add up to zero":     `SELECT count(*) FROM (SELECT FROM entries GROUP BY transfer_id HAVING sum(amount) <> 0 OR count(*) <> 2) x`,
		"transfer without its two entries":  `SELECT count(*) FROM transfers t WHERE refused IS NULL AND 2 <> (SELECT count(*) FROM entries WHERE transfer_id = t.id AND (account_id, entries.amount) IN ((from_account, -t.amount), (to_account, t.amount)))`,
		"entries of a transfer not booked":  `SELECT count(*) FROM entries JOIN transfers t ON t.id = transfer_id WHERE refused IS NOT NULL`,
		"two transfers of one natural key":  `SELECT count(*) - count(DISTINCT (customer, idempotency_key)) FROM transfers`,
		"more than one identity, or no one": `SELECT count(*) - 1 FROM bank`,
	} {
		require.Zero(v.t, v.number(query), what)
	}
}

// decided requires a decision of the bank, and returns it.
func (v *vault) decided(k naturalKey, o order) (transfer, bool) {
	v.t.Helper()
	t, known, err := v.decide(v.t.Context(), k, o)
	require.NoError(v.t, err)
	require.Equal(v.t, o, t.order)
	return t, known
}

var rent = order{From: 1, To: 2, Amount: 25_000, Currency: "EUR", Reference: "rent"}

func TestTransferAgain_Idempotent(t *testing.T) {
	v := newVault(t, 2)
	first, known := v.decided(naturalKey{"anna", "k"}, rent)
	require.False(t, known)
	for range 3 {
		again, known := v.decided(naturalKey{"anna", "k"}, rent)
		require.True(t, known)
		require.Equal(t, first, again)
	}
	require.EqualValues(t, 75_000, v.balance(1))
	require.EqualValues(t, 125_000, v.balance(2))
	v.requireSound()
}

// Rule 37: the reference is data.
func TestReferenceIsNoKey(t *testing.T) {
	v := newVault(t, 2)
	november, _ := v.decided(naturalKey{"anna", "november"}, rent)
	december, known := v.decided(naturalKey{"anna", "december"}, rent)
	require.False(t, known)
	require.NotEqual(t, november.ID, december.ID)
	_, known = v.decided(naturalKey{"bert", "november"}, rent) // another customer's key
	require.False(t, known)
	require.Equal(t, 100_000-3*rent.Amount, v.balance(1))
	v.requireSound()
}

// A seeded account takes on the currency of its first transfer.
func TestFirstTransferSaysTheCurrency(t *testing.T) {
	v := newVault(t, 3)
	gift := order{From: 1, To: 2, Amount: 1, Currency: "CHF"}
	first, _ := v.decided(naturalKey{"anna", "first"}, gift)
	require.Empty(t, first.Refused)
	gift.Currency, gift.To = "EUR", 3
	second, _ := v.decided(naturalKey{"anna", "second"}, gift)
	require.Equal(t, wrongCurrency, second.Refused)
	require.EqualValues(t, 1, v.number(`SELECT count(*) FROM accounts WHERE currency IS NULL`), "a refusal says nothing about an account")
	v.requireSound()
}

func TestOtherOrderUnderAKey(t *testing.T) {
	v := newVault(t, 3)
	v.decided(naturalKey{"anna", "k"}, rent)
	for name, change := range map[string]func(*order){
		"from":      func(o *order) { o.From = 3 },
		"to":        func(o *order) { o.To = 3 },
		"amount":    func(o *order) { o.Amount++ },
		"currency":  func(o *order) { o.Currency = "USD" },
		"reference": func(o *order) { o.Reference = "Rent" },
	} {
		o := rent
		change(&o)
		_, _, err := v.decide(t.Context(), naturalKey{"anna", "k"}, o)
		require.ErrorIs(t, err, errOtherOrder, name)
	}
	require.EqualValues(t, 1, v.number(`SELECT count(*) FROM transfers`))
	v.requireSound()
}

// A request that was refused, and is sent again when there is money, gets the old answer.
func TestRefusals_Idempotent(t *testing.T) {
	v := newVault(t, 2)
	_, err := v.pool.Exec(t.Context(), `INSERT INTO accounts (id, currency, opening, balance) VALUES (9, 'USD', 0, 0)`)
	require.NoError(t, err)
	_, err = v.pool.Exec(t.Context(), `UPDATE accounts SET currency = 'EUR' WHERE id < 9`)
	require.NoError(t, err)
	much := order{From: 1, To: 2, Amount: seedBalance + 1, Currency: "EUR"}
	for name, c := range map[string]struct {
		change func(*order)
		want   refusal
	}{
		"too much":              {func(*order) {}, insufficientFunds},
		"all there is and more": {func(o *order) { o.Amount = 1<<63 - 1 }, insufficientFunds},
		"from nowhere":          {func(o *order) { o.From = 77 }, unknownAccount},
		"to nowhere":            {func(o *order) { o.To = 1<<63 - 1 }, unknownAccount},
		"to another currency":   {func(o *order) { o.To = 9 }, wrongCurrency},
		"from another currency": {func(o *order) { o.From = 9 }, wrongCurrency},
		"in another currency":   {func(o *order) { o.Currency = "USD" }, wrongCurrency},
	} {
		o := much
		c.change(&o)
		refused, known := v.decided(naturalKey{"anna", name}, o)
		require.False(t, known, name)
		require.Equal(t, c.want, refused.Refused, name)
	}
	v.decided(naturalKey{"bert", "gift"}, order{From: 2, To: 1, Amount: 1, Currency: "EUR"})
	again, known := v.decided(naturalKey{"anna", "too much"}, much)
	require.True(t, known)
	require.Equal(t, insufficientFunds, again.Refused)
	booked, _ := v.decided(naturalKey{"anna", "a key of its own"}, much)
	require.Empty(t, booked.Refused)
	require.Zero(t, v.balance(1))
	v.requireSound()
}

// Copies at the same moment, on all connections of the pool, without the middleware, as when Redis
// is down.
func TestConcurrentCopies_Idempotent(t *testing.T) {
	v := newVault(t, 2)
	ids := make([]int64, 40)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			got, _, err := v.decide(t.Context(), naturalKey{"anna", fmt.Sprint("k", i%4)}, rent)
			ids[i] = got.ID
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, id := range ids {
		require.Equal(t, ids[i%4], id)
	}
	require.EqualValues(t, 4, v.number(`SELECT count(*) FROM transfers WHERE refused IS NULL`))
	require.Zero(t, v.balance(1))
	v.requireSound()
}

// All transfers lock accounts in one order. Without the order this test meets deadlocks, which the
// server ends after a second each.
func TestOppositeTransfersDoNotDeadlock(t *testing.T) {
	v := newVault(t, 3)
	var all sync.WaitGroup
	for worker := range int64(12) {
		all.Go(func() {
			for i := range 50 {
				o := order{From: 1 + worker%3, To: 1 + (worker+1+worker/3%2)%3, Amount: 1 + worker, Currency: "EUR"}
				if _, _, err := v.decide(t.Context(), naturalKey{fmt.Sprint(worker), fmt.Sprint(i)}, o); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 600, v.number(`SELECT count(*) FROM transfers WHERE refused IS NULL`))
	v.requireSound()
}

// The last guard: another program, such as a script, books under the same key without the lock, and
// commits during our transaction. The unique constraint finds its row, and the answer is the
// existing one.
func TestUniqueConstraintIsBehindTheLock_Idempotent(t *testing.T) {
	v := newVault(t, 2)
	stranger, err := v.pool.Begin(t.Context())
	require.NoError(t, err)
	defer stranger.Rollback(context.Background())
	booked := transfer{order: rent}
	require.NoError(t, stranger.QueryRow(t.Context(), `INSERT INTO transfers
		(customer, idempotency_key, from_account, to_account, amount, currency, reference)
		VALUES ('anna', 'k', $1, $2, $3, $4, $5) RETURNING id`,
		rent.From, rent.To, rent.Amount, rent.Currency, rent.Reference).Scan(&booked.ID))

	var got transfer
	var known bool
	done := make(chan error, 1)
	go func() {
		var err error
		got, known, err = v.decide(t.Context(), naturalKey{"anna", "k"}, rent)
		done <- err
	}()
	// the insert has met the other program's row and waits for its commit
	v.waitForLock("transactionid")
	require.NoError(t, booked.book(t.Context(), stranger))
	require.NoError(t, stranger.Commit(t.Context()))
	require.NoError(t, <-done)
	require.True(t, known)
	require.Equal(t, booked, got)
	v.requireSound()
}

// Copies of a request wait for each other before they write or hold other locks.
func TestCopiesQueueBeforeTheyWrite(t *testing.T) {
	v := newVault(t, 2)
	first, err := v.pool.Begin(t.Context())
	require.NoError(t, err)
	defer first.Rollback(context.Background())
	require.NoError(t, naturalKey{"anna", "k"}.lock(t.Context(), first))
	done := make(chan error, 1)
	go func() {
		_, _, err := v.decide(t.Context(), naturalKey{"anna", "k"}, rent)
		done <- err
	}()
	v.waitForLock("advisory")
	v.decided(naturalKey{"anna", "another"}, rent) // others do not wait
	require.EqualValues(t, 1, v.number(`SELECT max(id) FROM transfers`))
	require.NoError(t, first.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.EqualValues(t, 2, v.number(`SELECT max(id) FROM transfers`))
	v.requireSound()
}

// waitForLock waits until a session of this test waits for a lock of that kind.
func (v *vault) waitForLock(kind string) {
	v.t.Helper()
	spy, err := pgx.Connect(v.t.Context(), v.url)
	require.NoError(v.t, err)
	defer spy.Close(context.Background())
	require.Eventually(v.t, func() bool {
		var waiting bool
		err := spy.QueryRow(v.t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE application_name = current_setting('application_name') AND wait_event_type = 'Lock' AND wait_event = $1)`,
			kind).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, 10*time.Millisecond, "nobody waits for a lock on %s", kind)
}

// The tables refuse these rows from any program.
func TestTablesRefuse(t *testing.T) {
	v := newVault(t, 2)
	for name, statement := range map[string]string{
		"a balance below zero":    `UPDATE accounts SET balance = -1 WHERE id = 1`,
		"a key twice":             `INSERT INTO transfers (customer, idempotency_key, from_account, to_account, amount, currency, reference) SELECT 'a', 'k', 1, 2, 1, 'EUR', r FROM (VALUES ('x'), ('y')) v(r)`,
		"no key":                  `INSERT INTO transfers (customer, idempotency_key, from_account, to_account, amount, currency, reference) VALUES ('a', '', 1, 2, 1, 'EUR', '')`,
		"a transfer to itself":    `INSERT INTO transfers (customer, idempotency_key, from_account, to_account, amount, currency, reference) VALUES ('a', 'k', 1, 1, 1, 'EUR', '')`,
		"an amount below zero":    `INSERT INTO transfers (customer, idempotency_key, from_account, to_account, amount, currency, reference) VALUES ('a', 'k', 1, 2, -1, 'EUR', '')`,
		"entries of no transfer":  `INSERT INTO entries VALUES (1, 1, 1)`,
		"a second identity":       `INSERT INTO bank (only_one) VALUES (true)`,
		"another second identity": `INSERT INTO bank (only_one) VALUES (false)`,
	} {
		err := pgx.BeginFunc(t.Context(), v.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), statement)
			return err
		})
		require.True(t, permanent(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "violates", name)
	}
	v.requireSound()
}
