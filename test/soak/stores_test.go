package soak

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	goredis "github.com/redis/go-redis/v9"
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

// connections is the size of the pool of a worker.
const connections = 8

// place is where a store keeps its records.
type place struct {
	Store storeName
	URL   string // a DSN, an address or a path
	Name  string // a prefix or a table
	// Through has the proxies of the worker by the address of the server.
	Through map[string]string
}

// opened is the store of a worker.
type opened struct {
	store    dedup.Store
	register func(*idem.Router, *worker) // handlers in a transaction; nil for stores without one
	close    func()
}

// open opens the store of a worker.
func (p place) open(ctx context.Context, r recorder) (opened, error) {
	url := p.URL
	for addr, proxy := range p.Through {
		url = strings.ReplaceAll(url, addr, proxy)
	}
	switch p.Store {
	case pg:
		return openPgstore(ctx, url, r)
	case sqlPG:
		db, err := openDB("pgx", url+"&"+postgres.Parameters)
		if err != nil {
			return opened{}, err
		}
		return inDB(&recordedSQL{postgres.New(db), r}, insertPostgres, db.Close), nil
	case sqlMaria:
		db, err := openDB("mysql", url)
		if err != nil {
			return opened{}, err
		}
		return inDB(&recordedSQL{mysql.New(db), r}, insertOther, db.Close), nil
	case onSQLite:
		s, err := sqlite.Open(ctx, url)
		if err != nil {
			return opened{}, err
		}
		return inDB(&recordedSQL{s, r}, insertOther, s.Close), nil
	case onRedis:
		c := goredis.NewClient(&goredis.Options{Addr: url})
		return opened{&recordedRedis{redisstore.New(c, redisstore.Prefix(p.Name)), r}, nil, func() { _ = c.Close() }}, nil
	case onCluster: // the nodes name each other: the dialer has the proxies
		c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: strings.Split(p.URL, ","), Dialer: p.dial})
		return opened{&recordedRedis{redisstore.New(c, redisstore.Prefix(p.Name)), r}, nil, func() { _ = c.Close() }}, nil
	case onDynamo:
		return opened{&recordedDynamo{dynamostore.New(dynamoClient(url), p.Name), r}, nil, func() {}}, nil
	case inMemory:
		return opened{&recordedMemory{memstore.New(memstore.Volatile()), r}, nil, func() {}}, nil
	}
	return opened{}, fmt.Errorf("no store %q", p.Store)
}

func (p place) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy, ok := p.Through[addr]; ok {
		addr = proxy
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

const createEffects = "CREATE TABLE effects (n bigint NOT NULL)"

func openPgstore(ctx context.Context, url string, r recorder) (opened, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return opened{}, err
	}
	cfg.MaxConns = connections
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return opened{}, err
	}
	insert := func(ctx context.Context, tx pgx.Tx, numbers []uint32) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects SELECT unnest($1::bigint[])", numbers)
		return err
	}
	return inTx(&recordedPg{pgstore.New(pool), r}, insert, pool.Close), nil
}

func openDB(driver, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// insertPostgres and insertOther return a statement that inserts n rows.
func insertPostgres(n int) string {
	var s strings.Builder
	s.WriteString("INSERT INTO effects VALUES ")
	for i := range n {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "($%d)", i+1)
	}
	return s.String()
}

func insertOther(n int) string {
	return "INSERT INTO effects VALUES " + strings.TrimSuffix(strings.Repeat("(?), ", n), ", ")
}

// inDB has effects in a transaction of package sql.
func inDB(s dedup.TxStore[*sql.Tx], statement func(n int) string, closeDB func() error) opened {
	insert := func(ctx context.Context, tx *sql.Tx, numbers []uint32) error {
		args := make([]any, len(numbers))
		for i, n := range numbers {
			args[i] = n
		}
		_, err := tx.ExecContext(ctx, statement(len(numbers)), args...)
		return err
	}
	return inTx(s, insert, func() { _ = closeDB() })
}

// inTx has handlers that insert a row for each event.
func inTx[Tx any](s dedup.TxStore[Tx], insert func(context.Context, Tx, []uint32) error, end func()) opened {
	return opened{store: s, close: end, register: func(r *idem.Router, w *worker) {
		if w.Kind == onTx {
			idem.OnTx(r, eventType, func(ctx context.Context, tx Tx, e idem.Event[event]) error {
				w.handled.Add(1)
				return insert(ctx, tx, []uint32{e.Data.N})
			})
			return
		}
		idem.OnBatchTx(r, eventType, func(ctx context.Context, tx Tx, all []idem.Event[event]) error {
			w.handled.Add(int64(len(all)))
			numbers := make([]uint32, len(all))
			for i, e := range all {
				numbers[i] = e.Data.N
			}
			return insert(ctx, tx, numbers)
		})
	}}
}

func dynamoClient(url string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// base is a store as the test sees it.
type base struct {
	place place
	addrs []string // of the servers, to be put behind proxies
	db    *sql.DB  // with the table effects; nil without transactions
}

// prepare makes the tables of a store.
func prepare(t testing.TB, s storeName) base {
	t.Helper()
	switch s {
	case pg, sqlPG:
		url := testenv.Postgres(t)
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		defer pool.Close()
		require.NoError(t, pgstore.Migrate(t.Context(), pool))
		cfg := pool.Config().ConnConfig
		return base{place{Store: s, URL: url}, []string{fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)}, withEffects(t, "pgx", url)}
	case sqlMaria:
		dsn := testenv.MariaDB(t)
		db := withEffects(t, "mysql", dsn)
		require.NoError(t, mysql.Migrate(t.Context(), db))
		_, rest, _ := strings.Cut(dsn, "@tcp(")
		addr, _, _ := strings.Cut(rest, ")")
		return base{place{Store: s, URL: dsn}, []string{addr}, db}
	case onSQLite:
		path := filepath.Join(t.TempDir(), "soak.db")
		store, err := sqlite.Open(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, store.Close())
		return base{place{Store: s, URL: path}, nil, withEffects(t, "sqlite", path+"?_pragma=busy_timeout(10000)")}
	case onRedis:
		c, prefix := testenv.Redis(t)
		return base{place{Store: s, URL: c.Options().Addr, Name: prefix}, []string{c.Options().Addr}, nil}
	case onCluster:
		_, prefix := testenv.RedisCluster(t)
		addrs := testenv.RedisClusterOptions(t).Addrs
		return base{place{Store: s, URL: strings.Join(addrs, ","), Name: prefix}, addrs, nil}
	case onDynamo:
		url := os.Getenv("DYNAMODB_URL")
		client, name := dynamoClient(url), "soak-"+rand.Text()
		require.NoError(t, dynamostore.Migrate(t.Context(), client, name))
		t.Cleanup(func() {
			_, _ = client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: aws.String(name)})
		})
		return base{place{Store: s, URL: url, Name: name}, []string{strings.TrimPrefix(url, "http://")}, nil}
	case inMemory:
	}
	return base{place: place{Store: s}}
}

func withEffects(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := openDB(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), createEffects)
	require.NoError(t, err)
	return db
}
