package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
)

// order is the request of a customer.
type order struct {
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Amount    int64  `json:"amount"` // minor units
	Currency  string `json:"currency"`
	Reference string `json:"reference"`
}

// transfer is an order that was decided.
type transfer struct {
	ID int64 `json:"id"`
	order
	Refused refusal `json:"-"`
}

// refusal is the reason why the bank did not book an order. A booked order has an empty refusal.
type refusal string

const (
	unknownAccount    refusal = "unknown_account"
	wrongCurrency     refusal = "wrong_currency"
	insufficientFunds refusal = "insufficient_funds"
)

// naturalKey is the identity of a transfer: the customer and the key of the request. The reference
// is no part of the identity, because "rent" is paid every month (rule 37).
type naturalKey struct{ customer, key string }

// errOtherOrder means that the key was used for another order.
var errOtherOrder = errors.New("the key was used for another transfer")

// bank books transfers, each once for the natural key, without the idempotency store.
type bank struct{ pool *pgxpool.Pool }

// decide books an order or refuses it, and stores the decision. For a known key, known is true and
// t is the stored decision.
//
// The error matches errOtherOrder if the key stands for another order. After any other error the
// call may be repeated, and finds a committed decision.
func (b *bank) decide(
	ctx context.Context, k naturalKey, o order,
) (t transfer, known bool, err error) {
	// Other isolation levels, which may be the default of the server, would read the state from
	// before the lock was granted.
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	err = pgx.BeginTxFunc(ctx, b.pool, options, func(tx pgx.Tx) error {
		// Copies of one request queue here, before the locks of accounts. The second copy sees the
		// commit of the first one, even if the process of the first one was killed during the
		// COMMIT.
		if err := k.lock(ctx, tx); err != nil {
			return err
		}
		if t, known, err = register(ctx, tx, k, o); err != nil || known {
			return err
		}
		return t.execute(ctx, tx)
	})
	return t, known, err
}

// register inserts the order under k, or finds the existing one. The unique constraint also stops
// programs that do not take the lock. The insert comes before the locks of the accounts. All
// transactions wait for keys first and for accounts second, and do not deadlock.
func register(
	ctx context.Context, tx pgx.Tx, k naturalKey, o order,
) (t transfer, known bool, err error) {
	t.order = o
	err = tx.QueryRow(ctx, `
		INSERT INTO transfers
			(customer, idempotency_key, from_account, to_account, amount, currency, reference)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (customer, idempotency_key) DO NOTHING RETURNING id`,
		k.customer, k.key, o.From, o.To, o.Amount, o.Currency, o.Reference).Scan(&t.ID)
	if !errors.Is(err, pgx.ErrNoRows) {
		return t, false, err
	}
	// A separate statement, because the row may be newer than the snapshot of the statement before.
	err = tx.QueryRow(ctx, `
		SELECT id, from_account, to_account, amount, currency, reference, coalesce(refused, '')
		FROM transfers WHERE customer = $1 AND idempotency_key = $2`, k.customer, k.key).
		Scan(&t.ID, &t.From, &t.To, &t.Amount, &t.Currency, &t.Reference, &t.Refused)
	if err == nil && t.order != o {
		return transfer{}, true, errOtherOrder
	}
	return t, true, err
}

// execute books a new transfer or refuses it. The refusal is stored too: a retry that finds money
// in the account must get the same answer.
func (t *transfer) execute(ctx context.Context, tx pgx.Tx) (err error) {
	t.Refused, err = refuse(ctx, tx, t.order)
	switch {
	case err != nil:
		return fmt.Errorf("lock the accounts: %w", err)
	case t.Refused == "":
		return t.book(ctx, tx)
	default:
		_, err := tx.Exec(ctx, `UPDATE transfers SET refused = $2 WHERE id = $1`, t.ID, t.Refused)
		return err
	}
}

func (k naturalKey) lock(ctx context.Context, tx pgx.Tx) error {
	return pgstore.LockKey(ctx, tx, "transfer", k.customer, k.key)
}

// refuse locks both accounts until the transaction ends, and returns the reason against the order,
// if there is one. All transactions lock accounts in the order of their numbers. Transfers in
// opposite directions therefore wait for each other and do not deadlock.
func refuse(ctx context.Context, tx pgx.Tx, o order) (refusal, error) {
	rows, err := tx.Query(ctx, `
		SELECT id, coalesce(currency, $3), balance FROM accounts WHERE id IN ($1, $2)
		ORDER BY id FOR NO KEY UPDATE`, o.From, o.To, o.Currency)
	if err != nil {
		return "", err
	}
	type account struct {
		ID       int64
		Currency string
		Balance  int64
	}
	accounts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[account])
	if err != nil {
		return "", err
	}
	if len(accounts) < 2 {
		return unknownAccount, nil
	}
	for _, a := range accounts {
		if a.Currency != o.Currency {
			return wrongCurrency, nil
		}
	}
	for _, a := range accounts {
		if a.ID == o.From && a.Balance < o.Amount {
			return insufficientFunds, nil
		}
	}
	return "", nil
}

// book moves the money: two entries, and the balances of the two locked accounts.
func (t transfer) book(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO entries (transfer_id, account_id, amount)
		VALUES ($1, $2, -$4::bigint), ($1, $3, $4)`,
		t.ID, t.From, t.To, t.Amount)
	if err != nil {
		return fmt.Errorf("insert the entries: %w", err)
	}
	tag, err := tx.Exec(ctx, `
		UPDATE accounts SET balance = balance + CASE id WHEN $1 THEN -$3::bigint ELSE $3 END,
		currency = coalesce(currency, $4) WHERE id IN ($1, $2)`, t.From, t.To, t.Amount, t.Currency)
	if err == nil && tag.RowsAffected() != 2 {
		err = fmt.Errorf("%d rows", tag.RowsAffected())
	}
	if err != nil {
		return fmt.Errorf("change the balances: %w", err)
	}
	return nil
}

// account is an entry of the list of accounts.
type account struct {
	ID       int64  `json:"id"`
	Balance  int64  `json:"balance"` // minor units
	Currency string `json:"currency,omitempty"`
}

func (b *bank) accounts(ctx context.Context) ([]account, error) {
	rows, err := b.pool.Query(ctx,
		`SELECT id, balance, coalesce(currency, '') FROM accounts ORDER BY id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[account])
}

// counts are the numbers of decided transfers.
type counts struct {
	Count   int64 `json:"count"` // booked
	Refused int64 `json:"refused"`
}

func (b *bank) count(ctx context.Context) (c counts, err error) {
	err = b.pool.QueryRow(ctx,
		`SELECT count(*) FILTER (WHERE refused IS NULL), count(refused) FROM transfers`).
		Scan(&c.Count, &c.Refused)
	return c, err
}

// ping checks whether the database answers.
func (b *bank) ping(ctx context.Context) error { return b.pool.Ping(ctx) }
