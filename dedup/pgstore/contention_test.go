package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// holdKey lets another transaction hold the key of r until release is called.
func holdKey(t *testing.T, pool *pgxpool.Pool, r dedup.Request) (release func()) {
	t.Helper()
	s := pgstore.New(pool)
	held, stop, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := claimOne(context.Background(), s, r, func(pgx.Tx) ([]dedup.Completion, error) {
			close(held)
			<-stop
			return nil, errHandler
		})
		done <- err
	}()
	<-held
	release = sync.OnceFunc(func() {
		close(stop)
		require.ErrorIs(t, <-done, errHandler)
	})
	t.Cleanup(release) // a test that fails must not wait for its own pool
	return release
}

// newAccounts makes a table of rows that events share.
func newAccounts(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), fmt.Sprintf(`CREATE TABLE acct (id int PRIMARY KEY, bal int NOT NULL);
		INSERT INTO acct SELECT i, 0 FROM generate_series(0, %d) i`, n-1))
	require.NoError(t, err)
}

// Rule 10: a request for a key that a transaction holds waits for two seconds. Then the answer is
// Busy, without an error, also with a shorter statement_timeout.
func TestHeldKeyIsBusy_Rule10(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, param("statement_timeout", "700"), param("lock_timeout", "300"))
	release := holdKey(t, pool, request("e"))
	began := time.Now()
	v, err := claimOne(t.Context(), s, request("e"), never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Busy, v)
	require.GreaterOrEqual(t, time.Since(began), 1900*time.Millisecond)
	require.Less(t, time.Since(began), 8*time.Second)
	release()
	v, err = claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	healthy(t, pool)
}

// Rule 10: the same for a row that exists and waits for a copy.
func TestHeldRetryIsBusy_Rule10(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(pgx.Tx) ([]dedup.Completion, error) {
		r := request("e")
		return []dedup.Completion{{Claim: r.Held(dedup.Token{}, dedup.Answer{}), Retention: retention, Retry: 1}}, nil
	})
	require.NoError(t, err)
	r := request("e")
	r.Position.Retry = 1
	defer holdKey(t, pool, r)()
	v, err := claimOne(t.Context(), s, r, never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Busy, v)
}

// Rule 1: a group does not wait. Neither in its claim nor in its handler.
func TestGroupNeverWaits_Rule1(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	reqs := batch(3, 0)
	answers := make([]dedup.Answer, 3)
	release := holdKey(t, pool, reqs[1])
	began := time.Now()
	err := s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t))
	require.ErrorIs(t, err, dedup.ErrContended)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.Less(t, time.Since(began), time.Second)
	release()

	newAccounts(t, pool, 20)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = other.Exec(t.Context(), "UPDATE acct SET bal = 1 WHERE id = 7")
	require.NoError(t, err)
	began, calls := time.Now(), 0
	err = s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(tx pgx.Tx) ([]dedup.Completion, error) {
		calls++
		_, err := tx.Exec(t.Context(), "UPDATE acct SET bal = bal + 1 WHERE id = 7")
		return nil, err
	})
	require.ErrorIs(t, err, dedup.ErrContended)
	require.Equal(t, 1, calls)
	require.Less(t, time.Since(began), time.Second)
}

// Rule 1: lanes that add to shared rows in their own orders. Groups that are refused run singly. No
// money is lost or made, and no transaction waits for the detection of a deadlock.
func TestSharedRows_Rule1(t *testing.T) {
	t.Parallel()
	const lanes, groups, size, accounts = 6, 8, 16, 10
	s, pool := newStore(t)
	newAccounts(t, pool, accounts)
	var contended atomic.Int32
	var wg sync.WaitGroup
	for lane := range lanes {
		rng := rand.New(rand.NewPCG(7, uint64(lane)))
		wg.Go(func() {
			for g := range groups {
				reqs := batch(size, lane*1000+g)
				rows := make([]int, size)
				for i := range rows {
					rows[i] = rng.IntN(accounts)
				}
				add := func(tx pgx.Tx, rows []int) (err error) {
					for _, id := range rows {
						_, e := tx.Exec(t.Context(), "UPDATE acct SET bal = bal + 1 WHERE id = $1", id)
						err = errors.Join(err, e)
					}
					return err
				}
				err := s.ClaimTx(t.Context(), time.Minute, reqs, make([]dedup.Answer, size),
					func(tx pgx.Tx) ([]dedup.Completion, error) { return nil, add(tx, rows) })
				if errors.Is(err, dedup.ErrContended) {
					contended.Add(1)
					err = nil
					for i := range reqs {
						_, e := claimOne(t.Context(), s, reqs[i],
							func(tx pgx.Tx) ([]dedup.Completion, error) { return nil, add(tx, rows[i:i+1]) })
						err = errors.Join(err, e)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var sum int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(bal) FROM acct").Scan(&sum))
	require.Equal(t, lanes*groups*size, sum)
	require.Positive(t, contended.Load(), "no group was ever refused: the test tests nothing")
	healthy(t, pool)
}

// P-04: eight workers claim batches of 500 keys that overlap, in both ways, and take over and
// finish in between. No caller gets a deadlock, and no key is held twice. In the compact layout the
// order of the rows is that of their hashes.
func TestOverlappingBatchesDoNotDeadlock_P04(t *testing.T) {
	t.Run("readable", func(t *testing.T) { overlappingBatches(t, newStore, "idempotency_keys") })
	t.Run("compact", func(t *testing.T) { overlappingBatches(t, newCompactStore, "idempotency_keys_compact") })
}

func overlappingBatches(t *testing.T, open func(testing.TB, ...configure) (*pgstore.Store, *pgxpool.Pool), table string) {
	t.Parallel()
	const workers, rounds, size, space = 8, 6, 500, 1500
	deadlocks := &errorCounter{code: "40P01"}
	s, pool := open(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = deadlocks })
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(4, uint64(w)))
		wg.Go(func() {
			for range rounds {
				var reqs []dedup.Request
				for _, i := range rng.Perm(space)[:size] {
					reqs = append(reqs, request(fmt.Sprint(i)))
				}
				slices.SortFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
				answers := make([]dedup.Answer, size)
				token := dedup.NewToken()
				if err := s.Claim(t.Context(), token, time.Minute, reqs, answers); err != nil {
					t.Error(err)
					return
				}
				var back []dedup.Release
				for i, a := range answers {
					if a.Verdict.Held() {
						fresh.Add(1)
						back = append(back, dedup.Release{Claim: reqs[i].Held(token, a), Retention: retention})
					}
				}
				rng.Shuffle(len(back), func(i, j int) { back[i], back[j] = back[j], back[i] }) // callers need not sort these
				if err := s.Release(t.Context(), back); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var fences int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(fence) FROM "+table).Scan(&fences))
	require.EqualValues(t, fences, fresh.Load(), "each claim was granted to one")
	require.Zero(t, deadlocks.n.Load(), "deadlocks, hidden by repetition")
}

// errorCounter counts the server's errors with a code, repeated or not.
type errorCounter struct {
	code string
	n    atomic.Int32
}

func (e *errorCounter) count(err error) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == e.code {
		e.n.Add(1)
	}
}

func (e *errorCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (e *errorCounter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	e.count(d.Err)
}
func (e *errorCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (e *errorCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	e.count(d.Err)
}
func (e *errorCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// Rule 10: a holder that dies while its statement runs, killed as a process, holds its event for some seconds only.
func TestKilledHolderIsNoticed_Rule10(t *testing.T) {
	t.Parallel()
	if url := os.Getenv("PGSTORE_TEST_HOLDER"); url != "" { // this is the holder
		s, err := pgstore.Open(t.Context(), url)
		require.NoError(t, err)
		_, err = claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
			_, err := tx.Exec(t.Context(), "SELECT pg_sleep(60)")
			return nil, err
		})
		require.NoError(t, err)
		return
	}
	url := newTables(t)
	pool := newPool(t, url)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "PGSTORE_TEST_HOLDER="+url)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }() // killed: its status has no meaning
	defer func() { _ = cmd.Process.Kill() }()
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
			WHERE a.query LIKE '%pg_sleep(60)%' AND a.pid <> pg_backend_pid()
			  AND l.relation = 'processed_events'::regclass`).Scan(&n)
		return err == nil && n > 0
	}, 20*time.Second, 20*time.Millisecond, "the holder does not run")
	require.NoError(t, cmd.Process.Kill())
	began := time.Now()
	s := pgstore.New(pool)
	for {
		v, err := claimOne(t.Context(), s, request("e"), plain)
		require.NoError(t, err)
		if v == dedup.Fresh {
			break
		}
		require.Equal(t, dedup.Busy, v)
		require.Less(t, time.Since(began), 15*time.Second)
	}
	t.Logf("free after %v", time.Since(began).Round(10*time.Millisecond))
}

// P-14: more workers than connections, each with a transaction. They queue, and all go on.
func TestPoolSmallerThanWorkers_P14(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(4))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if _, err := claimOne(t.Context(), s, request(fmt.Sprint(w, " ", i%7)), effect(t.Context(), "e")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 8*7, countEffects(t, pool, "e"))
	healthy(t, pool)
}

// P-20: duplicates do not write: no sequence is drawn from, no transaction ID is taken, no row is
// locked.
func TestDuplicatesWriteNothing_P20(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	reqs := batch(20, 0)
	answers := make([]dedup.Answer, len(reqs))
	token := dedup.NewToken()
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, plain))
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers))
	var done []dedup.Completion
	for i := range reqs {
		done = append(done, dedup.Completion{Claim: reqs[i].Held(token, answers[i]), Retention: retention})
	}
	require.NoError(t, s.Complete(t.Context(), done))
	rows := func() (all string) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT string_agg(t, ',' ORDER BY t) FROM (
			SELECT event_id || xmin || ' ' || xmax || ctid AS t FROM processed_events
			UNION ALL SELECT event_id || xmin || ' ' || xmax || ctid FROM idempotency_keys) x`).Scan(&all))
		return all
	}
	before := rows()
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)))
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers))
	require.Equal(t, dedup.Done, answers[7].Verdict)
	require.Equal(t, before, rows())
	var sequences int
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace").Scan(&sequences))
	require.Zero(t, sequences)
	require.NotContains(t, strings.ToLower(pgstore.Schema()), "serial")
}
