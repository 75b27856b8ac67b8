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
