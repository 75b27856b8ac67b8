package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// operatorSQL are the statements of what a person does.
type operatorSQL struct {
	begin, inspect, find, list, forget             string
	lockEvents, lockKeys, look                     string
	newEvents, newKeys, discardEvents, discardKeys string
}

func newOperatorSQL(l layout, file func(name string, more ...string) string) operatorSQL {
	columns := []string{"{record_events}", l.file("record_events"), "{record_keys}", l.file("record_keys")}
	q := operatorSQL{
		begin: file("operator_begin"), forget: file("forget"), look: file("discard_look"),
		inspect: file("inspect", columns...), find: file("find", columns...), list: file("list", columns...),
		lockEvents: file("discard_lock", "{table}", "{events}"), lockKeys: file("discard_lock", "{table}", "{keys}"),
		newEvents: file("discard_new", "{table}", "{events}"), newKeys: file("discard_new", "{table}", "{keys}"),
		discardEvents: file("discard", "{table}", "{events}", "{clear}", ""),
		discardKeys:   file("discard", "{table}", "{keys}", "{clear}", ", lease_until = NULL, token = NULL"),
	}
	if l == compact {
		q.newEvents, q.discardEvents = file("discard_new_events"), file("discard_events")
	}
	return q
}

// operate runs fn in a transaction of a person's. limit bounds each statement, and each pause between two. The transaction is
// rolled back if fn fails, and run again a bounded number of times if it lost against another one.
func (s *Store) operate(ctx context.Context, verb string, limit time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	q, err := s.statements(ctx)
	if err != nil {
		return s.failed(ctx, verb, err)
	}
	for try := 1; ; try++ {
		err = s.choreOnce(ctx, q, fn, q.operator.begin, milliseconds(lockWait), milliseconds(limit))
		if err == nil || try == attempts || !lostRace(err) || pause(ctx, try) != nil {
			return s.failed(ctx, verb, err)
		}
	}
}

// Inspect implements [dedup.Operator]. Of a key that has two records, that of a transaction comes first. It locks nothing.
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) (records []dedup.Record, err error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, fmt.Errorf("pgstore: inspect: %w", err)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	args, err := s.lookUpArgs(ctx, keys)
	if err != nil {
		return nil, err
	}
	err = s.ownTx(ctx, "inspect", func(q *statements, b *pgx.Batch) {
		records = nil
		b.Queue(q.operator.inspect, args...)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		_, err = readRecords(rows, func(r dedup.Record, n int64) bool {
			if n < 1 || n > int64(len(keys)) {
				return false
			}
			r.Key = keys[n-1] // a hash cannot be turned back
			records = append(records, r)
			return true
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Forget implements [dedup.Operator], for both tables and table event_starts. A key that a transaction under way has is not
// known yet if it had no row before; else Forget waits for it for some seconds, and then its error matches
// [dedup.ErrUnavailable]. What is deferred stays deferred.
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: forget: %w", err)
	}
	args, err := s.lookUpArg(ctx, &key)
	if err != nil {
		return err
	}
	var live, other bool
	var n int64
	err = s.ownTx(ctx, "forget", func(q *statements, b *pgx.Batch) {
		b.Queue(q.operator.forget, append([]any{key.Tenant, key.Scope, key.Type, key.ID}, args...)...)
	}, func(results pgx.BatchResults) error {
		err := results.QueryRow().Scan(&live, &other, &n)
		if err == nil && other {
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case live:
		return fmt.Errorf("pgstore: forget %q: %w", key, dedup.ErrHeld)
	case n == 0:
		return fmt.Errorf("pgstore: forget %q: %w", key, dedup.ErrNotFound)
	}
	return nil
}

// Discard implements [dedup.Operator]. It waits some seconds for a transaction that has the key; then its error matches
// [dedup.ErrUnavailable], and nothing has changed. A key that is known in one way is given up in that one. Its fingerprint
// stays: a copy with another one is a Conflict, as before.
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration, reason string) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: discard: %w", err)
	}
	if retention <= 0 {
		return fmt.Errorf("pgstore: discard %q: retention must be positive", key)
	}
	keyArgs, err := s.keyArg(ctx, &key)
	if err != nil {
		return err
	}
	args := slices.Concat([]any{cut(storable(dedup.ReasonDiscarded + reason)), microseconds(retention)}, keyArgs)
	settled := false
	err = s.operate(ctx, "discard", endTimeout, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var inEvents, inKeys bool
		var err error
		settled, inEvents, inKeys, err = lookBeforeDiscard(ctx, tx, q, keyArgs)
		switch {
		case err != nil || settled:
			return err
		case !inEvents && !inKeys:
			return discardNew(ctx, tx, q, args)
		}
		if inEvents {
			_, err = tx.Exec(ctx, q.operator.discardEvents, args...)
		}
		if err == nil && inKeys {
			_, err = tx.Exec(ctx, q.operator.discardKeys, args...)
		}
		return err
	})
	if err == nil && settled {
		return fmt.Errorf("pgstore: discard %q: %w", key, dedup.ErrSettled)
	}
	return err
}

// lookBeforeDiscard locks what is known of a key and says in which way it is known and whether it is done.
func lookBeforeDiscard(ctx context.Context, tx pgx.Tx, q *statements, key []any) (settled, inEvents, inKeys bool, err error) {
	for _, lock := range []string{q.operator.lockEvents, q.operator.lockKeys} {
		if _, err := tx.Exec(ctx, lock, key...); err != nil {
			return false, false, false, err
		}
	}
	rows, err := tx.Query(ctx, q.operator.look, key...) // what the locks were waited for shows only now
	if err != nil {
		return false, false, false, err
	}
	var isTx bool
	var status string
	var version int16
	_, err = pgx.ForEachRow(rows, []any{&isTx, &status, &version}, func() error {
		if _, known := states[status]; !known || version != 1 {
			return errUnknown
		}
		settled = settled || status == "done"
		inEvents, inKeys = inEvents || isTx, inKeys || !isTx
		return nil
	})
	return settled, inEvents, inKeys, err
}

// discardNew gives up a key that nobody knows, in both ways. If somebody came in between, nothing has changed.
func discardNew(ctx context.Context, tx pgx.Tx, q *statements, args []any) error {
	for _, text := range []string{q.operator.newEvents, q.operator.newKeys} {
		tag, err := tx.Exec(ctx, text, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = errNoAnswer
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// importBatch is how many events one transaction of Import writes.
const importBatch = 1000

// Import implements [dedup.Operator], in transactions of a thousand events each: after an error some may be there, and a
// repeat adds the rest. A row counts as made now, with the origin given: the horizon passes it once its retention is over
// in consumed time, as with any other.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	for i := range events {
		err := events[i].Key.Validate()
		if err == nil && events[i].Retention <= 0 {
			err = fmt.Errorf("key %q: retention must be positive", events[i].Key)
		}
		if err != nil {
			return 0, fmt.Errorf("pgstore: import: %w", err)
		}
	}
	for _, inTx := range []bool{true, false} {
		var reqs []dedup.Request
		for i := range events {
			if e := &events[i]; e.Tx == inTx {
				reqs = append(reqs, dedup.Request{Key: e.Key, Origin: e.Origin, Retention: e.Retention, AnyAge: true})
			}
		}
		slices.SortStableFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
		reqs = slices.CompactFunc(reqs, func(a, b dedup.Request) bool { return a.Key == b.Key })
		for batch := range slices.Chunk(reqs, importBatch) {
			n, err := s.importSome(ctx, batch, inTx)
			added += n
			if err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

func (s *Store) importSome(ctx context.Context, reqs []dedup.Request, inTx bool) (added int, err error) {
	numbers, err := s.places(ctx, reqs)
	if err != nil {
		return 0, err
	}
	rows := newRequestRows(reqs, numbers)
	if inTx {
		err = s.ownTx(ctx, "import", func(q *statements, b *pgx.Batch) {
			b.Queue(q.insertEvents[rows.form], rows.insert()...)
		}, func(results pgx.BatchResults) error {
			tag, err := results.Exec()
			added = int(tag.RowsAffected())
			return err
		})
	} else {
		added, err = s.importClaims(ctx, rows)
	}
	if err != nil {
		return 0, err
	}
	return added, nil
}

// importClaims claims what is not known and completes it, in one transaction.
func (s *Store) importClaims(ctx context.Context, rows *requestRows) (added int, err error) {
	t := dedup.NewToken()
	claims, ends := newClaimRows(len(rows.reqs)), newEndRows(len(rows.reqs))
	for i := range rows.reqs {
		c := dedup.Completion{Claim: dedup.Claim{Key: rows.reqs[i].Key, Token: t}, Retention: rows.reqs[i].Retention}
		if err := errors.Join(claims.add(&c.Claim), ends.add(&c)); err != nil {
			return 0, fmt.Errorf("pgstore: import: %w", err)
		}
	}
	keys, err := s.keyArgs(ctx, &claims.keyRows)
	if err != nil {
		return 0, err
	}
	var n int64
	err = s.ownTx(ctx, "import", func(q *statements, b *pgx.Batch) {
		b.Queue(q.insertKeys[rows.form], rows.insert(t, int64(1))...)
		b.Queue(q.complete, slices.Concat([]any{claims.token}, ends.args(), keys)...)
	}, func(results pgx.BatchResults) error {
		err := results.QueryRow().Scan(&n, nil)
		if err == nil {
			_, err = results.Exec()
		}
		return err
	})
	return int(n), err
}
