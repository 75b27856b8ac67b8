// Package pgoutbox is the outbox in Postgres: the table, what writes to it in the transactions of a service, and what a relay asks of it.
package pgoutbox

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

//go:embed schema.sql
var schemaSQL string

var errTODO = errors.New("pgoutbox: not there yet")

// Option is a setting of [New] and [Migrate].
type Option func(*Outbox)

// InSchema names the schema of the tables; default: the first one in the search path that has them.
func InSchema(name string) Option { return func(o *Outbox) { o.schema = name } }

// MaxBytes bounds [outbox.Entry.Size]; default 1,000,000, which fits the default max.message.bytes of a topic.
func MaxBytes(n int) Option { return func(o *Outbox) { o.max = n } }

// Notify makes transactions that add entries wake relays that listen, which lock each other at their commits (O-12); default: relays poll.
func Notify() Option { return func(o *Outbox) { o.notify = true } }

// Outbox is the table. Safe for concurrent use.
type Outbox struct {
	pool   *pgxpool.Pool
	schema string
	max    int
	notify bool
}

var (
	_ outbox.Store = (*Outbox)(nil)
	_ outbox.Waker = (*Outbox)(nil)
)

// New returns an outbox. It does not ask the server for anything.
func New(pool *pgxpool.Pool, opts ...Option) *Outbox {
	o := &Outbox{pool: pool, max: 1_000_000}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Migrate makes the tables or brings them up to date.
func Migrate(context.Context, *pgxpool.Pool, ...Option) error { return errTODO }

// Schema returns the SQL that makes the tables.
func Schema() string { return schemaSQL }

// Add lets entries leave when tx commits.
func (o *Outbox) Add(context.Context, pgx.Tx, ...outbox.Entry) error { return errTODO }

// Flush inserts what is queued in tx.
func (o *Outbox) Flush(context.Context, pgx.Tx) error { return errTODO }

// Queue returns tx with a queue.
func (o *Outbox) Queue(tx pgx.Tx) pgx.Tx { return tx }

// Hold implements [outbox.Store].
func (o *Outbox) Hold(context.Context, string, time.Duration, bool) ([]outbox.Lease, error) {
	return nil, errTODO
}

// Leave implements [outbox.Store].
func (o *Outbox) Leave(context.Context, string) error { return errTODO }

// Fetch implements [outbox.Store].
func (o *Outbox) Fetch(context.Context, outbox.Fetch) ([]outbox.Row, error) { return nil, errTODO }

// Settle implements [outbox.Store].
func (o *Outbox) Settle(context.Context, string, []outbox.Lease, outbox.Settlement) ([]int, error) {
	return nil, errTODO
}

// Purge implements [outbox.Store].
func (o *Outbox) Purge(context.Context, time.Duration, int) (int64, error) { return 0, errTODO }

// Backlog implements [outbox.Store].
func (o *Outbox) Backlog(context.Context, int) (outbox.Backlog, error) {
	return outbox.Backlog{}, errTODO
}

// Wake implements [outbox.Waker].
func (o *Outbox) Wake(context.Context, func()) error { return errTODO }

// Parked is a row that a person must decide about.
type Parked struct {
	Row outbox.Row
	// At is when it was parked, Error why.
	At    time.Time
	Error string
	// Behind is how many rows of its aggregate are blocked.
	Behind int64
}

// ErrNotParked says that there is no such parked row.
var ErrNotParked = errors.New("pgoutbox: no such parked row")

// Parked returns the parked rows, the oldest first, at most limit.
func (o *Outbox) Parked(context.Context, int) ([]Parked, error) { return nil, errTODO }

// Retry lets a parked row, and what is blocked behind it, be published again.
func (o *Outbox) Retry(context.Context, int64) error { return errTODO }

// Skip drops a parked row for good, and lets what is blocked behind it be published.
func (o *Outbox) Skip(context.Context, int64) error { return errTODO }
