package pgstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func noWait(id string) dedup.Request {
	r := request(id)
	r.NoWait = true
	return r
}

// holdTx lets a transaction of s hold the key of r until release is called. The result of release
// is the error of the transaction.
func holdTx(t *testing.T, s *pgstore.Store, r dedup.Request, name string) (release func() error) {
	t.Helper()
	held, stop, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := claimOne(context.Background(), s, r, func(tx pgx.Tx) ([]dedup.Completion, error) {
			close(held)
			<-stop
			return nil, addEffect(context.Background(), tx, name)
		})
		done <- err
	}()
	select {
	case <-held:
	case err := <-done:
		require.NoError(t, err)
		require.Fail(t, "the handler did not run")
	}
	release = sync.OnceValue(func() error { close(stop); return <-done })
	t.Cleanup(func() { _ = release() }) // a test that fails must not wait for its own pool
	return release
}

// Rule 20: 50 retries of a key with an open transaction do not take the pool of four. They get
// Busy, and other calls get through. The holder may be one of them, or a consumer that has not
// taken its turn.
func TestRetriesLeaveThePool_Rule20(t *testing.T) {
	for name, holder := range map[string]dedup.Request{"request": noWait("e"), "consumer": request("e")} {
		for layout, opts := range layouts {
			t.Run(name+layout, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t, newTables(t, opts...), maxConns(4))
				retriesLeaveThePool(t, pool, pgstore.New(pool, opts...), holder)
			})
		}
	}
}

func retriesLeaveThePool(t *testing.T, pool *pgxpool.Pool, s *pgstore.Store, holder dedup.Request) {
	t.Helper()
	const callers, others, turns = 50, 2, 10
	release := holdTx(t, s, holder, "one")
	began := time.Now()
	var busy atomic.Int32
	var all sync.WaitGroup
	errs, slowest := make([]error, callers+others), make([]time.Duration, others)
	for i := range callers {
		all.Go(func() {
			for range 3 {
				v, err := claimOne(t.Context(), s, noWait("e"), never(t))
				errs[i] = errors.Join(errs[i], err)
				if v == dedup.Busy {
					busy.Add(1)
				}
			}
		})
	}
	for i := range others {
		all.Go(func() {
			for n := range turns {
				since := time.Now()
				id := fmt.Sprintf("other-%d-%d", i, n)
				v, err := claimOne(t.Context(), s, noWait(id), effect(t.Context(), id))
				if err == nil && v != dedup.Fresh {
					err = fmt.Errorf("%s: %v", id, v)
				}
				errs[callers+i] = errors.Join(errs[callers+i], err)
				slowest[i] = max(slowest[i], time.Since(since))
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 3*callers, busy.Load())
	t.Logf("%d times Busy in %v, slowest other claim %v", busy.Load(), took, slowest)
	require.Less(t, took, 15*time.Second, "waiting for the key, they would take 100 s")
	for _, d := range slowest {
		require.Less(t, d, 5*time.Second)
	}
	require.EqualValues(t, 1, pool.Stat().AcquiredConns(), "only the holder has a connection")
	require.NoError(t, release())
	v, err := claimOne(t.Context(), s, noWait("e"), never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Done, v)
	require.Equal(t, 1, countEffects(t, pool, "one"))
	healthy(t, pool)
}

// Rule 20: in a pool of two, one of which is the holder's.
func TestRetriesInPoolOfTwo_Rule20(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t, maxConns(2))
	release := holdTx(t, s, noWait("e"), "one")
	var all sync.WaitGroup
	verdicts, errs := make([]dedup.Verdict, 50), make([]error, 50)
	for i := range verdicts {
		all.Go(func() {
			id := "e"
			if i%10 == 0 {
				id = fmt.Sprint("other-", i)
			}
			verdicts[i], errs[i] = claimOne(t.Context(), s, noWait(id), plain)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	for i, v := range verdicts {
		require.Equal(t, i%10 == 0, v == dedup.Fresh, "caller %d: %v", i, v)
		require.Equal(t, i%10 != 0, v == dedup.Busy, "caller %d: %v", i, v)
	}
	require.NoError(t, release())
	healthy(t, pool)
}

// A request out of turn gets the committed record all the same: replays do not hold each other up.
func TestOutOfTurnSeesWhatIsCommitted_Rule20(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	schema := pool.Config().ConnConfig.RuntimeParams["search_path"]
	r := noWait("e")
	_, err := claimOne(t.Context(), s, r, func(pgx.Tx) ([]dedup.Completion, error) {
		return []dedup.Completion{{Claim: r.Held(dedup.Token{}, dedup.Answer{}), Retention: retention,
			Result: dedup.Result{Schema: 1, Data: []byte("kept")}}}, nil
	})
	require.NoError(t, err)
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	for _, id := range []string{"e", "f"} {
		k := request(id).Key
		_, err = other.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", pgstore.TurnOf(schema, &k))
		require.NoError(t, err)
	}
	var a [1]dedup.Answer
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, a[:], never(t)))
	require.Equal(t, dedup.Done, a[0].Verdict)
	require.Equal(t, "kept", string(a[0].Result.Data))
	v, err := claimOne(t.Context(), s, noWait("f"), never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Busy, v)
	v, err = claimOne(t.Context(), s, request("f"), plain) // a request that waits takes no turn
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
}

// The number of a key may never change: releases that run side by side would not see each other (rule 20).
func TestTurnIsTheSameInAllReleases_Rule20(t *testing.T) {
	k := dedup.Key{Tenant: "acme", Scope: "http", Type: "payment", ID: "key-1"}
	require.Equal(t, int64(-5527810784304057950), pgstore.TurnOf("public", &k))
	other := k
	other.ID = "key-2"
	require.NotEqual(t, pgstore.TurnOf("public", &k), pgstore.TurnOf("public", &other))
	require.NotEqual(t, pgstore.TurnOf("public", &k), pgstore.TurnOf("other", &k))
}

// The handler's session is as it is without NoWait: lock_timeout is the session's, not that of the claim.
func TestNoWaitSettings_Rule20(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newStore(t, inMode(mode), param("lock_timeout", "700"), param("statement_timeout", "9000"))
			_, err := claimOne(t.Context(), s, noWait("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
				var lock, statement, seqscan string
				err := tx.QueryRow(t.Context(), `SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
					current_setting('enable_seqscan')`).Scan(&lock, &statement, &seqscan)
				require.Equal(t, []string{"700ms", "9s", "on"}, []string{lock, statement, seqscan})
				return nil, err
			})
			require.NoError(t, err)
		})
	}
}

// counter counts round trips, which are messages that wait for an answer of the server, and the
// server's errors.
type counter struct{ syncs, errors atomic.Int32 }

func (c *counter) down(client io.Writer, server io.Reader) {
	in := bufio.NewReader(server)
	for {
		m, err := readMessage(in, true)
		if err != nil {
			return
		}
		if m[0] == 'E' {
			c.errors.Add(1)
		}
		if _, err := client.Write(m); err != nil {
			return
		}
	}
}

func (c *counter) up(server io.Writer, client io.Reader) {
	in := bufio.NewReader(client)
	for first := true; ; first = false {
		m, err := readMessage(in, !first)
		if err != nil {
			return
		}
		if !first && (m[0] == 'S' || m[0] == 'Q') {
			c.syncs.Add(1)
		}
		if _, err := server.Write(m); err != nil {
			return
		}
	}
}

// A claim that does not wait costs no more round trips than one that does; Busy costs two.
func TestNoWaitRoundTrips_Rule20(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	direct := newPool(t, url)
	cfg := direct.Config().ConnConfig
	c := &counter{}
	proxy := netproxy.Start(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), func() netproxy.Link {
		return netproxy.Link{Up: c.up, Down: c.down}
	})
	pool := newPool(t, url, maxConns(1), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Addr())
		}
	})
	s := pgstore.New(pool)
	trips := func(r dedup.Request, want dedup.Verdict) int32 {
		before := c.syncs.Load()
		v, err := claimOne(t.Context(), s, r, plain)
		require.NoError(t, err)
		require.Equal(t, want, v)
		return c.syncs.Load() - before
	}
	hold := func() func() error { return holdTx(t, pgstore.New(direct), noWait("held"), "held") }
	release := hold()
	for _, r := range []dedup.Request{request("warm-1"), noWait("warm-2")} { // statements are prepared
		trips(r, dedup.Fresh)
		trips(r, dedup.Done)
	}
	trips(noWait("held"), dedup.Busy)
	require.EqualValues(t, 2, trips(request("a"), dedup.Fresh), "claim, commit")
	require.EqualValues(t, 2, trips(noWait("b"), dedup.Fresh))
	require.Equal(t, trips(request("a"), dedup.Done), trips(noWait("b"), dedup.Done))
	require.EqualValues(t, 2, trips(noWait("held"), dedup.Busy), "ask, look and end")
	require.Zero(t, c.errors.Load(), "Busy is no error of the server's log, and nothing has waited for a time-out")
	require.NoError(t, release())

	reqs, answers := []dedup.Request{request("a")}, make([]dedup.Answer, 1)
	for name, look := range map[string]func() error{
		"claims":       func() error { return s.Look(t.Context(), reqs, answers) },
		"transactions": func() error { return s.LookTx(t.Context(), reqs, answers) },
	} {
		require.NoError(t, look())
		before := c.syncs.Load()
		require.NoError(t, look())
		require.EqualValues(t, 1, c.syncs.Load()-before, name)
	}
}
