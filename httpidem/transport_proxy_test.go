package httpidem_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// A reverse proxy passes on the request of its server, with the RequestURI that http.Client refuses.
func TestTransportInReverseProxy(t *testing.T) {
	back := newHop(t, 0)
	target, err := url.Parse(back.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &httpidem.Transport{Attempts: 1}
	front := httptest.NewServer(proxy)
	defer front.Close()
	resp, err := http.Post(front.URL+"/orders", "text/plain", strings.NewReader("7"))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Len(t, back.seen("/orders"), 1)
	require.NotEmpty(t, back.seen("/orders")[0])
}

// Two tenants of a gateway send equal keys. The server behind gets the keys that the gateway derives
// from them, and sees each repeat as one.
func TestTransportInGateway(t *testing.T) {
	back := newHop(t, 0)
	target, err := url.Parse(back.URL)
	require.NoError(t, err)
	once, err := httpidem.New(httpidem.Config{
		Store: memstore.New(), Scope: "gateway", Secret: []byte("sixteen bytes or more"),
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil },
		ResultPolicy: func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy {
			return httpidem.Forget // so that repeats reach the server behind
		},
	})
	require.NoError(t, err)
	defer once.Close()
	front := httptest.NewServer(once.Handler(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			ctx := r.Out.Context()
			r.Out = r.Out.WithContext(httpidem.WithKey(ctx, httpidem.ForwardKey(ctx, "charge")))
		},
		Transport: &httpidem.Transport{Attempts: 1},
	}))
	defer front.Close()
	for range 2 {
		for _, tenant := range []string{"a", "b"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/orders",
				strings.NewReader("7"))
			require.NoError(t, err)
			r.Header.Set("Idempotency-Key", "order-1")
			r.Header.Set("X-Tenant", tenant)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		}
	}
	keys := back.seen("/orders")
	require.Len(t, keys, 4)
	require.NotContains(t, keys, "order-1")
	require.NotEqual(t, keys[0], keys[1])
	require.Equal(t, keys[:2], keys[2:])
}
