package httpidem

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
)

// badWire carries requests to a handler. A request for which lose returns true is handled, but its
// answer is lost: the client gets an error after a second, whether the handler has ended or not.
type badWire struct {
	handler http.Handler
	lose    func(attempt int64) bool
	n       atomic.Int64
	all     sync.WaitGroup
}

func (b *badWire) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	served := make(chan struct{})
	b.all.Go(func() {
		defer close(served)
		b.handler.ServeHTTP(w, r)
	})
	if b.lose(b.n.Add(1)) {
		time.Sleep(time.Second)
		return nil, errBroken
	}
	<-served
	return w.Result(), nil
}

// Client and server together: the handler runs once, and the client gets its answer, however often
// answers are lost. While the handler runs, retries are asked to come later.
func TestTransportMeetsMiddleware(t *testing.T) {
	for name, takes := range map[string]time.Duration{"the handler has ended": 0,
		"the handler still runs": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := New(Config{
					Store: memstore.New(), Scope: "s", Public: true,
					Secret: make([]byte, minSecret),
				})
				require.NoError(t, err)
				defer m.Close()
				var runs atomic.Int64
				wire := &badWire{lose: func(attempt int64) bool { return attempt <= 2 }}
				wire.handler = m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					time.Sleep(takes)
					w.WriteHeader(http.StatusCreated)
					_, _ = io.Copy(w, r.Body)
				}))
				resp, err := post(t.Context(), t,
					&Transport{Base: wire, Attempts: 10, Quoted: takes == 0}, "10 EUR")
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, resp.StatusCode)
				require.True(t, IsReplay(resp))
				require.Equal(t, "10 EUR", readAll(t, resp))
				wire.all.Wait()
				require.EqualValues(t, 1, runs.Load())
				require.Equal(t, takes > 0, wire.n.Load() > 3, "%d attempts", wire.n.Load())
			})
		})
	}
}

// Answers of the middleware that a retry cannot change are returned at once.
func TestTransportTakesNoForAnAnswer(t *testing.T) {
	m, err := New(Config{
		Store: memstore.New(), Scope: "s", Public: true, Secret: make([]byte, minSecret),
	})
	require.NoError(t, err)
	defer m.Close()
	wire := &badWire{lose: func(int64) bool { return false },
		handler: m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable) // stored, since it ran under a claim
		}))}
	transport := &Transport{Base: wire, Attempts: 2, Backoff: time.Millisecond}
	ctx := WithKey(t.Context(), "k")
	for i, want := range []struct {
		body     string
		status   int
		attempts int64
	}{
		{"a", http.StatusServiceUnavailable, 2}, // the second one is the replay
		{"a", http.StatusServiceUnavailable, 1},
		{"b", http.StatusUnprocessableEntity, 1},
	} {
		wire.n.Store(0)
		resp, err := post(ctx, t, transport, want.body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want.status, resp.StatusCode, i)
		require.Equal(t, want.attempts, wire.n.Load(), i)
	}
	wire.all.Wait()
}
