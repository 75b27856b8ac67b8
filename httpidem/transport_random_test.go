package httpidem

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// For any answers of a server: a bounded number of attempts in a bounded time, with one key and one
// body, and no attempt after a final answer.
func TestTransportAgainstRandomServers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("repeat with IDEM_SEED=%d", seed)
	for round := range 300 {
		synctest.Test(t, func(t *testing.T) {
			randomServer(t, rand.New(rand.NewPCG(seed, uint64(round))))
		})
	}
}

func upTo(
	rnd *rand.Rand, d time.Duration,
) time.Duration {
	return time.Duration(rnd.Int64N(int64(d)))
}

func randomServer(t *testing.T, rnd *rand.Rand) {
	statuses := []int{0, 0, 200, 409, 422, 500, 503, 503, 504, 429}
	var final bool          // the last answer is final
	var after time.Duration // Retry-After of the last answer
	server := &fakeServer{script: func(int, *http.Request) (*http.Response, error) {
		time.Sleep(upTo(rnd, 5*time.Second))
		status := statuses[rnd.IntN(len(statuses))]
		if final, after = false, 0; status == 0 {
			return nil, errBroken
		}
		resp := response(status)
		switch rnd.IntN(4) {
		case 0:
			after = time.Duration(rnd.IntN(40)) * time.Second
			resp.Header.Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		case 1:
			after = upTo(rnd, 40*time.Second)
			resp.Header.Set("Retry-After", time.Now().Add(after).UTC().Format(http.TimeFormat))
		case 2:
			resp.Header.Set(DefaultReplayedHeader, "true")
		}
		final = IsReplay(resp) || !DefaultRetry(resp)
		return resp, nil
	}}
	transport := &Transport{
		Base: server, Attempts: 1 + rnd.IntN(8), MaxElapsed: 1 + upTo(rnd, time.Minute),
		Quoted: rnd.IntN(2) == 0,
	}
	body := strings.Repeat("b", rnd.IntN(100))
	began := time.Now()
	resp, err := post(t.Context(), t, transport, body)
	n := len(server.seen)
	require.LessOrEqual(t, n, transport.Attempts)
	for _, s := range server.seen {
		require.Equal(t, server.seen[0].key, s.key)
		require.Equal(t, body, s.body)
		require.LessOrEqual(t, s.at.Sub(began), transport.MaxElapsed)
	}
	// The longest possible pause.
	wait := max(after+DefaultBackoff, min(DefaultMaxBackoff, DefaultBackoff<<(n-1)))
	tooLate := time.Since(began)+wait > transport.MaxElapsed
	require.True(t, final || n == transport.Attempts ||
		tooLate, "it stopped too early, after %d attempts", n)
	if err != nil {
		require.ErrorIs(t, err, errBroken)
		return
	}
	require.Equal(t, "answer "+strconv.Itoa(resp.StatusCode), readAll(t, resp))
	for _, b := range server.bodies {
		require.True(t, b.closed)
	}
}

// H-20: net/http itself repeats a keyed request once when a kept-alive connection breaks before the
// answer. The repeat has the same key and the same body, so that the server recognises it.
func TestTransportAndTheRepeatsOfNetHTTP(t *testing.T) {
	type got struct{ key, body string }
	var seen []got
	var cut atomic.Bool
	ask := make(chan got, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		ask <- got{r.Header.Get(DefaultHeader), string(body)}
		if cut.CompareAndSwap(true, false) {
			panic(http.ErrAbortHandler) // the request was read, but its answer never begins
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	// every repeat is one of net/http
	client := &http.Client{Transport: &Transport{Base: base, Attempts: 1}}
	for i := range 2 {
		cut.Store(i == 1) // on the connection of the first
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL,
			strings.NewReader(fmt.Sprint("body ", i)))
		require.NoError(t, err)
		resp, err := client.Do(r)
		require.NoError(t, err)
		require.Equal(t, "ok", readAll(t, resp))
	}
	close(ask)
	for g := range ask {
		seen = append(seen, g)
	}
	require.Len(t, seen, 3)
	require.NotEqual(t, seen[0].key, seen[1].key)
	require.Equal(t, seen[1], seen[2])
}

// The bytes on the wire, to detect a change of net/http.
func TestTransportOnTheWire(t *testing.T) {
	lines := make(chan []string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString(
			"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
		)
		_ = rw.Flush()
		var head []string
		// the second attempt, on the same connection
		for in := bufio.NewScanner(rw); in.Scan() && in.Text() != ""; {
			head = append(head, in.Text())
		}
		lines <- head
		_, _ = rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		_ = rw.Flush()
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	transport := &Transport{Base: base, Quoted: true, Backoff: time.Millisecond}
	resp, err := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(WithKey(t.Context(), "order-42"), http.MethodPost,
			server.URL, http.NoBody)
		require.NoError(t, err)
		return transport.RoundTrip(r)
	}()
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 204, resp.StatusCode)
	require.Contains(t, <-lines, `Idempotency-Key: "order-42"`)
}
