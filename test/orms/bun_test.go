package orms

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
)

type bunSale struct {
	bun.BaseModel `bun:"table:sales"`

	ID     int64 `bun:",pk,autoincrement"`
	Event  string
	Pieces int64
}

func withBun(_ *testing.T, s site) book {
	var dialect schema.Dialect = sqlitedialect.New()
	if s.postgres {
		dialect = pgdialect.New()
	}
	db := bun.NewDB(s.db, dialect) // once for a program
	return func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error) {
		rows := make([]bunSale, len(sales))
		for i, s := range sales {
			rows[i] = bunSale{Event: s.Event, Pieces: s.Pieces}
		}
		if _, err := db.NewInsert().Conn(tx).Model(&rows).Exec(ctx); err != nil {
			return 0, err
		}
		for i := range rows {
			rows[i].Pieces *= 2
			if _, err := db.NewUpdate().Conn(tx).Model(&rows[i]).WherePK().Exec(ctx); err != nil {
				return 0, err
			}
		}
		err = db.NewSelect().Conn(tx).Model((*bunSale)(nil)).ColumnExpr("coalesce(sum(pieces), 0)").
			Where("event = ?", sales[0].Event).Scan(ctx, &sum)
		return sum, err
	}
}
