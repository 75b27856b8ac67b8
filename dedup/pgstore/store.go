package pgstore

import (
	"context"
	"fmt"
	"regexp"

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

// Store keeps events in Postgres. It is safe for concurrent use and comparable with ==. Make it with [New] or [Open].
type Store struct {
	db    *database
	owned bool // the pool

	dict         dictionaries // of the compact layout
	events, keys expectation  // for either kind of record
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
			s.db.wrong = fmt.Errorf("%w: schema name %.100q does not match %s", errOption, name, identifier)
		}
		s.db.schema = name
	}
}

// Durable makes the store's commits wait for the disk although synchronous_commit is off for the session (P-18). The
// handler's effects are in those commits. Default: as the session says. Off-switches of the server (fsync) and lagging
// standbys are beyond it.
func Durable() Option { return func(s *Store) { s.db.durable = true } }

// Compact chooses the compact layout: a number in place of tenant, scope and type, and 16 bytes in place of the ID, in
// tables processed_events_compact and idempotency_keys_compact. An event that is done takes about 125 bytes there with
// its indexes, in place of 320. The views processed_events_read and idempotency_keys_read show it as the readable
// layout does.
//
// An ID that is a UUID in lower case with hyphens, or a ULID in upper case, is kept as it is, in its own order. Of any
// other there is a hash only (SHA-256, cut to 128 bits), which cannot be turned back into the ID; one can still ask for
// an event whose ID one has. No ID is ever folded or trimmed: another spelling is another event (P-23).
//
// The layout is chosen once, with the first [Migrate], and cannot be changed later. Give this option to [New], [Open],
// [Migrate] and [Schema], or to none: [Store.Check], [Migrate] and every first call fail if the tables have the other
// layout. Default: the readable layout.
func Compact() Option { return func(s *Store) { s.db.layout = compact } }

// New returns a store that uses pool, which stays the caller's: [Store.Close] does nothing. It needs as many
// connections as transactions run at once, and some to spare for claims and probes (P-14). Configure the pool with
// [Configure], or set its session parameters in some other way. New does not connect; [Store.Check] tells whether the
// store can be used.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	db := &database{pool: pool, layout: readable, silence: silence}
	s := &Store{db: db, dict: dictionaries{db: db}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Close closes the pool if the store was made by [Open]. It waits until all connections are returned.
func (s *Store) Close() {
	if s.owned {
		s.db.pool.Close()
	}
}

// Ping asks the server for an answer. Its error matches [dedup.ErrUnavailable].
func (s *Store) Ping(ctx context.Context) error {
	conn, err := s.db.acquire(ctx)
	if err == nil {
		defer conn.poolConn.Release()
		_, err = conn.Exec(ctx, "SELECT 1")
	}
	return s.db.failed(ctx, "ping", err)
}

// MaxTx implements [dedup.TxLimiter]: the connections of the pool less a quarter, but at least one, that is left for
// claims, probes, and what handlers read beside their transaction (rules 25 and 26). A pool of one serves one.
func (s *Store) MaxTx() int {
	if s.db.wrong != nil {
		return 0
	}
	conns := int(s.db.pool.Config().MaxConns)
	return max(1, conns-max(1, conns/4))
}
