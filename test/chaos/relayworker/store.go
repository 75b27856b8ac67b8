//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql" // the driver
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// open returns the outbox in the Postgres of url, or in the MariaDB of dsn.
func open(ctx context.Context, url, dsn string) (outbox.Store, func(), error) {
	if dsn == "" {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		return inPostgres{pgoutbox.New(pool)}, pool.Close, nil
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	return inMariaDB{mysql.New(db)}, func() { _ = db.Close() }, nil
}

// inPostgres prints the result of each settlement. All other methods are those of the outbox.
type inPostgres struct{ *pgoutbox.Outbox }

// Settle implements [outbox.Store].
func (s inPostgres) Settle(
	ctx context.Context, relay string, held []outbox.Lease, what outbox.Settlement,
) ([]int, error) {
	lost, err := s.Outbox.Settle(ctx, relay, held, what)
	printSettled(held, &what, lost, err)
	return lost, err
}

// inMariaDB is like inPostgres.
type inMariaDB struct{ *mysql.Outbox }

// Settle implements [outbox.Store].
func (s inMariaDB) Settle(
	ctx context.Context, relay string, held []outbox.Lease, what outbox.Settlement,
) ([]int, error) {
	lost, err := s.Outbox.Settle(ctx, relay, held, what)
	printSettled(held, &what, lost, err)
	return lost, err
}

func printSettled(held []outbox.Lease, what *outbox.Settlement, lost []int, err error) {
	fmt.Printf("settled sent=%d held=%d lost=%d error=%v\n",
		len(what.Sent), len(held), len(lost), err)
}
