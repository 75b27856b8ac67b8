package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// acquireTimeout is how long a verb waits for a connection of the pool. Then the store counts
	// as unavailable.
	acquireTimeout = 10 * time.Second
	// silence is how long the server may take to answer one call. The server's own time-outs are
	// shorter, so after that time the connection is dead. A caller with an endless context does
	// not wait until the kernel notices.
	silence = 30 * time.Second
	// attempts bounds the repeats inside one call: lost races, deadlocks, serialization failures.
	attempts = 3
	// lockWait is how long a single request waits for the transaction that holds the key (rule
	// 10).
	lockWait = 2 * time.Second
)

// beginSQL names the isolation level, independent of default_transaction_isolation (P-02). The
// statement omits READ WRITE, so that a database set to read-only stays read-only (P-26).
const beginSQL = "begin isolation level read committed"

// findSchemaSQL looks for the tables along the search path.
var findSchemaSQL = pgschema.FindSQL("idem_schema")

// database is the connection of a [Store] to the tables.
type database struct {
	pool    *pgxpool.Pool
	schema  string // "": searched along the search path
	durable bool
	layout  layout
	wrong   error         // an invalid option, which every method returns
	silence time.Duration // shorter in tests

	mu  sync.Mutex // one search for the schema at a time
	sql atomic.Pointer[statements]
}

// setup describes the tables for the advice in errors.
func (d *database) setup() setup {
	found := ""
	if q := d.sql.Load(); q != nil {
		found = q.schema
	}
	return setup{pool: d.pool, schema: d.schema, found: found, layout: d.layout}
}

// acquire waits for a connection for a bounded time. Callers that wait for each other's connections
// would otherwise wait for ever.
func (d *database) acquire(ctx context.Context) (session, error) {
	if d.wrong != nil {
		return session{}, d.wrong
	}
	bounded, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := d.pool.Acquire(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("no connection of the pool within %v: %w", acquireTimeout, err)
	}
	return session{conn}, err
}

// statements returns the texts for the schema that holds the tables. The first call also checks the
// layout of the tables.
func (d *database) statements(ctx context.Context) (*statements, error) {
	if q := d.sql.Load(); q != nil {
		return q, nil
	}
	if d.wrong != nil {
		return nil, d.wrong
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.sql.Load(); q != nil {
		return q, nil
	}
	conn, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.poolConn.Release()
	ctx, cancel := context.WithTimeout(ctx, d.silence)
	defer cancel()
	return d.findStatements(ctx, conn.QueryRow)
}

// findStatements asks the server for the place and the layout of the tables.
func (d *database) findStatements(ctx context.Context,
	row func(context.Context, string, ...any) pgx.Row) (_ *statements, err error) {
	schema := d.schema
	if schema == "" {
		err = row(ctx, findSchemaSQL).Scan(&schema)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoTables
	}
	if err != nil {
		return nil, err
	}
	q := newStatements(schema, d.layout)
	if err := checkLayout(ctx, d.layout, q, row); err != nil {
		return nil, err
	}
	d.sql.Store(q)
	return q, nil
}

// checkLayout compares the layout on record with want.
func checkLayout(ctx context.Context, want layout, q *statements,
	row func(context.Context, string, ...any) pgx.Row) error {
	var found string
	if err := row(ctx, q.layout).Scan(&found); err != nil {
		return err
	}
	if layout(found) != want {
		return layoutError(want, found)
	}
	return nil
}

// layoutError reports that the tables do not have the layout of the option.
func layoutError(want layout, found string) error {
	fix := "give pgstore.Compact to New, Open and Migrate"
	if layout(found) == readable {
		fix = "leave pgstore.Compact away"
	}
	return fmt.Errorf("%w: the tables have the %s layout, the store is for the %s one: %s, or "+
		"use another schema; a layout cannot be changed", errLayout, found, want, fix)
}

// failed explains an error of one of the store's own statements. The keys are valid, so the event
// is not the cause. The error matches ErrUnavailable, and the event is not given up. Exceptions:
// the caller has ended its context, or the server refuses a value.
func (d *database) failed(ctx context.Context, verb string, err error) error {
	var lost *dedup.LostError
	switch code := sqlState(err); {
	case err == nil:
		return nil
	case errors.As(err, &lost), errors.Is(err, errOption):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("pgstore: %s: %w", verb, err)
		}
		return fmt.Errorf("pgstore: %s: %w (%w)", verb, context.Canceled, err)
	case strings.HasPrefix(code, "22"), strings.HasPrefix(code, "54"):
		return fmt.Errorf("pgstore: %s: %w", verb, err)
	}
	u := d.setup()
	u.reaper = verb == verbReap
	if setup := u.explain(err); setup != nil {
		return fmt.Errorf("pgstore: %s: %w", verb, setup)
	}
	return fmt.Errorf("pgstore: %s: %w: %w", verb, dedup.ErrUnavailable, err)
}

// ownTx runs queries in a transaction of the store's own, all in one round trip. read gets the
// results of queue's queries, in order. A transaction that lost a race is run again, a bounded
// number of times.
func (d *database) ownTx(ctx context.Context, verb string, queue func(*statements, *pgx.Batch),
	read func(pgx.BatchResults) error) error {
	q, err := d.statements(ctx)
	if err != nil {
		return d.failed(ctx, verb, err)
	}
	for try := 1; ; try++ {
		err = d.ownTxOnce(ctx, q, queue, read)
		if err == nil || try == attempts || !lostRace(err) {
			return d.failed(ctx, verb, err)
		}
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return d.failed(ctx, verb, pauseErr)
		}
	}
}

func (d *database) ownTxOnce(ctx context.Context, q *statements,
	queue func(*statements, *pgx.Batch), read func(pgx.BatchResults) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.end(ctx)
	ctx, cancel := context.WithTimeout(ctx, d.silence)
	defer cancel()
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(q.beginClaims, milliseconds(lockWait), milliseconds(endTimeout), d.durable)
	queue(q, &b)
	b.Queue("commit")
	// The server may send the first answer together with that of COMMIT. The settings bound the
	// statements before COMMIT.
	return withoutCancel(conn.Conn(), func() error {
		results := conn.SendBatch(ctx, &b)
		err := committed(results, read)
		return cmp.Or(err, results.Close()) // Close repeats an error that Exec or read has returned
	})
}

// committed reads the results of a transaction of the store's own.
func committed(results pgx.BatchResults, read func(pgx.BatchResults) error) error {
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
}

// execs reads the results of n statements without rows.
func execs(n int) func(pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		for range n {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		return nil
	}
}

// within bounds fn by the time that a server needs for limit, and then may stay silent. A server that
// has not answered by then is gone.
func (d *database) within(limit time.Duration,
	fn func(context.Context, pgx.Tx, *statements) error,
) func(context.Context, pgx.Tx, *statements) error {
	return func(ctx context.Context, tx pgx.Tx, q *statements) error {
		ctx, cancel := context.WithTimeout(ctx, limit+d.silence)
		defer cancel()
		return fn(ctx, tx, q)
	}
}

// chore runs fn in a transaction of maintenance. limit bounds each statement at the server, and fn
// ends by d.within.
func (d *database) chore(ctx context.Context, verb string, limit time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	q, err := d.statements(ctx)
	if err != nil {
		return d.failed(ctx, verb, err)
	}
	fn = d.within(limit, fn)
	for try := 1; ; try++ {
		err = d.choreOnce(ctx, q, fn, q.aging.begin, milliseconds(limit))
		var answer *registerError
		if errors.As(err, &answer) {
			return err
		}
		if err == nil || try == attempts || !lostRace(err) || pause(ctx, try) != nil {
			return d.failed(ctx, verb, err)
		}
	}
}

// operate runs fn in a transaction for an operator. limit bounds each statement at the server, and
// each pause between two. fn bounds its own calls, for a server that stays silent. The transaction
// is rolled back if fn fails. A transaction that lost a race is run again, a bounded number of
// times.
func (d *database) operate(ctx context.Context, verb string, limit time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	q, err := d.statements(ctx)
	if err != nil {
		return d.failed(ctx, verb, err)
	}
	for try := 1; ; try++ {
		err = d.choreOnce(ctx, q, fn, q.operator.begin, milliseconds(lockWait), milliseconds(limit))
		if err == nil || try == attempts || !lostRace(err) || pause(ctx, try) != nil {
			return d.failed(ctx, verb, err)
		}
	}
}

// choreOnce runs fn once, with settings.
func (d *database) choreOnce(ctx context.Context, q *statements,
	fn func(context.Context, pgx.Tx, *statements) error, settings string, args ...any) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.end(ctx)
	tx, err := d.beginChore(ctx, conn, settings, args...)
	if err != nil {
		return err
	}
	if err := fn(ctx, tx, q); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return withoutCancel(conn.Conn(), func() error { return tx.Commit(end) })
}

// beginChore begins a transaction with settings.
func (d *database) beginChore(ctx context.Context, conn session, settings string,
	args ...any) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, d.silence)
	defer cancel()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, settings, args...)
	return tx, err
}

// pause waits before another try: longer after each try, by a random time.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Duration(1+rand.IntN(10*try)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
