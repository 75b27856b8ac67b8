package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/stretchr/testify/require"
)

// site is where the tables of a store are.
type site struct {
	dsn string
	db  *sql.DB
}

var sites sync.Map // by store

func siteOf(s dedup.Store) site {
	v, _ := sites.Load(s)
	return v.(site)
}

// newTables returns the connection string of a new database with the tables.
func newTables(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("IDEM_MARIADB_DSN")
	if dsn == "" {
		require.Empty(t, os.Getenv("IDEM_REQUIRE_SERVICES"), "IDEM_MARIADB_DSN is not set")
		t.Skip("IDEM_MARIADB_DSN is not set")
	}
	admin, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	name := "test_" + strings.ToLower(rand.Text())
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name)
		require.NoError(t, err)
		require.NoError(t, admin.Close())
	})
	cfg, err := my.ParseDSN(dsn)
	require.NoError(t, err)
	cfg.DBName = name
	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, mysql.Migrate(t.Context(), db))
	require.NoError(t, mysql.Migrate(t.Context(), db))
	_, err = db.ExecContext(t.Context(), "CREATE TABLE effects (name text NOT NULL) ENGINE = InnoDB")
	require.NoError(t, err)
	return cfg.FormatDSN()
}

func open(t testing.TB, dsn string) *sqlstore.Store {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = db.Close() })
	s := mysql.New(db)
	sites.Store(s, site{dsn, db})
	return s
}

func setHorizon(t testing.TB, s dedup.Store, scope string, before time.Time) {
	t.Helper()
	_, err := siteOf(s).db.ExecContext(t.Context(), "REPLACE INTO idem_horizons (scope, `before`) VALUES (?, ?)",
		scope, before.UTC().Format("2006-01-02 15:04:05.000000"))
	require.NoError(t, err)
}

func harness() storetest.Harness {
	return storetest.Harness{
		New:  func(t testing.TB) dedup.Store { return open(t, newTables(t)) },
		Peer: func(t testing.TB, s dedup.Store) dedup.Store { return open(t, siteOf(s).dsn) },
		Down: func(t testing.TB) dedup.Store {
			return open(t, "nobody@tcp("+testenv.FreeAddr(t)+")/nothing")
		},
		Horizon: setHorizon,
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

func TestDeferrerConformance_Rule4(t *testing.T) { storetest.RunDeferrer(t, harness()) }

func TestOperatorConformance(t *testing.T) { storetest.RunOperator(t, harness()) }

func TestTxConformance(t *testing.T) {
	storetest.RunTx(t, storetest.TxHarness[*sql.Tx]{
		New: func(t testing.TB) dedup.TxStore[*sql.Tx] { return open(t, newTables(t)) },
		Exec: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
			return err
		},
		Count: func(t testing.TB, s dedup.TxStore[*sql.Tx], name string) (n int) {
			require.NoError(t, siteOf(s).db.QueryRowContext(context.WithoutCancel(t.Context()),
				"SELECT count(*) FROM effects WHERE name = ?", name).Scan(&n))
			return n
		},
		Raw: func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		},
		Slow: "SELECT SLEEP(60)", Horizon: setHorizon,
		Missing: []storetest.Ability{storetest.TxCheck, storetest.Savepoints,
			storetest.TxKeep, storetest.TxGoesOn, storetest.TxAborts},
	})
}
