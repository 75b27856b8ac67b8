package httpidem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// Rule 23: the IDs of emitted events follow from the key of the request in the store, with and
// without Lookup in front. A request without a key has no parent. For transactions see package
// pgoutbox.
func TestParentOfARequest_Rule23(t *testing.T) {
	m, err := httpidem.New(httpidem.Config{Store: memstore.New(), Scope: "api", AnyPayload: true,
		Optional:  true,
		Principal: func(*http.Request) (string, error) { return "ann", nil },
		Tenant:    func(*http.Request) (string, error) { return "acme", nil }})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parent, ok := dedup.ParentFrom(r.Context())
		key, keyed := httpidem.StoreKey(r.Context())
		_, _ = fmt.Fprintf(w, "%s %t %t", parent, ok, keyed && key == parent)
	}))
	send := func(h http.Handler, key string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Body.String()
	}
	for i, h := range []http.Handler{h, m.Lookup(h)} {
		key := fmt.Sprint("key-", i)
		want := fmt.Sprintf("%s true true",
			dedup.Key{Tenant: "acme", Scope: "api", Type: "http", ID: "ann:" + key})
		require.Equal(t, want, send(h, key))
		require.Equal(t, want, send(h, key), "replayed")
		require.Equal(t, ":::"+" false false", send(h, ""))
	}
}
