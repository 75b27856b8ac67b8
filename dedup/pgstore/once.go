package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// OnceRetention is the default retention of [Store.Once].
const OnceRetention = 7 * 24 * time.Hour

// Once records key in a transaction of the caller, for code with transactions of its own. Once is
// one statement, INSERT ... ON CONFLICT DO NOTHING. If first is true, the key was not on record as
// transactional: do the work in tx, and commit. If tx is rolled back, the record is gone, too. If
// first is false, do not do the work. Another transaction has done the work, has given the event
// up, or has left the event to a later attempt.
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
// Records are those of [Store.ClaimTx]: a handler with the same key and scope gets Done, and the
// other way round. The argument retention is how long the record is kept. Zero or less:
// [OnceRetention]. The age of the key does not matter: Once knows no TooOld.
//
// tx must be of the database that has the tables. A handler's transaction will do. While another
// transaction holds the key, Once waits. Only the lock_timeout of tx bounds this wait, and by
// default tx has no lock_timeout: execute SET LOCAL lock_timeout = '2s' first. Transactions that
// call Once for several keys in different orders can deadlock: sort the keys
// ([dedup.Key.Compare]). At REPEATABLE READ and above, a key committed since tx began is a
// serialization failure (40001): run the transaction again.
//
// After an error of a statement tx is aborted: roll back. The error matches [dedup.ErrKey] if the
// key is invalid. Then no statement was sent.
//
// Once uses only the connection of tx, which may be the last one of a pool. The first call of a
// store finds the tables through the search path of tx and keeps the result. If sessions differ,
// name the schema with [InSchema]. In the compact layout the first key of each tenant, scope and
// type costs another round trip. If no process has used the three before, the commit of tx waits
// for the disk. Other transactions that use the three wait for the end of tx.
//
// Once is safe for concurrent use with different transactions.
func (s *Store) Once(ctx context.Context, tx pgx.Tx, key dedup.Key,
	retention time.Duration) (first bool, err error) {
	reqs := []dedup.Request{{Key: key, Retention: cmp.Or(max(0, retention), OnceRetention),
		AnyAge: true}}
	if err := dedup.CheckRequests(reqs, make([]dedup.Answer, 1)); err != nil {
		return false, fmt.Errorf("pgstore: once: %w", err)
	}
	if s.db.wrong != nil {
		return false, s.db.wrong
	}
	q := s.db.sql.Load()
	if q == nil { // without the mutex of statements: its holder may wait for the connection of tx
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

// makeKindSQL marks a transaction that makes a number. The commit waits for the disk like that
// of makeNumbers, because other processes will remember the number. A stronger setting stays.
const makeKindSQL = `SELECT set_config('idem.kinds', 'made', true),
	CASE WHEN current_setting('synchronous_commit') = 'off'
	     THEN set_config('synchronous_commit', 'on', true) END`

// placeWithin is placesOf for one key without an origin, in a transaction of the caller. A
// number made in tx may be rolled back. So the number is used in this transaction only and not
// remembered. The same holds for numbers read afterwards (rule 28).
func (d *dictionaries) placeWithin(ctx context.Context, tx pgx.Tx, q *statements,
	key *dedup.Key) ([]place, error) {
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
	b.Queue(q.kinds, k.args(all)...).Query(func(rows pgx.Rows) error {
		return scanNumbers(rows, number)
	})
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
	b.Queue(q.kinds, k.args(all)...).Query(func(rows pgx.Rows) error {
		return scanNumbers(rows, number)
	})
	err := tx.SendBatch(ctx, &b).Close()
	if err == nil && number[0] == 0 {
		err = errNoAnswer
	}
	return []place{{kind: number[0], id: id}}, err
}

// lockKeySQL hashes at the server, so that other programs can take the same lock.
const lockKeySQL = "advisory_xact_lock(hashtextextended($1::text, 0))"

// LockKey locks the key made of parts until tx ends. The lock protects against two different events
// that read and then change the same row. A lock is no record and finds no duplicates: use
// [Store.Once] or a handler for that.
//
//	err := pgstore.LockKey(ctx, tx, "account", from)
//
// The lock is pg_advisory_xact_lock(hashtextextended(dedup.Join(parts...), 0)). Other programs
// can take the lock too, for example with hashtextextended('account:42', 0). Different parts
// make different texts ([dedup.Join]). Two texts with the same 64-bit hash only wait for each
// other without need. The store makes the numbers of other locks in another way.
//
// LockKey waits for at most the lock_timeout of tx, by default without limit. Lock several keys
// in the same order in all transactions, to avoid a deadlock. After an error tx is aborted. Each
// lock takes a place in the server's lock table, which has max_locks_per_transaction places for
// each connection. The lock works through poolers, because it belongs to the transaction and not
// to the session.
func LockKey(ctx context.Context, tx pgx.Tx, parts ...string) error {
	if _, err := tx.Exec(ctx, "SELECT pg_"+lockKeySQL, dedup.Join(parts...)); err != nil {
		return fmt.Errorf("pgstore: lock key: %w", err)
	}
	return nil
}

// TryLockKey is like [LockKey], but does not wait. got reports whether tx has the lock. If not, tx
// can go on as before.
func TryLockKey(ctx context.Context, tx pgx.Tx, parts ...string) (got bool, err error) {
	if err := tx.QueryRow(ctx, "SELECT pg_try_"+lockKeySQL,
		dedup.Join(parts...)).Scan(&got); err != nil {
		return false, fmt.Errorf("pgstore: try to lock key: %w", err)
	}
	return got, nil
}
