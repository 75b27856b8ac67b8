package httpidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// A middleware that was closed too early runs no handler, since it could not renew the claim.
func TestClosedMiddlewareRunsNothing(t *testing.T) {
	s := newService(t)
	store := memstore.New()
	m, err := httpidem.New(s.config(store))
	require.NoError(t, err)
	m.Close()
	h := m.Handler(s)
	require.Equal(t, "store_unavailable", code(send(h, "a")))
	require.Zero(t, s.ran("a"))
	require.Equal(t, "a in run 1", send(s.claimed(store), "a").Body.String(),
		"nothing was held back")
}

// Handlers that still run when the middleware is closed are cancelled, and their answers are
// stored.
func TestCloseTellsHandlers(t *testing.T) {
	s := newService(t)
	store := memstore.New()
	m, err := httpidem.New(s.config(store))
	require.NoError(t, err)
	var cause error
	s.work = func(_ http.ResponseWriter, r *http.Request) {
		m.Close()
		<-r.Context().Done()
		cause = context.Cause(r.Context())
	}
	require.Equal(t, "a in run 1", send(m.Handler(s), "a").Body.String())
	require.ErrorIs(t, cause, dedup.ErrLeaseRenewerClosed)
	require.True(t, replayed(send(s.claimed(store), "a")))
}

// A handler that does not end keeps its key for Timeout and Lease. After that its outcome is
// unknown, and its late answer is sent to its client only.
func TestHandlerThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		end := make(chan struct{})
		s.work = func(http.ResponseWriter, *http.Request) { <-end }
		h := s.claimed(memstore.New(), func(c *httpidem.Config) { c.Timeout = time.Minute })
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- send(h, "a") }()
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, "request_in_flight", code(send(h, "a")))
		time.Sleep(2 * time.Second)
		require.Equal(t, "unknown_outcome", code(send(h, "a")))
		close(end)
		require.Equal(t, "a in run 1", (<-first).Body.String())
		require.Equal(t, httpidem.Unstored, s.last())
		require.Equal(t, "unknown_outcome", code(send(h, "a")))
		require.Equal(t, 1, s.ran("a"))
	})
}

// Rule 21: principals of one name in two tenants do not use up each other's keys.
func TestCapIsOfOneTenant_Rule21(t *testing.T) {
	s := newService(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s.work = func(_ http.ResponseWriter, r *http.Request) {
		if httpidem.KeyFrom(r.Context()) == "open" {
			close(begun)
			<-end
		}
	}
	cfg := s.config(memstore.New())
	cfg.Public, cfg.MaxLiveKeys = false, 1
	cfg.Principal = func(*http.Request) (string, error) { return "admin", nil }
	cfg.Tenant = func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	h := s.handler(httpidem.New(cfg))
	ask := func(tenant, key string) *httptest.ResponseRecorder {
		r := post(t.Context(), "/orders", key)
		r.Header.Set("Tenant", tenant)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	first := make(chan struct{})
	go func() {
		defer close(first)
		ask("acme", "open")
	}()
	<-begun
	require.Equal(t, "too_many_keys", code(ask("acme", "a")))
	require.Equal(t, http.StatusCreated, ask("globex", "a").Code)
	close(end)
	<-first
	require.Equal(t, http.StatusCreated, ask("acme", "b").Code)
}

// NewTx refuses options that a transaction cannot have.
func TestNewTxRefuses(t *testing.T) {
	s := newService(t)
	_, err := httpidem.NewTx[pgx.Tx](s.config(memstore.New()))
	require.ErrorContains(t, err, "pgx.Tx")
	for name, change := range map[string]func(*httpidem.Config){
		"FailOpen":      func(c *httpidem.Config) { c.FailOpen = true },
		"Rerun":         func(c *httpidem.Config) { c.Rerun = true },
		"StreamOnFlush": func(c *httpidem.Config) { c.StreamOnFlush = true },
	} {
		cfg := s.config(txOnly{memstore.New()})
		change(&cfg)
		_, err := httpidem.NewTx[pgx.Tx](cfg)
		require.ErrorContains(t, err, name)
	}
}

// txOnly has transactions that no test calls.
type txOnly struct{ dedup.Store }

func (txOnly) ClaimTx(
	context.Context, time.Duration, []dedup.Request, []dedup.Answer,
	func(pgx.Tx) ([]dedup.Completion, error),
) error {
	return dedup.ErrUnavailable
}

// Long principals and keys become an ID of fixed length, and stay distinct.
func TestLongPrincipals_H12(t *testing.T) {
	s := newService(t)
	cfg := s.config(memstore.New())
	cfg.Public = false
	cfg.Principal = func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	h := s.handler(httpidem.New(cfg))
	long := strings.Repeat("x", 250)
	for i := range 2 {
		for _, who := range []string{long + "a", long + "b", long + long} {
			r := post(t.Context(), "/orders", long)
			r.Header.Set("User", who)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			require.Equal(t, http.StatusCreated, rec.Code, rec.Body)
			require.Equal(t, i > 0, replayed(rec))
		}
	}
	require.Equal(t, 3, s.ran(long))
}
