package httpidem_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/netproxy"
)

// cutHeader marks the requests that lose their connection when the server has begun to handle them.
const cutHeader = "X-Cut"

// resender is a server behind a proxy on which the first marked request loses its connection.
type resender struct {
	url      string
	requests atomic.Int64 // marked requests that reached the server
	begun    chan struct{}
	came     chan struct{} // closed when the second arrives
	again    chan struct{} // closed when the second was answered
	once     sync.Once
}

func newResender(t testing.TB, h http.Handler) *resender {
	r := &resender{
		begun: make(chan struct{}), came: make(chan struct{}), again: make(chan struct{}),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(cutHeader) != "" && r.requests.Add(1) == 2 {
			close(r.came)
			defer close(r.again)
		}
		h.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	proxy := netproxy.Start(t, server.Listener.Addr().String(), func() netproxy.Link {
		return netproxy.Link{Up: func(dst io.Writer, src io.Reader) {
			buf := make([]byte, 64<<10)
			for {
				n, err := src.Read(buf)
				if err != nil {
					return
				}
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
				if bytes.Contains(buf[:n], []byte(cutHeader)) {
					cut := false
					r.once.Do(func() { cut = true })
					if cut {
						<-r.begun
						return
					}
				}
			}
		}}
	})
	r.url = "http://" + proxy.Addr() + "/orders"
	return r
}

// H-20: Go's own client repeats a request with an idempotency key when its connection breaks, even
// in the middle of its handler. The server gets two requests, and runs one.
func TestClientsResendByThemselves_H20(t *testing.T) {
	for name, wait := range map[string]time.Duration{"waits": 30 * time.Second,
		"does not wait": 0} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			var r *resender
			h := s.claimed(memstore.New(), func(c *httpidem.Config) {
				c.Wait, c.Poll = wait, time.Millisecond
				c.Methods = []string{http.MethodPost}
			})
			r = newResender(t, h)
			s.work = func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get(cutHeader) == "" {
					return
				}
				close(r.begun)
				// until the second request was answered, while the first is in flight
				if wait == 0 {
					<-r.again
				} else { // otherwise an answer could be faster than the cut
					<-r.came
				}
			}
			client := &http.Client{Transport: &http.Transport{}}
			t.Cleanup(client.CloseIdleConnections)
			// the repeat needs a connection that was used before
			resp, err := client.Do(post(t.Context(), r.url, "before"))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())

			req := post(t.Context(), r.url, "a")
			req.Header.Set(cutHeader, "yes")
			resp, err = client.Do(req)
			require.NoError(t, err, "the client has not sent it again")
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.EqualValues(t, 2, r.requests.Load())
			if wait > 0 {
				require.Equal(t, "a in run 1", string(body))
				require.Equal(t, "true", resp.Header.Get(httpidem.DefaultReplayedHeader))
			} else {
				require.Equal(t, http.StatusConflict, resp.StatusCode)
				require.Contains(t, string(body), "request_in_flight")
			}
			require.Equal(t, "a in run 1", settled(t, h, "a").Body.String())
			require.Equal(t, 1, s.ran("a"))
		})
	}
}
