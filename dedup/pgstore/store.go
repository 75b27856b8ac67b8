package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The abilities of a Store.
var (
	_ dedup.TxStore[pgx.Tx] = (*Store)(nil)
	_ dedup.TxLimiter       = (*Store)(nil)
	_ dedup.Checker         = (*Store)(nil)
	_ dedup.StartCounter    = (*Store)(nil)
	_ dedup.Deferrer        = (*Store)(nil)
	_ dedup.Operator        = (*Store)(nil)
	_ dedup.Lister          = (*Store)(nil)
	_ dedup.Looker          = (*Store)(nil)
	_ dedup.TxLooker        = (*Store)(nil)
	_ dedup.ConflictNoter   = (*Store)(nil)

	_ dedup.TxRunner[pgx.Tx] = (*Store)(nil)
)

const (
	// acquireTimeout is how long a verb waits for a connection of the pool before the store counts as unavailable.
	acquireTimeout = 10 * time.Second
	// endTimeout bounds COMMIT and ROLLBACK, which the caller's context does not (P-16).
	endTimeout = 10 * time.Second
	// silence is how long the server may take to answer one question of the store. Its own time-outs are shorter: who hears nothing
	// for that long speaks to nobody, and a caller whose context never ends must not wait until the kernel finds out.
	silence = 30 * time.Second
	// attempts bounds every repetition inside one call: lost races, deadlocks, serialization failures.
	attempts = 3
	// claimAttempts bounds how often a claim asks again for the keys that changed while it looked. Each time it asks for fewer;
	// three, as for the rest, were too few where many workers take the same keys and give them back (P-04, rule 24).
	claimAttempts = 12
)

// Store keeps events in Postgres. It is safe for concurrent use and comparable with ==. Make it with [New] or [Open].
type Store struct {
	pool    *pgxpool.Pool
	owned   bool
	schema  string // "": found through the search path
	durable bool
	layout  layout
	wrong   error // an option that cannot be; every verb returns it

	silence time.Duration // [silence], but in tests

	mu  sync.Mutex // one look-up of the schema at a time
	sql atomic.Pointer[statements]

	events, keys expectation // in either way of remembering

	kinds   dictionary[kind] // of the compact layout
	origins dictionary[origin]
}

// Option changes what [New], [Open] and [Migrate] do.
type Option func(*Store)

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// InSchema names the schema that holds the tables. It must match ^[a-z_][a-z0-9_]{0,62}$ (G-05); otherwise every verb
// fails. Default: the first schema in the search path of the session that has the tables, looked up at the first call
// and kept; [Migrate] then takes the first schema that exists.
func InSchema(name string) Option {
	return func(s *Store) {
		if !identifier.MatchString(name) {
			s.wrong = fmt.Errorf("%w: schema name %.100q does not match %s", errOption, name, identifier)
		}
		s.schema = name
	}
}

// Durable makes the store's commits wait for the disk although synchronous_commit is off for the session (P-18). The
// handler's effects are in those commits. Default: as the session says. Off-switches of the server (fsync) and lagging
// standbys are beyond it.
func Durable() Option { return func(s *Store) { s.durable = true } }

// New returns a store that uses pool, which stays the caller's: [Store.Close] does nothing. It needs as many
// connections as transactions run at once, and some to spare for claims and probes (P-14). Configure the pool with
// [Configure], or set its session parameters in some other way. New does not connect; [Store.Check] tells whether the
// store can be used.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	s := &Store{pool: pool, layout: readable, silence: silence}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Close closes the pool if the store was made by [Open]. It waits until all connections are returned.
func (s *Store) Close() {
	if s.owned {
		s.pool.Close()
	}
}

// Ping asks the server for an answer. Its error matches [dedup.ErrUnavailable].
func (s *Store) Ping(ctx context.Context) error {
	conn, err := s.acquire(ctx)
	if err == nil {
		defer conn.Release()
		_, err = conn.Exec(ctx, "SELECT 1")
	}
	return s.failed(ctx, "ping", err)
}

// acquire waits for a connection, for a bounded time: a pool in which everybody waits must not stand still for ever.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if s.wrong != nil {
		return nil, s.wrong
	}
	bounded, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("no connection of the pool within %v: %w", acquireTimeout, err)
	}
	return conn, err
}

// statements returns the texts for the schema that holds the tables. The first call also looks whether the tables have the
// layout that the texts are for.
func (s *Store) statements(ctx context.Context) (*statements, error) {
	if q := s.sql.Load(); q != nil {
		return q, nil
	}
	if s.wrong != nil {
		return nil, s.wrong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.sql.Load(); q != nil {
		return q, nil
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, s.silence)
	defer cancel()
	return s.findStatements(ctx, conn.QueryRow)
}

// findStatements asks the server where the tables are and which layout they have.
func (s *Store) findStatements(ctx context.Context, row func(context.Context, string, ...any) pgx.Row) (_ *statements, err error) {
	schema := s.schema
	if schema == "" {
		err = row(ctx, findSchemaSQL).Scan(&schema)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoTables
	}
	if err != nil {
		return nil, err
	}
	q := newStatements(schema, s.layout)
	if err := s.checkLayout(ctx, q, row); err != nil {
		return nil, err
	}
	s.sql.Store(q)
	return q, nil
}

// ownTx runs queries in a transaction of the store's own, all in one round trip. read gets the results of queue's
// queries, in order. A transaction that lost against another one is run again, a bounded number of times.
func (s *Store) ownTx(ctx context.Context, verb string, queue func(*statements, *pgx.Batch),
	read func(pgx.BatchResults) error) error {
	q, err := s.statements(ctx)
	if err != nil {
		return s.failed(ctx, verb, err)
	}
	for try := 1; ; try++ {
		err = s.ownTxOnce(ctx, q, queue, read)
		if err == nil || try == attempts || !lostRace(err) {
			return s.failed(ctx, verb, err)
		}
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return s.failed(ctx, verb, pauseErr)
		}
	}
}

func (s *Store) ownTxOnce(ctx context.Context, q *statements, queue func(*statements, *pgx.Batch),
	read func(pgx.BatchResults) error) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	ctx, cancel := context.WithTimeout(ctx, s.silence)
	defer cancel()
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(q.beginClaims, milliseconds(lockWait), milliseconds(endTimeout), s.durable)
	queue(q, &b)
	b.Queue("commit")
	results := conn.SendBatch(ctx, &b)
	err = func() error {
		for range 2 { // begin and its settings
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		if err := read(results); err != nil {
			return err
		}
		tag, err := results.Exec()
		if err == nil && tag.String() != "COMMIT" {
			err = fmt.Errorf("commit answered %q", tag)
		}
		return err
	}()
	return cmp.Or(err, results.Close()) // closing tells what has failed already once more
}

// release returns conn to its pool without a transaction. Rolling back is cheaper than the new connection that the pool
// would make instead, and the caller's context may have ended (P-16).
func release(ctx context.Context, conn *pgxpool.Conn) {
	if c := conn.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = c.Exec(end, "rollback") // if it fails the pool closes the connection
	}
	giveBack(conn)
}
