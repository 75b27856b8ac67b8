package cells

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
	"time"

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
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// place is where a store keeps its records, as a worker needs it.
type place struct {
	Store store
	URL   string // a DSN, an address or a path
	Name  string // a prefix or a table
	// Through has proxies by the address of the server.
	Through map[string]string
}

// dial connects through the proxy of an address, if there is one.
func (p place) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy, ok := p.Through[addr]; ok {
		addr = proxy
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// url returns the URL with the address of the proxy.
func (p place) url() string {
	url := p.URL
	for addr, proxy := range p.Through {
		url = strings.ReplaceAll(url, addr, proxy)
	}
	return url
}

// opened is the store of a worker. The functions for transactions are nil without transactions.
type opened struct {
	store     dedup.Store
	close     func()
	handleTx  func(*idem.Router, *worker)
	doTx      func(context.Context, *dedup.Guard, dedup.Key, *worker) (run string, err error)
	newHTTPTx func(httpidem.Config, *worker) (*httpidem.Middleware, func(context.Context) (run string, err error), error)
}

// open opens the store, with the steps of the worker around its calls.
func (p place) open(ctx context.Context, w *worker) (*opened, error) {
	switch p.Store {
	case pg:
		cfg, err := pgxpool.ParseConfig(p.url())
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = 4
		pgstore.Configure(cfg)
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		o := withTx(&pgGate{pgstore.New(pool), w}, func(ctx context.Context, tx pgx.Tx, run string) error {
			_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", w.Topic, run)
			return err
		})
		o.close = pool.Close
		return o, nil
	case sqlPG:
		db, err := openDB("pgx", p.url()+"&"+postgres.Parameters)
		if err != nil {
			return nil, err
		}
		return withDB(&sqlGate{postgres.New(db), w}, w, "INSERT INTO effects VALUES ($1, $2)", db.Close), nil
	case sqlMaria:
		db, err := openDB("mysql", p.url()+"?wait_timeout=6") // of sessions without a living process
		if err != nil {
			return nil, err
		}
		return withDB(&sqlGate{mysql.New(db), w}, w, "INSERT INTO effects VALUES (?, ?)", db.Close), nil
	case onSQLite:
		s, err := sqlite.Open(ctx, p.URL, sqlite.NoReaper()) // a stopped reaper would lock the file
		if err != nil {
			return nil, err
		}
		return withDB(&sqlGate{s, w}, w, "INSERT INTO effects VALUES (?, ?)", s.Close), nil
	case onRedis:
		c := goredis.NewClient(&goredis.Options{Addr: p.URL, Dialer: p.dial})
		return &opened{store: &redisGate{redisstore.New(c, redisstore.Prefix(p.Name)), w}, close: func() { _ = c.Close() }}, nil
	case onCluster:
		c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: strings.Split(p.URL, ","), Dialer: p.dial})
		return &opened{store: &redisGate{redisstore.New(c, redisstore.Prefix(p.Name)), w}, close: func() { _ = c.Close() }}, nil
	case onDynamo:
		return &opened{store: &dynamoGate{dynamostore.New(dynamoClient(p.url()), p.Name), w}, close: func() {}}, nil
	case inMemory:
		return &opened{store: &memoryGate{memstore.New(memstore.Volatile()), w}, close: func() {}}, nil
	}
	return nil, fmt.Errorf("no store %q", p.Store)
}

func openDB(driver, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return db, nil
}

// withDB has effects in a transaction of package sql.
func withDB(g *sqlGate, w *worker, insert string, closeDB func() error) *opened {
	o := withTx(g, func(ctx context.Context, tx *sql.Tx, run string) error {
		_, err := tx.ExecContext(ctx, insert, w.Topic, run)
		return err
	})
	o.close = func() { _ = closeDB() }
	return o
}

// withTx has every kind of work in a transaction, which inserts one row.
func withTx[Tx any](s dedup.TxStore[Tx], insert func(ctx context.Context, tx Tx, run string) error) *opened {
	effect := func(ctx context.Context, tx Tx, w *worker) (string, error) {
		return w.effectTx(func(run string) error { return insert(ctx, tx, run) })
	}
	return &opened{
		store: s,
		handleTx: func(r *idem.Router, w *worker) {
			if w.Kind == onTx {
				idem.OnTx(r, eventType, func(ctx context.Context, tx Tx, _ idem.Event[event]) error {
					_, err := effect(ctx, tx, w)
					return err
				})
				return
			}
			idem.OnBatchTx(r, eventType, func(ctx context.Context, tx Tx, events []idem.Event[event]) error {
				for range events {
					if _, err := effect(ctx, tx, w); err != nil {
						return err
					}
				}
				return nil
			})
		},
		doTx: func(ctx context.Context, g *dedup.Guard, key dedup.Key, w *worker) (string, error) {
			run, _, err := dedup.DoTx(ctx, g, key, callLimit, func(ctx context.Context, tx Tx) (string, error) {
				return effect(ctx, tx, w)
			})
			return run, err
		},
		newHTTPTx: func(cfg httpidem.Config, w *worker) (*httpidem.Middleware, func(context.Context) (string, error), error) {
			m, err := httpidem.NewTx[Tx](cfg)
			return m, func(ctx context.Context) (string, error) {
				tx, ok := httpidem.TxFrom[Tx](ctx)
				if !ok {
					return "", fmt.Errorf("the request has no transaction")
				}
				return effect(ctx, tx, w)
			}, err
		},
	}
}

func dynamoClient(url string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// base is a store as the test sees it. Every cell of the store uses it, but for those of SQLite.
type base struct {
	place place
	addrs []string                                  // of the servers, to be put behind proxies
	runs  func(t testing.TB, topic string) []string // of the effects in the database
}

const (
	effectTable = "CREATE TABLE effects (topic varchar(200) NOT NULL, run varchar(200) NOT NULL)"
	listEffects = "SELECT run FROM effects WHERE topic = "
)

// openBase prepares the store for its cells.
func openBase(t testing.TB, s store) *base {
	t.Helper()
	switch s {
	case pg, sqlPG:
		url := testenv.Postgres(t)
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		require.NoError(t, pgstore.Migrate(t.Context(), pool))
		_, err = pool.Exec(t.Context(), effectTable)
		require.NoError(t, err)
		cfg := pool.Config().ConnConfig
		return &base{place{Store: s, URL: url}, []string{fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)},
			func(t testing.TB, topic string) (runs []string) {
				require.Eventually(t, func() bool { // connections from before a restart may be in the pool
					rows, err := pool.Query(t.Context(), listEffects+"$1", topic)
					if err == nil {
						runs, err = pgx.CollectRows(rows, pgx.RowTo[string])
					}
					return err == nil
				}, 10*time.Second, 20*time.Millisecond, "the effects cannot be read")
				return runs
			}}
	case sqlMaria:
		dsn := testenv.MariaDB(t)
		db, err := openDB("mysql", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		require.NoError(t, mysql.Migrate(t.Context(), db))
		_, err = db.ExecContext(t.Context(), effectTable)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(dsn, "@tcp(")
		addr, _, _ := strings.Cut(rest, ")")
		return &base{place{Store: s, URL: dsn}, []string{addr}, listIn(db)}
	case onRedis:
		c, prefix := testenv.Redis(t)
		return &base{place: place{Store: s, URL: c.Options().Addr, Name: prefix}, addrs: []string{c.Options().Addr}}
	case onCluster:
		_, prefix := testenv.RedisCluster(t)
		addrs := testenv.RedisClusterOptions(t).Addrs
		return &base{place: place{Store: s, URL: strings.Join(addrs, ","), Name: prefix}, addrs: addrs}
	case onDynamo:
		url := os.Getenv("DYNAMODB_URL")
		client, name := dynamoClient(url), "test-"+rand.Text()
		require.NoError(t, dynamostore.Migrate(t.Context(), client, name))
		t.Cleanup(func() {
			_, _ = client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: aws.String(name)})
		})
		return &base{place: place{Store: s, URL: url, Name: name}, addrs: []string{strings.TrimPrefix(url, "http://")}}
	case inMemory, onSQLite:
	}
	return &base{place: place{Store: s}}
}

// openFile prepares a file of SQLite: a cell has one of its own, since it has one writer at a time.
func openFile(t testing.TB) *base {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.db")
	s, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	db, err := openDB("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), effectTable)
	require.NoError(t, err)
	return &base{place{Store: onSQLite, URL: path}, nil, listIn(db)}
}

func listIn(db *sql.DB) func(testing.TB, string) []string {
	return func(t testing.TB, topic string) (runs []string) {
		rows, err := db.QueryContext(t.Context(), listEffects+"?", topic)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var run string
			require.NoError(t, rows.Scan(&run))
			runs = append(runs, run)
		}
		require.NoError(t, rows.Err())
		return runs
	}
}
