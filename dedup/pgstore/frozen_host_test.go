package pgstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/netproxy"
)

// throughFreezer returns the setting that sends a pool through a proxy. After freeze, its
// connections stay open and carry no data. The function hangUp ends them.
func throughFreezer(t testing.TB, direct *pgxpool.Pool) (with configure, freeze, hangUp func()) {
	t.Helper()
	frozen, freeze := context.WithCancel(context.Background())
	ended, hangUp := context.WithCancel(context.Background())
	pipe := func(dst io.Writer, src io.Reader) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := src.Read(buffer)
			if frozen.Err() != nil {
				<-ended.Done()
				return
			}
			if n > 0 {
				if _, failed := dst.Write(buffer[:n]); failed != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	cfg := direct.Config().ConnConfig
	proxy := netproxy.Start(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), func() netproxy.Link {
		return netproxy.Link{Up: pipe, Down: pipe}
	})
	t.Cleanup(hangUp) // before the proxy waits for its pipes
	t.Cleanup(freeze)
	return func(cfg *pgxpool.Config) {
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Addr())
		}
	}, freeze, hangUp
}

// Rule 10: a host is cut off in the middle of its transaction, and the server does not hear of it. The server ends the idle
// session when the handler's time and a few seconds are over. Then another host handles the event, once.
func TestFrozenHostLosesItsTransaction_Rule10(t *testing.T) {
	t.Parallel()
	there, direct := newStore(t)
	with, freeze, hangUp := throughFreezer(t, direct)
	cutOff := pgstore.New(newPool(t, direct.Config().ConnString(), with))

	held, gone := make(chan struct{}), make(chan error, 1)
	ctx, crash := context.WithCancel(t.Context())
	go func() {
		var a [1]dedup.Answer
		gone <- cutOff.ClaimTx(ctx, time.Second, []dedup.Request{request("e")}, a[:], func(tx pgx.Tx) ([]dedup.Completion, error) {
			if err := addEffect(ctx, tx, "cut off"); err != nil {
				return nil, err
			}
			freeze()
			close(held)
			return nil, nil // the COMMIT does not arrive
		})
	}()
	<-held
	began, busy := time.Now(), 0
	for {
		v, err := claimOne(t.Context(), there, request("e"), effect(t.Context(), "there"))
		require.NoError(t, err)
		if v == dedup.Fresh {
			break
		}
		require.Equal(t, dedup.Busy, v)
		require.Less(t, time.Since(began), time.Minute)
		busy++
	}
	require.NotZero(t, busy, "the first transaction was open")
	crash()
	require.Error(t, <-gone)
	hangUp()
	require.Zero(t, countEffects(t, direct, "cut off"))
	require.Equal(t, 1, countEffects(t, direct, "there"))
	healthy(t, direct)
}

// Rule 20: a server falls silent while maintenance or a verb of an operator is at work, and its
// connections stay open. The call ends by itself, also with a context that never ends.
func TestFrozenServerEndsMaintenance_Rule20(t *testing.T) {
	t.Parallel()
	waits := func(t *testing.T, direct *pgxpool.Pool, sql string) (untilWaiting func()) {
		tx, err := direct.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
		return func() {
			var waiting bool
			for !waiting && t.Context().Err() == nil {
				if err := direct.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE wait_event_type = 'Lock' AND query LIKE '%' || current_schema() || '%')`).Scan(&waiting); err != nil {
					t.Errorf("wait: %v", err)
					return
				}
			}
		}
	}
	type call = func(context.Context) error
	for name, prepare := range map[string]func(t *testing.T, s *pgstore.Store, direct *pgxpool.Pool, freeze func()) call{
		"reaper between two batches": func(t *testing.T, s *pgstore.Store, direct *pgxpool.Pool, freeze func()) call {
			many(t, direct, "g", 3)
			record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
			reap(t, s, soonest())
			cfg := soonest()
			cfg.Batch, cfg.Deleted = 1, func(int64) { freeze() }
			return func(ctx context.Context) error {
				_, err := pgstore.NewReaper(s, cfg).RunOnce(ctx)
				return err
			}
		},
		"register in a statement": func(t *testing.T, s *pgstore.Store, direct *pgxpool.Pool, freeze func()) call {
			untilWaiting := waits(t, direct, "INSERT INTO idem_scopes (scope) VALUES ('g')")
			return func(ctx context.Context) error {
				go func() { untilWaiting(); freeze() }()
				return s.Register(ctx, dedup.Registration{Scope: "g", Group: "g", Topics: []string{"t"}})
			}
		},
		"discard in a statement": func(t *testing.T, s *pgstore.Store, direct *pgxpool.Pool, freeze func()) call {
			put(t, direct, old{scope: "g", id: "a", status: "dead", made: day})
			untilWaiting := waits(t, direct, "UPDATE processed_events SET reason = ''")
			return func(ctx context.Context) error {
				go func() { untilWaiting(); freeze() }()
				return s.Discard(ctx, dedup.Key{Scope: "g", Type: "x", ID: "a"}, time.Hour, "")
			}
		},
		"list between two pages": func(t *testing.T, s *pgstore.Store, direct *pgxpool.Pool, freeze func()) call {
			many(t, direct, "g", 501)
			return func(ctx context.Context) error {
				return s.List(ctx, dedup.Filter{}, 0, func(dedup.Record) bool { freeze(); return true })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there, direct := newStore(t)
			require.NoError(t, there.Look(t.Context(), []dedup.Request{request("warm")}, make([]dedup.Answer, 1)))
			with, freeze, hangUp := throughFreezer(t, direct)
			s := pgstore.New(newPool(t, direct.Config().ConnString(), with))
			s.SetSilence(time.Second)
			call, told := prepare(t, s, direct, freeze), make(chan error, 1)
			go func() { told <- call(context.WithoutCancel(t.Context())) }()
			t.Cleanup(hangUp)
			select {
			case err := <-told:
				require.ErrorIs(t, err, dedup.ErrUnavailable)
			case <-time.After(40 * time.Second):
				require.Fail(t, "waits for ever")
			}
		})
	}
}
