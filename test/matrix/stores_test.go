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

// shape is a kind of handler.
type shape string

const (
	on        shape = "`On`"
	onBatch   shape = "`OnBatch`"
	onTx      shape = "`OnTx`"
	onBatchTx shape = "`OnBatchTx`"
)

func (s shape) inTx() bool  { return s == onTx || s == onBatchTx }
func (s shape) batch() bool { return s == onBatch || s == onBatchTx }

// store is a store, with a row of the table for each shape that it supports.
type store struct {
	name   string
	shapes []shape
	// full are the shapes that are tested with all payloads. A store sees only the identity of an
	// event and never its value, so the other shapes are tested with JSON only.
	full []shape
	open func(t *testing.T) *opened // nil: no test has this store
}

// opened is a store with the effects of the combinations.
type opened struct {
	store dedup.Store
	// newEffects returns the effects of one combination in transactions. Nil: the store has no
	// transactions.
	newEffects func(name string) effects
}

// effectsOf returns the effects of one combination.
func (o *opened) effectsOf(s shape, name string) effects {
	if s.inTx() {
		return o.newEffects(name)
	}
	return new(memory)
}

// effects has the effects of the handlers of one combination.
type effects interface {
	all(t *testing.T) map[string]int
}

var (
	claimed = []shape{on, onBatch}
	inSQL   = []shape{on, onBatch, onTx, onBatchTx}
	onlyOn  = []shape{on}
	onlyTx  = []shape{onTx}
)

var stores = []store{
	{"`memstore`", claimed, onlyOn, func(*testing.T) *opened {
		return &opened{store: memstore.New(memstore.Volatile())}
	}},
	{"`redisstore`", claimed, onlyOn, openRedis},
	{"`redisstore`, Redis Cluster", claimed, nil, openCluster},
	{"`dynamostore`", claimed, onlyOn, openDynamo},
	{"`pgstore`", inSQL, []shape{on, onTx}, func(t *testing.T) *opened {
		s, pool := openPgstore(t)
		return &opened{s, func(name string) effects { return &pgxRows{pool, name} }}
	}},
	{"`sqlstore/postgres`, pgx", inSQL, onlyTx, func(t *testing.T) *opened { return openPostgres(t, "pgx") }},
	{"`sqlstore/postgres`, lib/pq", inSQL, onlyTx, func(t *testing.T) *opened { return openPostgres(t, "postgres") }},
	{"`sqlstore/mysql`, MariaDB", inSQL, onlyTx, openMariaDB},
	{"`sqlstore/mysql`, MySQL", inSQL, nil, nil},
	{"`sqlstore/sqlite`", inSQL, onlyTx, openSQLite},
}

func openRedis(t *testing.T) *opened {
	client, prefix := testenv.Redis(t)
	return &opened{store: redisstore.New(client, redisstore.Prefix(prefix))}
}

func openCluster(t *testing.T) *opened {
	client, prefix := testenv.RedisCluster(t)
	return &opened{store: redisstore.New(client, redisstore.Prefix(prefix))}
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
	return &opened{store: dynamostore.New(client, name)}
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
	return withRows(postgres.New(db), db, "INSERT INTO effects VALUES ($1, $2)",
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
	return withRows(mysql.New(db), db, "INSERT INTO effects VALUES (?, ?)",
		"SELECT name FROM effects WHERE combination = ?")
}

func openSQLite(t *testing.T) *opened {
	path := filepath.Join(t.TempDir(), "matrix.db")
	s, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db := openDB(t, "sqlite", path+"?_pragma=busy_timeout(10000)") // the store writes the file too
	_, err = db.ExecContext(t.Context(), effectTable)
	require.NoError(t, err)
	return withRows(s, db, "INSERT INTO effects VALUES (?, ?)", "SELECT name FROM effects WHERE combination = ?")
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func withRows(s dedup.Store, db *sql.DB, insert, read string) *opened {
	return &opened{s, func(name string) effects { return &sqlRows{db, insert, read, name} }}
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

// inTx are effects in transactions of the store.
type inTx[Tx any] interface {
	add(ctx context.Context, tx Tx, effect string) error
}

// register adds the handler of a combination.
func register[T any](r *idem.Router, kind string, as shape, to effects, amount func(T) int64) {
	switch to := to.(type) {
	case *memory:
		if !as.batch() {
			idem.On(r, kind, func(_ context.Context, e idem.Event[T]) error {
				to.add(effect(e.ID, amount(e.Data)))
				return nil
			})
			return
		}
		idem.OnBatch(r, kind, func(_ context.Context, batch []idem.Event[T]) error {
			for _, e := range batch {
				to.add(effect(e.ID, amount(e.Data)))
			}
			return nil
		})
	case *pgxRows:
		registerTx[T, pgx.Tx](r, kind, as, to, amount)
	case *sqlRows:
		registerTx[T, *sql.Tx](r, kind, as, to, amount)
	}
}

func registerTx[T, Tx any](
	r *idem.Router, kind string, as shape, to inTx[Tx], amount func(T) int64,
) {
	if !as.batch() {
		idem.OnTx(r, kind, func(ctx context.Context, tx Tx, e idem.Event[T]) error {
			return to.add(ctx, tx, effect(e.ID, amount(e.Data)))
		})
		return
	}
	idem.OnBatchTx(r, kind, func(ctx context.Context, tx Tx, batch []idem.Event[T]) error {
		for _, e := range batch {
			if err := to.add(ctx, tx, effect(e.ID, amount(e.Data))); err != nil {
				return err
			}
		}
		return nil
	})
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
