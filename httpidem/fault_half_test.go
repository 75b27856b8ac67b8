package httpidem_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// A client that closes its half of the connection still reads the answer: an empty 200 would be
// wrong.
func TestHalfClosed_H05(t *testing.T) {
	m, err := httpidem.New(httpidem.Config{
		Store: memstore.New(), Scope: "s", Public: true, AnyPayload: true,
	})
	require.NoError(t, err)
	defer m.Close()
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // the server has seen it
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = fmt.Fprint(c,
		"POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		require.NotEqual(t, http.StatusOK, resp.StatusCode, "nothing ran")
	}
}
