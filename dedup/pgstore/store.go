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
	_ dedup.CallSharer      = (*Store)(nil)

	_ dedup.TxRunner[pgx.Tx] = (*Store)(nil)
)

// Store keeps events in Postgres. Create a Store with [New] or [Open]; the zero value cannot be
// used. A Store is safe for concurrent use, and a *Store is comparable with ==.
type Store struct {
	db    *database
	owned bool // Close closes the pool

	dict         dictionaries // of the compact layout
	events, keys expectation  // for transactions and for claims
}

// Option is an option of [New], [Open], [Migrate] and [Schema].
type Option func(*Store)

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// InSchema names the schema of the tables. The name must match ^[a-z_][a-z0-9_]{0,62}$; otherwise
// every call fails. Default: the first schema in the session's search path that has the tables. The
// first call looks the schema up for good. If there are no tables, [Migrate] takes the first schema
// that exists.
func InSchema(name string) Option {
	return func(s *Store) {
		if !identifier.MatchString(name) {
			s.db.wrong = fmt.Errorf("%w: schema name %.100q does not match %s", errOption, name,
				identifier)
		}
		s.db.schema = name
	}
}

// Durable makes commits of the store wait for the disk, even if synchronous_commit is off in the
// session. These commits include the effects of handlers. Default: the session's setting. Durable
// does not help against fsync = off or standbys that lag behind.
func Durable() Option { return func(s *Store) { s.db.durable = true } }

// Compact chooses the compact layout. The layout has a number in place of tenant, scope and
// type, and 16 bytes in place of the ID, in tables processed_events_compact and
// idempotency_keys_compact. A finished event takes about 125 bytes with the indexes, instead of
// 320. The views processed_events_read and idempotency_keys_read show the rows as in the
// readable layout.
//
// For a UUID in lower case with hyphens, or a ULID in upper case, the 16 bytes are those of the
// ID, in the order of the IDs. For any other ID the 16 bytes are a hash (SHA-256, cut to 128
// bits). The hash does not give the ID back, but an event can be found by the ID. IDs are never
// folded or trimmed: another spelling is another event.
//
// The first [Migrate] fixes the layout. There is no later change. Give this option to all of
// [New], [Open], [Migrate] and [Schema], or to no call. If the tables have the other layout,
// [Store.Check], [Migrate] and the first call of any method fail. Default: the readable layout.
func Compact() Option { return func(s *Store) { s.db.layout = compact } }

// New returns a store that uses pool. The caller closes the pool; [Store.Close] does not. The
// pool needs a connection for each concurrent transaction, and some more for claims and health
// checks. Configure the pool with [Configure], or set the session parameters in another way. New
// does not connect: [Store.Check] reports whether the store can be used.
func New(pool *pgxpool.Pool, opts ...Option) *Store {
	db := &database{pool: pool, layout: readable, silence: silence}
	s := &Store{db: db, dict: dictionaries{db: db}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Close closes the pool of a store made by [Open], and waits until all connections are returned.
// For a store made by [New], Close has no effect.
func (s *Store) Close() {
	if s.owned {
		s.db.pool.Close()
	}
}

// Ping sends a query to the server. The error matches [dedup.ErrUnavailable].
func (s *Store) Ping(ctx context.Context) error {
	conn, err := s.db.acquire(ctx)
	if err == nil {
		defer conn.poolConn.Release()
		_, err = conn.Exec(ctx, "SELECT 1")
	}
	return s.db.failed(ctx, "ping", err)
}

// MaxTx implements [dedup.TxLimiter]. A quarter of the pool's connections, but at least one, stays
// free for claims, probes and reads of handlers outside their transaction. A pool of one connection
// serves one transaction.
func (s *Store) MaxTx() int {
	if s.db.wrong != nil {
		return 0
	}
	conns := int(s.db.pool.Config().MaxConns)
	return max(1, conns-max(1, conns/4))
}

// SharedCalls implements [dedup.CallSharer]: one call at a time. A call takes 256 keys, and more
// calls of fewer keys cost the server more: with two, an event took a quarter more processor time.
func (s *Store) SharedCalls() int { return 1 }
