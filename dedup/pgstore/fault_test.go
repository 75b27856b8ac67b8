package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// This file has the faults that the other tests show to the store alone, here with the engine above
// it, and looks for the events that are blamed.

var quickRetry = idem.Retry(idem.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})

// classOf returns why a dead letter was written, and for which event.
func classOf(m *idem.Message) (class idem.Class, id string) {
	for _, h := range m.Headers {
		switch h.Key {
		case deadletter.HeaderErrorClass:
			class = idem.Class(h.Value)
		case deadletter.HeaderEventID:
			id = string(h.Value)
		}
	}
	return class, id
}

// culprit is the one event that a handler of these tests does something bad for.
const culprit = "culprit"

// newBadEngine makes an engine with a handler that does bad for the culprit, behind a good
// statement.
func newBadEngine(t *testing.T, with ...configure) (e *engine, pool *pgxpool.Pool, bad *func(context.Context, pgx.Tx) error) {
	t.Helper()
	s, pool := newStore(t, with...)
	bad = new(func(context.Context, pgx.Tx) error)
	e = newEngine(t, s, func(e *engine, r *idem.Router) {
		idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
			if err := e.write(ctx, tx, ev); err != nil || ev.ID != culprit {
				return err
			}
			return (*bad)(ctx, tx)
		}, quickRetry)
	})
	e.trust("paid")
	return e, pool, bad
}

// settleGroup settles the culprit among four others, each of which must have one effect in the end.
func (e *engine) settleGroup(pool *pgxpool.Pool) {
	e.t.Helper()
	e.settle(e.message("paid", "a"), e.message("paid", "b"), e.message("paid", culprit), e.message("paid", "c"), e.message("paid", "d"))
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Equal(e.t, 1, countEffects(e.t, pool, id), id)
	}
	healthy(e.t, pool)
}

// P-12: a handler that ignores an SQL error is retried and then dead-lettered, alone; its neighbours in the transaction
// are not blamed.
func TestSwallowedErrorIsDeadLettered_P12(t *testing.T) {
	t.Parallel()
	e, pool, bad := newBadEngine(t)
	*bad = func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}
	e.settleGroup(pool)
	require.Zero(t, countEffects(t, pool, culprit))
	require.Len(t, e.deadLetters, 1)
	class, id := classOf(e.deadLetters[0])
	require.Equal(t, idem.ClassFailed, class)
	require.Equal(t, culprit, id)
	runs, _ := e.counts(culprit)
	require.Equal(t, 1+3, runs, "once in the group, three times by itself")
	require.Zero(t, e.downs, "the database has not gone away")
}

// P-13: a handler that ends its transaction, by methods or by SQL. After its COMMIT the effects
// stay, and so does the record. After its ROLLBACK the event is retried and then dead-lettered. No
// neighbour is lost, doubled or blamed.
func TestHandlerThatEndsItsTransaction_P13(t *testing.T) {
	t.Parallel()
	run := func(sql string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	for name, c := range map[string]struct {
		bad              func(context.Context, pgx.Tx) error
		effects, letters int
	}{
		"COMMIT":         {run("COMMIT"), 1, 0},
		"COMMIT, BEGIN":  {run("COMMIT; BEGIN"), 1, 0},
		"ROLLBACK":       {run("ROLLBACK"), 0, 1},
		"tx.Commit":      {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, 0, 1},
		"ignored Commit": {func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }, 1, 0},
		"Begin, Commit": {func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			return inner.Commit(ctx)
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, pool, bad := newBadEngine(t, maxConns(4))
			*bad = c.bad
			e.settleGroup(pool)
			require.Equal(t, c.effects, countEffects(t, pool, culprit))
			require.Len(t, e.deadLetters, c.letters)
			require.Zero(t, e.downs, "the database has not gone away")
			e.settleGroup(pool) // again
			require.Equal(t, c.effects, countEffects(t, pool, culprit))
		})
	}
}

// P-14: four connections, eight lanes, and handlers that read through the same pool beside their
// transaction. The engine leaves them a connection: no handler stands still and no event is blamed.
func TestHandlersReadThroughTheFullPool_P14(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(4))
	e := newEngine(t, s, func(e *engine, r *idem.Router) {
		idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
			if err := e.write(ctx, tx, ev); err != nil {
				return err
			}
			var n int
			return pool.QueryRow(ctx, "SELECT count(*) FROM effects WHERE name = $1", ev.ID).Scan(&n)
		}, quickRetry)
	})
	const lanes, events = 8, 30
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := 0; i < events; i += 3 {
				var msgs []*idem.Message
				for j := range 3 {
					msgs = append(msgs, onPartition(lane, i+j))
				}
				if _, err := e.p.HandleBatch(ctx, msgs); err != nil {
					t.Errorf("lane %d stands still: %v", lane, err)
					return
				}
			}
		})
	}
	all.Wait()
	got, distinct := effects(t, pool)
	require.Equal(t, lanes*events, got)
	require.Equal(t, got, distinct)
	require.Empty(t, e.deadLetters)
	require.Zero(t, e.downs, "waiting for a connection is no outage")
	healthy(t, pool)
}

// onPartition makes event i of a partition.
func onPartition(partition, i int) *idem.Message {
	return &idem.Message{
		Topic: "payments", Partition: int32(partition), Offset: int64(i), Value: []byte("{}"), Time: time.Now(),
		Headers: []idem.Header{
			{Key: "event-id", Value: fmt.Append(nil, partition, "-", i)}, {Key: "event-type", Value: []byte("paid")},
		},
	}
}

// P-15: the server ends the session of a handler that does something slow in the middle of its transaction. That looks like
// a server that goes away, as often as an event may blame its infrastructure; then it is retried and dead-lettered, and the pool is whole.
func TestSlowHandlerIsDeadLettered_P15(t *testing.T) {
	t.Parallel()
	for _, notices := range []bool{true, false} {
		t.Run(fmt.Sprint("notices ", notices), func(t *testing.T) {
			t.Parallel()
			e, pool, bad := newBadEngine(t, maxConns(4))
			*bad = func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 20")
				if err != nil {
					return err
				}
				waitForBackend(t, pool, tx.Conn().PgConn().PID(), 0)
				if notices {
					err = addEffect(ctx, tx, culprit)
				}
				return err
			}
			e.settleGroup(pool)
			require.Zero(t, countEffects(t, pool, culprit))
			require.Len(t, e.deadLetters, 1)
			class, id := classOf(e.deadLetters[0])
			require.Equal(t, idem.ClassFailed, class)
			require.Equal(t, culprit, id)
			e.settle(e.message("paid", "next"))
			require.Equal(t, 1, countEffects(t, pool, "next"))
		})
	}
}

// refused counts runs in a transaction that another handler has spoilt: code 25P02 without an error
// of its own before.
type refused struct{ n atomic.Int32 }

func (r *refused) see(err error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "25P02" {
		r.n.Add(1)
	}
}

// P-16: calls that are cancelled at random points, with transactions of one event and of many. The
// pool keeps its size, at both ends. No later call meets the remains of a transaction. A repeated
// call finishes the work, once.
func TestCancelledCallsLeaveThePoolWhole_P16(t *testing.T) {
	t.Parallel()
	n := soak(200, 1000)
	rng, seed := newSeed(t)
	name := "idem-cancel-" + rand.Text()[:8]
	s, pool := newStore(t, maxConns(4), param("application_name", name))
	var spoilt refused
	e := newEngine(t, s, func(e *engine, r *idem.Router) {
		idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
			err := e.write(ctx, tx, ev)
			spoilt.see(err)
			return err
		})
	})
	e.trust("paid")
	whole := 0
	limit := 8 * time.Millisecond // follows the time of a call here and now: half of them are cut short, however fast the machine is
	for i := range n {
		msgs := make([]*idem.Message, 1+rng.IntN(4))
		for j := range msgs {
			msgs[j] = e.message("paid", fmt.Sprint(i, "-", j))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(limit))))
		settled, err := e.p.HandleBatch(ctx, msgs)
		cancel()
		if err == nil {
			whole++
			limit = max(limit*9/10, 100*time.Microsecond)
		} else {
			require.ErrorIs(t, err, idem.ErrStopping)
			limit = min(limit*10/9, time.Second)
		}
		e.settle(msgs[settled:]...)
		require.LessOrEqual(t, pool.Stat().TotalConns(), int32(4))
	}
	all, distinct := effects(t, pool)
	t.Logf("soak: TestCancelledCallsLeaveThePoolWhole_P16 seed=%d size=%d kills=0 cuts=%d rebalances=0 outcome=%d effects, %d spoilt transactions",
		seed, n, n-whole, all, spoilt.n.Load())
	require.Equal(t, all, distinct, "an event with two effects")
	require.Greater(t, n-whole, n/4, "too few were cut short to mean anything")
	require.Zero(t, spoilt.n.Load())
	require.Empty(t, e.deadLetters)
	healthy(t, pool)
	require.Eventually(t, func() bool { // the connections of the pool and the sessions of the server
		var sessions int32
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&sessions)
		return err == nil && sessions == pool.Stat().TotalConns()
	}, 10*time.Second, 20*time.Millisecond, "sessions that nobody has")
}

// newDatabase returns the URL of a database for this test alone, with settings that it may change,
// and a connection to the shared database.
func newDatabase(t *testing.T) (name, ours string, admin *pgxpool.Pool) {
	t.Helper()
	shared := os.Getenv("POSTGRES_URL")
	admin = newPool(t, newTables(t), maxConns(2)) // newStore skips where there is no Postgres
	name = "test_" + strings.ToLower(rand.Text())
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	u, err := url.Parse(shared)
	require.NoError(t, err)
	u.Path = "/" + name
	return name, u.String(), admin
}

// P-26: the database becomes read-only and its sessions are ended again and again while work flows.
// Then it is writable again, but not for the existing sessions, as with a server that was the
// primary once. No event is given up and work resumes, each event once.
func TestReadOnlyInMidRun_P26(t *testing.T) {
	t.Parallel()
	rng, seed := newSeed(t)
	name, ours, admin := newDatabase(t)
	pool := newPool(t, ours, maxConns(6))
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err := pool.Exec(t.Context(), "CREATE TABLE effects (name text NOT NULL)")
	require.NoError(t, err)
	var done atomic.Int64
	e := newEngine(t, pgstore.New(pool), func(e *engine, r *idem.Router) { idem.OnTx(r, "paid", e.write, quickRetry) })
	ctx, stop := context.WithCancel(t.Context())
	hard, abort := context.WithCancel(t.Context())
	var lanes sync.WaitGroup
	var given [4]int
	for lane := range given {
		lanes.Go(func() {
			for ctx.Err() == nil {
				msgs := []*idem.Message{onPartition(lane, given[lane]), onPartition(lane, given[lane]+1)}
				if _, err := e.p.HandleBatch(hard, msgs); err != nil {
					t.Errorf("lane %d: %v", lane, err)
					return
				}
				given[lane] += len(msgs)
				done.Add(int64(len(msgs)))
			}
		})
	}
	defer lanes.Wait()
	defer abort() // a test that fails does not wait for calls that stand still
	defer stop()
	flows := func(events int64, what string) {
		t.Helper()
		want := done.Load() + events
		require.Eventually(t, func() bool { return done.Load() >= want }, 30*time.Second, 10*time.Millisecond, what)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	flows(400, "before anything") // its first events are begun in another way: enough of them for each lane
	storms := soak(5, 50)
	for range storms {
		before := e.refusals()
		exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
		for range 5 {
			exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
			exec("SELECT pg_sleep($1)", float64(rng.IntN(100))/1000)
		}
		require.Eventually(t, func() bool { return e.refusals() >= before+4 }, 10*time.Second, time.Millisecond,
			"no session is read-only")
		exec("ALTER DATABASE " + name + " RESET default_transaction_read_only")
		flows(50, "after it was read-only")
	}
	stop()
	lanes.Wait()
	all, distinct := effects(t, pool)
	t.Logf("soak: TestReadOnlyInMidRun_P26 seed=%d size=%d kills=%d cuts=0 rebalances=0 outcome=%d effects, told of %d outages, %d dead letters",
		seed, done.Load(), 5*storms, all, e.downs, len(e.deadLetters))
	require.EqualValues(t, done.Load(), all)
	require.Equal(t, all, distinct, "an event with two effects")
	require.Empty(t, e.deadLetters)
	require.Positive(t, e.downs, "the database never went away")
	healthy(t, pool)
}
