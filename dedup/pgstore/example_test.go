package pgstore_test

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A line of a file is booked once, however often the file is imported. The record is committed together with the booking.
func ExampleStore_Once() {
	book := func(ctx context.Context, pool *pgxpool.Pool, store *pgstore.Store, line string, cents int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
				return err
			}
			first, err := store.Once(ctx, tx, dedup.Key{Scope: "imports", Type: "line", ID: line}, 0)
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = 'cash'", cents)
			return err
		})
	}
	_ = book
}

// Two different withdrawals of one account wait for each other, so that each reads the balance that
// the other has left.
func ExampleLockKey() {
	withdraw := func(ctx context.Context, tx pgx.Tx, account string, cents int) error {
		if err := pgstore.LockKey(ctx, tx, "account", account); err != nil {
			return err
		}
		var balance int
		err := tx.QueryRow(ctx, "SELECT sum(cents) FROM bookings WHERE account = $1", account).Scan(&balance)
		if err != nil || balance < cents {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO bookings (account, cents) VALUES ($1, $2)", account, -cents)
		return err
	}
	_ = withdraw
}
