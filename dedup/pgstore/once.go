package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// OnceRetention is for how long [Store.Once] keeps a record that is to be kept for no other time.
const OnceRetention = 7 * 24 * time.Hour

// Once records key in a transaction of the caller's own, for code that keeps its transactions to itself: one statement, INSERT ...
// ON CONFLICT DO NOTHING. first is true exactly if nothing is on record of the key in the transactions of this store: then
// do what the key stands for in tx, and commit. If tx is rolled back, nothing is on record. If first is false, somebody has done it,
// has given it up, or has moved it on to a later attempt: do nothing.
//
//	tx, err := pool.Begin(ctx)
//	...
//	first, err := store.Once(ctx, tx, dedup.Key{Scope: "imports", Type: "line", ID: id}, 0)
//	if err != nil || !first {
//		return err
//	}
//	_, err = tx.Exec(ctx, "UPDATE ...")
//	...
//	err = tx.Commit(ctx)
//
// Records are those of [Store.ClaimTx]: a handler with the same key and scope is told Done, and the other way round. retention
// is how long the record is kept; zero or less: [OnceRetention]. Whatever the key's age, it is never TooOld.
//
// tx must be of the database that the tables are in, and may be a handler's. While another transaction holds the key, Once waits until it
// is over. Nothing but the lock_timeout of tx bounds that, which by default there is none of: say SET LOCAL lock_timeout =
// '2s' first. Transactions that call Once for several keys in different orders can deadlock: sort them ([dedup.Key.Compare]).
// At REPEATABLE READ and above a key that was committed since the transaction began is a serialization failure (40001): run the
// transaction again.
//
// An error of a statement leaves tx aborted, as any other: roll back. The error matches [dedup.ErrKey] if the key is invalid:
// nothing was sent then. Once takes no connection but that of tx, which may be the last one of a pool. The first call of a store
// finds the tables through the search path of tx, for good: name them with [InSchema] if sessions differ. In the compact
// layout the first key of each tenant, scope and type costs a round trip more; if no process has met those three before, others that
// meet them wait for the end of tx, whose commit waits for the disk. Safe for concurrent use with different transactions.
func (s *Store) Once(ctx context.Context, tx pgx.Tx, key dedup.Key, retention time.Duration) (first bool, err error) {
	reqs := []dedup.Request{{Key: key, Retention: cmp.Or(max(0, retention), OnceRetention), AnyAge: true}}
	if err := dedup.CheckRequests(reqs, make([]dedup.Answer, 1)); err != nil {
		return false, fmt.Errorf("pgstore: once: %w", err)
	}
	if s.db.wrong != nil {
		return false, s.db.wrong
	}
	q := s.db.sql.Load()
	if q == nil { // without the lock of statements, whose holder may wait for the connection that tx has
		if q, err = s.db.findStatements(ctx, tx.QueryRow); err != nil {
			return false, fmt.Errorf("pgstore: once: %w", err)
		}
	}
	places, err := s.dict.placeWithin(ctx, tx, q, &key)
	if err != nil {
		return false, fmt.Errorf("pgstore: once: %w", err)
	}
	rows := newRequestRows(reqs, places)
	tag, err := tx.Exec(ctx, q.insertEvents[rows.form], rows.insert()...)
	if err != nil {
		return false, fmt.Errorf("pgstore: once: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// makeKindSQL marks a transaction that makes a number. Its commit waits for the disk, as that of makeNumbers does, since others will
// remember the number; what waits for more already stays as it is.
const makeKindSQL = `SELECT set_config('idem.kinds', 'made', true),
	CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END`

// placeWithin is as placesOf for one key without an origin, within a transaction of somebody else'd. A number that it makes there may
// be rolled back, so it is used there only and not remembered, nor are any that are read after it (rule 28).
func (d *dictionaries) placeWithin(ctx context.Context, tx pgx.Tx, q *statements, key *dedup.Key) ([]place, error) {
	if d.db.layout != compact {
		return nil, nil
	}
	k, id := compactKey(key)
	all, number := []kindText{k}, make([]int32, 1)
	if len(d.kinds.known(all, number)) == 0 {
		return []place{{kind: number[0], id: id}}, nil
	}
	var b pgx.Batch
	var made bool
	b.Queue("SELECT coalesce(current_setting('idem.kinds', true), '') = 'made'").QueryRow(
		func(row pgx.Row) error { return row.Scan(&made) })
	b.Queue(q.kinds, k.args(all)...).Query(func(rows pgx.Rows) error { return scanNumbers(rows, number) })
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	if number[0] != 0 {
		if !made {
			d.kinds.remember(all, number)
		}
		return []place{{kind: number[0], id: id}}, nil
	}
	b = pgx.Batch{}
	b.Queue(makeKindSQL)
	b.Queue(q.newKinds, k.args(all)...)
	b.Queue(q.kinds, k.args(all)...).Query(func(rows pgx.Rows) error { return scanNumbers(rows, number) })
	err := tx.SendBatch(ctx, &b).Close()
	if err == nil && number[0] == 0 {
		err = errNoAnswer
	}
	return []place{{kind: number[0], id: id}}, err
}

// lockKeySQL hashes at the server, so that any other program can take the same lock.
const lockKeySQL = "advisory_xact_lock(hashtextextended($1::text, 0))"

// LockKey locks what the parts name until tx ends: a second line of defence, for two different events that change the same thing and
// read it first. It keeps nothing, so it does not tell a duplicate: that is what [Store.Once] and the store are for.
//
//	err := pgstore.LockKey(ctx, tx, "account", from)
//
// The lock is pg_advisory_xact_lock(hashtextextended(dedup.Join(parts...), 0)): other programs can take it too, for example
// hashtextextended('account:42', 0). Different parts have different texts ([dedup.Join]); two that share their 64 bits only
// wait for each other without need. Locks of this kind are the application's alone: the store's numbers are made in another way.
//
// LockKey waits as long as lock_timeout of tx lets it, by default for ever; with several names lock them in one order
// in all transactions, else they deadlock. An error leaves tx aborted. Each lock takes a place in the server's lock table,
// which has max_locks_per_transaction for each connection: lock few. Works through poolers, since nothing is kept in the session.
func LockKey(ctx context.Context, tx pgx.Tx, parts ...string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_"+lockKeySQL, dedup.Join(parts...)); err != nil {
		return fmt.Errorf("pgstore: lock key: %w", err)
	}
	return nil
}

// TryLockKey is as [LockKey] and does not wait: it reports whether the lock is tx's. Without it tx goes on as before.
func TryLockKey(ctx context.Context, tx pgx.Tx, parts ...string) (got bool, err error) {
	if err := tx.QueryRow(ctx, "SELECT pg_try_"+lockKeySQL, dedup.Join(parts...)).Scan(&got); err != nil {
		return false, fmt.Errorf("pgstore: try to lock key: %w", err)
	}
	return got, nil
}
