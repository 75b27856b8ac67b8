package orms

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/testenv"
)

// Sale is a row, and the data of an event.
type Sale struct {
	ID     int64  `json:"-"`
	Event  string `json:"event_id"`
	Pieces int64  `json:"pieces"`
}

// book inserts sales in the transaction, doubles their pieces, and returns the pieces that the
// transaction sees of the first one's event.
type book func(ctx context.Context, tx *sql.Tx, sales []Sale) (sum int64, err error)

var orms = map[string]func(*testing.T, site) book{
	"gorm": withGorm, "bun": withBun, "sqlx": withSqlx, "sqlc": withSqlc, "ent": withEnt,
}

// generated is the ORM with code that was generated for SQLite alone.
const generated = "sqlc"

// site is a store, and the database of its transactions.
type site struct {
	store    dedup.Store
	db       *sql.DB
	postgres bool
}

// sites returns a new database of each kind. Postgres needs POSTGRES_URL.
func sites(t *testing.T) map[string]site {
	t.Helper()
	all := map[string]site{"sqlite": newSQLite(t)}
	if os.Getenv("POSTGRES_URL") != "" || os.Getenv("IDEM_REQUIRE_SERVICES") != "" {
		all["postgres"] = newPostgres(t)
	}
	return all
}

func newSQLite(t *testing.T) site {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE sales (id integer PRIMARY KEY, event text NOT NULL, pieces integer NOT NULL)")
	require.NoError(t, err)
	return site{store: store, db: db}
}

func newPostgres(t *testing.T) site {
	t.Helper()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(),
		"CREATE TABLE sales (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL, pieces bigint NOT NULL)")
	require.NoError(t, err)
	return site{store: postgres.New(db), db: db, postgres: true}
}

// rows returns the number of rows of each event.
func (s site) rows(t *testing.T) map[string]int {
	t.Helper()
	found, err := s.db.QueryContext(t.Context(), "SELECT event, count(*) FROM sales GROUP BY event")
	require.NoError(t, err)
	defer found.Close()
	rows := map[string]int{}
	for found.Next() {
		var event string
		var n int
		require.NoError(t, found.Scan(&event, &n))
		rows[event] = n
	}
	require.NoError(t, found.Err())
	return rows
}

const (
	single = "sold"  // handled by OnTx
	many   = "batch" // handled by OnBatchTx
)

// processor delivers events to handlers of both kinds.
type processor struct {
	*idem.Processor
	dead   *producer
	offset int64
}

// producer counts dead letters.
type producer struct {
	mu sync.Mutex
	n  int
}

func (p *producer) Produce(_ context.Context, messages ...*idem.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += len(messages)
	return nil
}

func newProcessor(t *testing.T, s site, handle func(context.Context, *sql.Tx, []Sale) error) *processor {
	t.Helper()
	router := idem.NewRouter()
	idem.OnTx(router, single, func(ctx context.Context, tx *sql.Tx, e idem.Event[Sale]) error {
		return handle(ctx, tx, []Sale{e.Data})
	})
	idem.OnBatchTx(router, many, func(ctx context.Context, tx *sql.Tx, events []idem.Event[Sale]) error {
		sales := make([]Sale, len(events))
		for i, e := range events {
			sales[i] = e.Data
		}
		return handle(ctx, tx, sales)
	})
	dead := &producer{}
	p, err := idem.NewProcessor(router, idem.Config{
		Store: s.store, Scope: "orms", Producer: dead, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return &processor{Processor: p, dead: dead}
}

// deliver delivers the events in one batch.
func (p *processor) deliver(t *testing.T, kind string, ids ...string) {
	t.Helper()
	batch := make([]*idem.Message, len(ids))
	for i, id := range ids {
		p.offset++
		batch[i] = &idem.Message{
			Topic: "sales", Offset: p.offset,
			Value: fmt.Appendf(nil, `{"event_id":%q,"type":%q,"pieces":3}`, id, kind),
		}
	}
	settled, err := p.HandleBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, len(batch), settled)
}

var errTransient = errors.New("after the write")

// inEach runs f for each ORM on each database.
func inEach(t *testing.T, f func(*testing.T, site, book)) {
	t.Helper()
	for name, with := range orms {
		t.Run(name, func(t *testing.T) {
			for db, s := range sites(t) {
				if name == generated && s.postgres {
					continue
				}
				t.Run(db, func(t *testing.T) { f(t, s, with(t, s)) })
			}
		})
	}
}

// A copy of an event has no second effect, and the rows are those of the transaction with the mark.
func TestDuplicates(t *testing.T) {
	inEach(t, func(t *testing.T, s site, book book) {
		p := newProcessor(t, s, func(ctx context.Context, tx *sql.Tx, sales []Sale) error {
			sum, err := book(ctx, tx, sales)
			if err == nil && sum != 6 {
				err = fmt.Errorf("the transaction sees %d pieces", sum)
			}
			return err
		})
		want := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}
		for range 2 {
			p.deliver(t, single, "a", "b", "a")
			p.deliver(t, many, "c", "d", "c")
			require.Equal(t, want, s.rows(t))
		}
		require.Zero(t, p.dead.n)
	})
}

// After an error the writes are gone, and the event runs again.
func TestRollback(t *testing.T) {
	for _, kind := range []string{single, many} {
		t.Run(kind, func(t *testing.T) {
			inEach(t, func(t *testing.T, s site, book book) {
				runs := 0
				p := newProcessor(t, s, func(ctx context.Context, tx *sql.Tx, sales []Sale) error {
					runs++
					sum, err := book(ctx, tx, sales)
					require.NoError(t, err)
					require.EqualValues(t, 6, sum, "the writes of the run before are gone")
					if runs == 1 {
						require.Empty(t, s.rows(t), "another connection sees nothing before the commit")
						return errTransient
					}
					return nil
				})
				p.deliver(t, kind, "a")
				require.Equal(t, 2, runs)
				require.Equal(t, map[string]int{"a": 1}, s.rows(t))
				p.deliver(t, kind, "a")
				require.Equal(t, 2, runs)
				require.Zero(t, p.dead.n)
			})
		})
	}
}

// One event of a batch is refused after the write: the others are written once, and that one is a
// dead letter without effect.
func TestBatchWithRefusedEvent(t *testing.T) {
	inEach(t, func(t *testing.T, s site, book book) {
		p := newProcessor(t, s, func(ctx context.Context, tx *sql.Tx, sales []Sale) error {
			if _, err := book(ctx, tx, sales); err != nil {
				return err
			}
			for i, sale := range sales {
				if sale.Event == "b" {
					return idem.BatchError{i: idem.Permanent(errors.New("sold out"))}
				}
			}
			return nil
		})
		p.deliver(t, many, "a", "b", "c")
		require.Equal(t, map[string]int{"a": 1, "c": 1}, s.rows(t))
		require.Equal(t, 1, p.dead.n)
	})
}
