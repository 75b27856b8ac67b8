package httpidem

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stuck is a script: answers whose body never comes, then a 200. pause is the Retry-After of the
// first ones, in seconds.
func stuck(n, pause int) (server *fakeServer, bodies []*stuckBody) {
	for range n {
		bodies = append(bodies, &stuckBody{end: make(chan struct{})})
	}
	return &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
		if attempt > n {
			return response(200), nil
		}
		resp := response(503)
		if pause > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(pause))
		}
		resp.Body = bodies[attempt-1]
		return resp, nil
	}}, bodies
}

// An answer whose body does not come is given up within the pause before the repeat, or after a
// second.
func TestTransportAnswerThatDoesNotCome(t *testing.T) {
	for name, c := range map[string]struct {
		pause       int
		least, most time.Duration // from the first attempt to the second
	}{
		"a short pause": {least: DefaultBackoff / 2, most: DefaultBackoff},
		"a long pause":  {pause: 7, least: 7 * time.Second, most: 7*time.Second + DefaultBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, bodies := stuck(1, c.pause)
				began := time.Now()
				closed := make(chan time.Duration, 1)
				go func() {
					<-bodies[0].end
					closed <- time.Since(began)
				}()
				resp, err := post(t.Context(), t, &Transport{Base: server}, "x")
				require.NoError(t, err)
				require.Equal(t, "answer 200", readAll(t, resp))
				require.Len(t, server.seen, 2)
				pause := server.seen[1].at.Sub(server.seen[0].at)
				require.GreaterOrEqual(t, pause, c.least)
				require.LessOrEqual(t, pause, c.most)
				require.Equal(t, min(pause, time.Second), <-closed)
				require.EqualValues(t, 1, bodies[0].closes.Load(), "closed once")
			})
		})
	}
}

// panickingBody is a stuckBody whose Close panics.
type panickingBody struct{ stuckBody }

func (b *panickingBody) Close() error {
	_ = b.stuckBody.Close()
	panic("broken")
}

// A panic of an answer's Close reaches the caller of RoundTrip, which may recover it, also if the
// answer was closed since its body did not come.
func TestTransportAnswerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &panickingBody{stuckBody{end: make(chan struct{})}}
		server := &fakeServer{script: func(int, *http.Request) (*http.Response, error) {
			resp := response(503)
			resp.Body = body
			return resp, nil
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/",
			http.NoBody)
		require.NoError(t, err)
		require.PanicsWithValue(t, "broken", func() {
			_, _ = (&Transport{Base: server}).RoundTrip(r)
		})
		require.Len(t, server.seen, 1)
		require.EqualValues(t, 1, body.closes.Load(), "closed once")
	})
}

// A server announces a body that it never sends. The repeat uses another connection.
func TestTransportAnswerThatDoesNotComeOnTheWire(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			return
		}
		w.Header().Set("Content-Length", "20")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the client has closed the connection
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := (&Transport{Base: base, Backoff: time.Millisecond}).RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.EqualValues(t, 2, asked.Load())
}

// The last answer is returned with its own body, which is the caller's to read and to close.
func TestTransportLastAnswerIsNotDrained(t *testing.T) {
	for name, c := range map[string]*Transport{
		"no attempt is left": {Attempts: 2},
		"no time is left":    {Attempts: 9, MaxElapsed: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, bodies := stuck(9, 7)
				c.Base = server
				resp, err := post(t.Context(), t, c, "x")
				require.NoError(t, err)
				require.Len(t, server.seen, 2)
				time.Sleep(time.Minute)
				require.Zero(t, bodies[1].closes.Load())
				require.NoError(t, resp.Body.Close())
				require.EqualValues(t, 1, bodies[1].closes.Load())
			})
		})
	}
}
