package matrix

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	mariadb "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              // the driver "postgres"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/testenv"
)

// store is a row of the table.
type store struct {
	name string
	open func(t *testing.T) *opened
}

// opened is a store with the effects of the combinations.
type opened struct {
	store dedup.Store
	// newEffects returns the effects of one combination.
	newEffects func(t *testing.T, name string) effects
}

// effects has what the handlers of one combination did.
type effects interface {
	all(t *testing.T) map[string]int
}

var stores = []store{
	{"`memstore`, `On`", func(*testing.T) *opened { return claims(memstore.New(memstore.Volatile())) }},
	{"`redisstore`, `On`", openRedis},
	{"`dynamostore`, `On`", openDynamo},
	{"`pgstore`, `On`", func(t *testing.T) *opened { s, _ := openPgstore(t); return claims(s) }},
	{"`pgstore`, `OnTx`", func(t *testing.T) *opened {
		s, pool := openPgstore(t)
		return &opened{s, func(_ *testing.T, name string) effects { return &pgxRows{pool, name} }}
	}},
	{"`sqlstore/postgres` (pgx), `OnTx`", func(t *testing.T) *opened { return openPostgres(t, "pgx") }},
	{"`sqlstore/postgres` (lib/pq), `OnTx`", func(t *testing.T) *opened { return openPostgres(t, "postgres") }},
	{"`sqlstore/mysql` (MariaDB), `OnTx`", openMariaDB},
	{"`sqlstore/sqlite`, `OnTx`", openSQLite},
}

func claims(s dedup.Store) *opened {
	return &opened{s, func(*testing.T, string) effects { return new(memory) }}
}

func openRedis(t *testing.T) *opened {
	client, prefix := testenv.Redis(t)
	return claims(redisstore.New(client, redisstore.Prefix(prefix)))
}

func openDynamo(t *testing.T) *opened {
	url := env(t, "DYNAMODB_URL")
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	name := "test-" + rand.Text()
	require.NoError(t, dynamostore.Migrate(t.Context(), client, name))
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: aws.String(name)})
		require.NoError(t, err)
	})
	return claims(dynamostore.New(client, name))
}

const effectTable = "CREATE TABLE effects (combination varchar(200) NOT NULL, name varchar(200) NOT NULL)"

func openPgstore(t *testing.T) (*pgstore.Store, *pgxpool.Pool) {
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), effectTable)
	require.NoError(t, err)
	return pgstore.New(pool), pool
}

func openPostgres(t *testing.T, driver string) *opened {
	_, pool := openPgstore(t)
	db := openDB(t, driver, pool.Config().ConnString()+"&"+postgres.Parameters)
	return inSQL(postgres.New(db), db, "INSERT INTO effects VALUES ($1, $2)",
		"SELECT name FROM effects WHERE combination = $1")
}

func openMariaDB(t *testing.T) *opened {
	admin := openDB(t, "mysql", env(t, "IDEM_MARIADB_DSN"))
	name := "test_" + strings.ToLower(rand.Text())
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name)
		require.NoError(t, err)
	})
	cfg, err := mariadb.ParseDSN(env(t, "IDEM_MARIADB_DSN"))
	require.NoError(t, err)
	cfg.DBName = name
	db := openDB(t, "mysql", cfg.FormatDSN())
	require.NoError(t, mysql.Migrate(t.Context(), db))
	_, err = db.ExecContext(t.Context(), effectTable)
	require.NoError(t, err)
	return inSQL(mysql.New(db), db, "INSERT INTO effects VALUES (?, ?)",
		"SELECT name FROM effects WHERE combination = ?")
}

func openSQLite(t *testing.T) *opened {
	path := filepath.Join(t.TempDir(), "matrix.db")
	s, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db := openDB(t, "sqlite", path)
	_, err = db.ExecContext(t.Context(), effectTable)
	require.NoError(t, err)
	return inSQL(s, db, "INSERT INTO effects VALUES (?, ?)", "SELECT name FROM effects WHERE combination = ?")
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func inSQL(s dedup.Store, db *sql.DB, insert, read string) *opened {
	return &opened{s, func(_ *testing.T, name string) effects { return &sqlRows{db, insert, read, name} }}
}

// pgxRows are effects in the transactions of pgstore.
type pgxRows struct {
	pool *pgxpool.Pool
	name string
}

func (e *pgxRows) add(ctx context.Context, tx pgx.Tx, effect string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", e.name, effect)
	return err
}

func (e *pgxRows) all(t *testing.T) map[string]int {
	rows, err := e.pool.Query(t.Context(), "SELECT name FROM effects WHERE combination = $1", e.name)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return counts(names)
}

// sqlRows are effects in the transactions of a sqlstore.
type sqlRows struct {
	db           *sql.DB
	insert, read string
	name         string
}

func (e *sqlRows) add(ctx context.Context, tx *sql.Tx, effect string) error {
	_, err := tx.ExecContext(ctx, e.insert, e.name, effect)
	return err
}

func (e *sqlRows) all(t *testing.T) map[string]int {
	rows, err := e.db.QueryContext(t.Context(), e.read, e.name)
	require.NoError(t, err)
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return counts(names)
}

func counts(names []string) map[string]int {
	all := make(map[string]int)
	for _, name := range names {
		all[name]++
	}
	return all
}

// register adds the handler of a combination: in the transaction of the store, if it has one.
func register[T any](r *idem.Router, to effects, amount func(T) int64) {
	const kind = "payment.completed"
	switch to := to.(type) {
	case *memory:
		idem.On(r, kind, func(_ context.Context, e idem.Event[T]) error {
			to.add(effect(e.ID, amount(e.Data)))
			return nil
		})
	case *pgxRows:
		idem.OnTx(r, kind, func(ctx context.Context, tx pgx.Tx, e idem.Event[T]) error {
			return to.add(ctx, tx, effect(e.ID, amount(e.Data)))
		})
	case *sqlRows:
		idem.OnTx(r, kind, func(ctx context.Context, tx *sql.Tx, e idem.Event[T]) error {
			return to.add(ctx, tx, effect(e.ID, amount(e.Data)))
		})
	}
}

// env returns a variable. Without it the test is skipped, or fails if IDEM_REQUIRE_SERVICES is set.
func env(t *testing.T, name string) string {
	value := os.Getenv(name)
	if value == "" {
		require.Empty(t, os.Getenv("IDEM_REQUIRE_SERVICES"), "%s is not set", name)
		t.Skipf("%s is not set: run `make up`", name)
	}
	return value
}
