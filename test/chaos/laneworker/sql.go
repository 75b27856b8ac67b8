package main

import (
	"context"
	"database/sql"

	_ "github.com/go-sql-driver/mysql" // the drivers
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
)

// dialect has the differences between the databases of sqlstore.
type dialect struct {
	driver, insert string
	store          func(*sql.DB) *sqlstore.Store
}

var (
	onPostgres = dialect{"pgx", insert, postgres.New}
	onMariaDB  = dialect{
		"mysql", "INSERT INTO effects (`key`, seq, worker, kind) VALUES (?, ?, ?, ?)", mysql.New,
	}
)

var _ dedup.Deferrer = (*sqlstore.Store)(nil)

// openSQL has a store of package sqlstore, and the handlers that are KeyOrdered.
func openSQL(d dialect, dsn, worker string) (place, error) {
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		return place{}, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	all := newRouter()
	r := keyOrdered(all)
	idem.OnTx(r, "ordered-tx", func(ctx context.Context, tx *sql.Tx, e idem.Event[event]) error {
		_, err := tx.ExecContext(ctx, d.insert, e.Data.Key, e.Data.Seq, worker, "ordered-tx")
		if err == nil && e.Attempt <= failures(e.Data) {
			err = errBoom
		}
		return err
	})
	idem.On(r, "ordered-on", func(ctx context.Context, e idem.Event[event]) error {
		if e.Attempt <= failures(e.Data) {
			return errBoom
		}
		_, err := db.ExecContext(ctx, d.insert, e.Data.Key, e.Data.Seq, worker, "ordered-on")
		return err
	})
	return place{d.store(db), all, func() { _ = db.Close() }}, nil
}
