package pgoutbox_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/outbox"
)

// emitted is the identity of send(key) that follows from parent.
func emitted(parent dedup.Key, key string) string {
	e := send(key)
	return outbox.ID(parent, &e)
}

// Rule 23: a claimed handler emits in a transaction of its own. If it runs twice, it emits the same
// events.
func TestEmitFromAClaimedHandler_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	runs := 0
	p := s.processor("orders", func(r *idem.Router) {
		idem.On(r, "order.paid", func(ctx context.Context, e idem.Event[order]) error {
			runs++
			bare, err := s.pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = bare.Rollback(context.WithoutCancel(ctx)) }()
			tx := s.box.Queue(bare)
			if err := errors.Join(s.box.Add(ctx, tx, send("b")), s.box.Add(ctx, tx, send("a")), tx.Commit(ctx)); err != nil {
				return err
			}
			if runs == 1 {
				return errBad // after the effect
			}
			return nil
		})
	})
	s.settle(p, s.messages("e")...)
	require.Equal(t, 2, runs)
	key := keyOf("orders", "e")
	a, b := emitted(key, "a"), emitted(key, "b")
	require.ElementsMatch(t, []string{a, a, b, b}, s.ids())
	require.Equal(t, []string{"a", "b", "a", "b"}, s.rows(), "sorted")
}

// O-01, rule 23: [dedup.DoTx] emits if and only if its result is kept.
func TestEmitFromDoTx_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	guard := dedup.NewGuard(pgstore.New(s.pool), dedup.GuardConfig{})
	defer guard.Close()
	key := dedup.Key{Scope: "jobs", Type: "close-month", ID: "2026-10"}
	do := func(fails error) (int, bool, error) {
		return dedup.DoTx(t.Context(), guard, key, time.Minute, func(ctx context.Context, tx pgx.Tx) (int, error) {
			return 7, errors.Join(s.effect(ctx, tx, "month"), s.box.Add(ctx, tx, send("k")), fails)
		})
	}
	_, _, err := do(errBad)
	require.ErrorIs(t, err, errBad)
	require.Empty(t, s.rows())
	for i := range 3 {
		got, replayed, err := do(nil)
		require.NoError(t, err)
		require.Equal(t, 7, got)
		require.Equal(t, i > 0, replayed)
	}
	require.Equal(t, []string{emitted(key, "k")}, s.ids())
	require.Equal(t, []string{"month"}, s.names())
}

// Rule 10: a lock of a foreign transaction makes DoTx wait and run again, and return an error after
// its wait budget. No effect is half done.
func TestDoTxWaitsForAForeignTransaction_Rule10(t *testing.T) {
	t.Parallel()
	s := newService(t)
	guard := dedup.NewGuard(pgstore.New(s.pool), dedup.GuardConfig{})
	defer guard.Close()
	foreign := begin(t, s.pool)
	theirs := send("k")
	theirs.ID = "foreign"
	require.NoError(t, s.box.Add(t.Context(), foreign, theirs))
	runs := 0
	do := func(wait time.Duration) error {
		_, _, err := dedup.DoTx(t.Context(), guard, dedup.Key{ID: "1"}, time.Minute, func(ctx context.Context, tx pgx.Tx) (int, error) {
			if runs++; runs == 3 {
				require.NoError(t, foreign.Rollback(ctx))
			}
			return 0, errors.Join(s.effect(ctx, tx, "done"), s.box.Add(ctx, tx, send("k")))
		}, dedup.WaitFor(wait))
		return err
	}
	require.ErrorIs(t, do(-1), dedup.ErrInFlight)
	require.Equal(t, 1, runs)
	require.Empty(t, s.names())
	require.NoError(t, do(time.Minute))
	require.Equal(t, 3, runs)
	require.Equal(t, []string{"done"}, s.names())
	require.Len(t, s.rows(), 1)
}

// Rule 20, O-01: a request that succeeds emits once, however often it is sent. A refused request
// keeps its answer and emits no event. A failed request emits no event and runs again.
func TestEmitFromRequests_Rule20(t *testing.T) {
	t.Parallel()
	s := newService(t)
	m, err := httpidem.NewTx[pgx.Tx](httpidem.Config{Store: pgstore.New(s.pool), Scope: "api", Public: true, AnyPayload: true, Optional: true})
	require.NoError(t, err)
	defer m.Close()
	status := http.StatusCreated
	handler := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, _ := httpidem.TxFrom[pgx.Tx](ctx)
		key, _ := httpidem.StoreKey(ctx)
		if err := errors.Join(s.effect(ctx, tx, key.ID), s.box.Add(ctx, tx, send("k"))); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	post := func(key string, answer int) int {
		status = answer
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	keyed := func(id string) string { return emitted(dedup.Key{Scope: "api", Type: "http", ID: id}, "k") }
	for range 3 {
		require.Equal(t, http.StatusCreated, post("made", http.StatusCreated))
		require.Equal(t, http.StatusConflict, post("refused", http.StatusConflict))
		require.Equal(t, http.StatusBadGateway, post("failed", http.StatusBadGateway))
	}
	require.Equal(t, []string{keyed("made")}, s.ids())
	require.Equal(t, []string{"made"}, s.names())
	require.Equal(t, http.StatusCreated, post("failed", http.StatusCreated))
	require.Equal(t, http.StatusConflict, post("refused", http.StatusCreated), "its answer is kept")
	require.ElementsMatch(t, []string{keyed("made"), keyed("failed")}, s.ids())
	require.Equal(t, []string{"failed", "made"}, s.names())
}

// Rule 20: the entries of a request wait for a lock of a stopped transaction. The request is
// answered 409 in a bounded time, and no effect of it remains.
func TestRequestMeetsAForeignTransaction_Rule20(t *testing.T) {
	t.Parallel()
	s := newService(t)
	m, err := httpidem.NewTx[pgx.Tx](httpidem.Config{Store: pgstore.New(s.pool), Scope: "api", Public: true, AnyPayload: true})
	require.NoError(t, err)
	defer m.Close()
	server := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := httpidem.TxFrom[pgx.Tx](r.Context())
		if err := errors.Join(s.effect(r.Context(), tx, "done"), s.box.Add(r.Context(), tx, send("k"))); err != nil {
			t.Error(err)
		}
	})))
	defer server.Close()
	post := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "1")
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	foreign := begin(t, s.pool)
	theirs := send("k")
	theirs.ID = "foreign"
	require.NoError(t, s.box.Add(t.Context(), foreign, theirs))
	began := time.Now()
	resp := post()
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, after)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Empty(t, s.names())
	require.NoError(t, foreign.Commit(t.Context()))
	require.Equal(t, http.StatusOK, post().StatusCode)
	require.Equal(t, http.StatusOK, post().StatusCode)
	require.Equal(t, []string{"done"}, s.names())
	require.Len(t, s.rows(), 2)
}
