package orms

import (
	"context"
	"database/sql"
	"testing"
)

// withSqlc uses the code that sqlc has generated: sqlc.yaml.
func withSqlc(_ *testing.T, s site) book {
	queries := New(s.db) // once for a program
	return func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error) {
		in := queries.WithTx(tx)
		for _, s := range sales {
			id, err := in.AddSale(ctx, AddSaleParams{Event: s.Event, Pieces: s.Pieces})
			if err == nil {
				err = in.SetPieces(ctx, SetPiecesParams{ID: id, Pieces: 2 * s.Pieces})
			}
			if err != nil {
				return 0, err
			}
		}
		return in.PiecesOf(ctx, sales[0].Event)
	}
}
