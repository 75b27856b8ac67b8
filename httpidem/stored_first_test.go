package httpidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// beforeComplete calls a function before each completion.
type beforeComplete struct {
	*memstore.Store
	call func()
}

func (b *beforeComplete) Complete(ctx context.Context, done []dedup.Completion) error {
	b.call()
	return b.Store.Complete(ctx, done)
}

// H-23: the client sees no byte of an answer that is not stored. A process that dies in between
// would leave a client with an answer, and a key with an unknown outcome.
func TestAnswerIsStoredBeforeItIsSent_H23(t *testing.T) {
	synctest.Test(t, answerIsStoredBeforeItIsSent) // a slow machine has time to store the answer
}

func answerIsStoredBeforeItIsSent(t *testing.T) {
	w := httptest.NewRecorder()
	completed := 0
	store := &beforeComplete{memstore.New(), func() {
		completed++
		require.Zero(t, w.Body.Len())
		require.Empty(t, w.Header().Get("Location"))
	}}
	m, err := httpidem.New(httpidem.Config{
		Store: store, Scope: "orders", Public: true, Secret: []byte("0123456789abcdef0123456789abcdef"),
	})
	require.NoError(t, err)
	defer m.Close()
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("created"))
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
	r.Header.Set("Idempotency-Key", "0190f3b4-5c2a-7abc-8def-0123456789ab")
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "created", w.Body.String())
	require.Equal(t, 1, completed)
}
