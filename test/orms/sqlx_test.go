package orms

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
)

var mapper = reflectx.NewMapperFunc("db", strings.ToLower)

// sqlxIn returns sqlx in the transaction of a handler. This Tx does not know the driver: pass the
// kind of placeholders to sqlx.Rebind.
func sqlxIn(tx *sql.Tx) *sqlx.Tx { return &sqlx.Tx{Tx: tx, Mapper: mapper} }

func withSqlx(_ *testing.T, s site) book {
	kind := sqlx.QUESTION
	if s.postgres {
		kind = sqlx.DOLLAR
	}
	return func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error) {
		in := sqlxIn(tx)
		text, args, err := sqlx.Named("INSERT INTO sales (event, pieces) VALUES (:event, :pieces)", sales)
		if err != nil {
			return 0, err
		}
		if _, err := in.ExecContext(ctx, sqlx.Rebind(kind, text), args...); err != nil {
			return 0, err
		}
		var rows []Sale
		err = in.SelectContext(ctx, &rows, "SELECT id, event, pieces FROM sales WHERE id > 0 ORDER BY id DESC")
		if err != nil {
			return 0, err
		}
		for _, row := range rows[:len(sales)] {
			_, err := in.ExecContext(ctx, sqlx.Rebind(kind, "UPDATE sales SET pieces = ? WHERE id = ?"), row.Pieces*2, row.ID)
			if err != nil {
				return 0, err
			}
		}
		err = in.GetContext(ctx, &sum, sqlx.Rebind(kind, "SELECT coalesce(sum(pieces), 0) FROM sales WHERE event = ?"), sales[0].Event)
		return sum, err
	}
}
