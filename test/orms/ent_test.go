package orms

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
)

// entTx is a driver of ent in the transaction of a handler. Operations of several statements ask
// the driver for a transaction, and have this one: ent.NewClient(ent.Driver(entIn(dialect.SQLite,
// tx))).
type entTx struct{ dialect.Driver }

func entIn(name string, tx *sql.Tx) dialect.Driver {
	return entTx{entsql.NewDriver(name, entsql.Conn{ExecQuerier: tx})}
}

// Tx implements [dialect.Driver].
func (d entTx) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// withEnt makes the calls that a generated client makes.
func withEnt(_ *testing.T, s site) book {
	name := dialect.SQLite
	if s.postgres {
		name = dialect.Postgres
	}
	return func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error) {
		driver := entIn(name, tx)
		batch := &sqlgraph.BatchCreateSpec{}
		for _, s := range sales {
			spec := sqlgraph.NewCreateSpec("sales", &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt64})
			spec.SetField("event", field.TypeString, s.Event)
			spec.SetField("pieces", field.TypeInt64, s.Pieces)
			batch.Nodes = append(batch.Nodes, spec)
		}
		if err := sqlgraph.BatchCreate(ctx, driver, batch); err != nil {
			return 0, err
		}
		for i, s := range sales {
			id := &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt64, Value: batch.Nodes[i].ID.Value}
			spec := sqlgraph.NewUpdateSpec("sales", []string{"id"}, id)
			spec.SetField("pieces", field.TypeInt64, s.Pieces*2)
			spec.Assign = func([]string, []any) error { return nil }
			spec.ScanValues = func(columns []string) ([]any, error) { return []any{new(int64)}, nil }
			if err := sqlgraph.UpdateNode(ctx, driver, spec); err != nil { // asks for a transaction
				return 0, err
			}
		}
		table := entsql.Dialect(name).Select(entsql.Sum("pieces")).From(entsql.Table("sales"))
		text, args := table.Where(entsql.EQ("event", sales[0].Event)).Query()
		rows := &entsql.Rows{}
		if err := driver.Query(ctx, text, args, rows); err != nil {
			return 0, err
		}
		err = entsql.ScanOne(rows, &sum)
		return sum, err
	}
}
