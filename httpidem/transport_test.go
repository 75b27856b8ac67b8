package httpidem

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sent is one attempt as a fake server saw it.
type sent struct {
	at     time.Time
	key    []string
	body   string
	length int64
}

// trackedBody is the body of an answer.
type trackedBody struct {
	io.Reader
	read   int
	closed bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *trackedBody) Close() error { b.closed = true; return nil }

// fakeServer is the base of a transport: it answers each attempt by a script.
type fakeServer struct {
	script func(attempt int, r *http.Request) (*http.Response, error)

	mu     sync.Mutex
	seen   []sent
	bodies []*trackedBody
}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	f.mu.Lock()
	f.seen = append(f.seen,
		sent{time.Now(), r.Header.Values(DefaultHeader), string(body), r.ContentLength})
	attempt := len(f.seen)
	f.mu.Unlock()
	resp, err := f.script(attempt, r)
	if resp != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if b, ok := resp.Body.(*trackedBody); ok {
			f.bodies = append(f.bodies, b)
		}
	}
	return resp, err
}

func response(status int, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{
		StatusCode: status, Header: h,
		Body: &trackedBody{Reader: strings.NewReader("answer " + strconv.Itoa(status))},
	}
}

// answers is a script: the answers in turn, then the last one again. A zero is a broken connection.
func answers(statuses ...int) *fakeServer {
	return &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
		status := statuses[min(attempt, len(statuses))-1]
		if status == 0 {
			return nil, errBroken
		}
		return response(status), nil
	}}
}

var errBroken = errors.New("connection reset by peer")

func post(
	ctx context.Context, t *testing.T, transport *Transport, body string,
) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/payments",
		strings.NewReader(body))
	require.NoError(t, err)
	return (&http.Client{Transport: transport}).Do(r)
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

var uuid4 = regexp.MustCompile(
	`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
)

// One key for each operation, the same at each of its attempts.
func TestTransportMakesAKeyForEachOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{}
		var mu sync.Mutex
		attempts := map[string]int{}
		server.script = func(_ int, r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if attempts[r.Header.Get(DefaultHeader)]++; attempts[r.Header.Get(DefaultHeader)] < 3 {
				return nil, errBroken
			}
			return response(200), nil
		}
		transport := &Transport{Base: server}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				resp, err := post(t.Context(), t, transport, "same body")
				if err != nil {
					t.Error(err)
					return
				}
				if key := KeyOf(resp.Request); !uuid4.MatchString(key) ||
					key != resp.Request.Header.Get(DefaultHeader) {
					t.Errorf("key %q", key)
				}
				_ = resp.Body.Close()
			})
		}
		all.Wait()
		require.Len(t, attempts, 50)
		for key, n := range attempts {
			require.Equal(t, 3, n, key)
		}
	})
}

func TestTransportOtherHeaderAndMethods(t *testing.T) {
	var header http.Header
	server := &fakeServer{script: func(_ int, r *http.Request) (*http.Response, error) {
		header = r.Header
		return response(503), nil
	}}
	transport := &Transport{
		Base: server, Header: "x-request-key", Methods: []string{http.MethodPut}, Attempts: 1,
	}
	for method, keyed := range map[string]bool{"PUT": true, "POST": false, "GET": false} {
		r, err := http.NewRequestWithContext(WithKey(t.Context(), "k"), method, "http://api.test/",
			http.NoBody)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, keyed, header.Get("X-Request-Key") == "k", method)
		require.Empty(t, header.Get(DefaultHeader))
	}
}

// Answers that are repeated, and those that are returned at once.
func TestTransportRetries(t *testing.T) {
	after := []string{"Retry-After", "1"}
	for name, c := range map[string]struct {
		method   string
		status   int
		headers  []string
		repeated bool
	}{
		"200": {status: 200},
		"204": {status: 204},
		"307": {status: 307,
			headers: []string{"Location", "http://other.test/"}},
		"400":                 {status: 400, headers: after},
		"401":                 {status: 401, headers: after},
		"403":                 {status: 403, headers: after},
		"404":                 {status: 404, headers: after},
		"408":                 {status: 408, repeated: true},
		"409 in flight":       {status: 409, headers: after, repeated: true},
		"409 unknown outcome": {status: 409},
		"413":                 {status: 413, headers: after},
		"422":                 {status: 422, headers: after},
		"425":                 {status: 425, repeated: true},
		"429":                 {status: 429, repeated: true},
		"500":                 {status: 500, headers: after},
		"501":                 {status: 501},
		"502":                 {status: 502, repeated: true},
		"503":                 {status: 503, repeated: true},
		"504":                 {status: 504, repeated: true},
		"broken connection":   {repeated: true},
		"replayed 503": {status: 503,
			headers: []string{"Idempotent-Replayed", "true"}},
		"replayed 409 with a wait": {status: 409,
			headers: []string{"Idempotent-Replayed", "true", "Retry-After", "1"}},
		"without a key, 503":    {method: http.MethodPut, status: 503},
		"without a key, broken": {method: http.MethodPut},
		"503 that says it is not one": {status: 503,
			headers: []string{"Idempotent-Replayed", "false"}, repeated: true},
		"PATCH, 503": {method: http.MethodPatch, status: 503, repeated: true},
		"409 with an unreadable wait": {status: 409, headers: []string{"Retry-After", "soon"},
			repeated: true},
		"429 with a date that is past": {
			status: 429, headers: []string{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"},
			repeated: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
					switch {
					case attempt == 3:
						return response(201), nil
					case c.status == 0:
						return nil, errBroken
					}
					return response(c.status, c.headers...), nil
				}}
				method := c.method
				if method == "" {
					method = http.MethodPost
				}
				r, err := http.NewRequestWithContext(t.Context(), method, "http://api.test/",
					strings.NewReader("x"))
				require.NoError(t, err)
				resp, err := (&Transport{Base: server}).RoundTrip(r)
				if c.repeated {
					require.NoError(t, err)
					require.Equal(t, 201, resp.StatusCode)
					require.Equal(t, "answer 201", readAll(t, resp))
					require.Len(t, server.seen, 3)
					return
				}
				require.Len(t, server.seen, 1)
				if c.status == 0 {
					require.ErrorIs(t, err, errBroken)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.status, resp.StatusCode)
				require.Equal(t, "answer "+strconv.Itoa(c.status), readAll(t, resp))
			})
		})
	}
}

// A server that rolls back may be asked again after a 500, but never after a replay.
func TestTransportRetryOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
			if attempt == 2 {
				return response(500, DefaultReplayedHeader, "true"), nil
			}
			return response(500), nil
		}}
		resp, err := post(t.Context(), t, &Transport{
			Base: server, Retry: func(r *http.Response) bool {
				return r.StatusCode == http.StatusInternalServerError
			},
		}, "x")
		require.NoError(t, err)
		require.True(t, IsReplay(resp))
		require.NoError(t, resp.Body.Close())
		require.Len(t, server.seen, 2)
	})
}

// The result when attempts or MaxElapsed are used up: the last answer as it came, or an error with
// the key.
func TestTransportGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answers(0, 502, 503)
		resp, err := post(t.Context(), t, &Transport{Base: server, Attempts: 4}, "x")
		require.NoError(t, err)
		require.Len(t, server.seen, 4)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "answer 503", readAll(t, resp))
		last := server.bodies[len(server.bodies)-1]
		for _, b := range server.bodies {
			require.True(t, b.closed)
			require.True(t, b == last || b.read > 0, "drained, so that the connection serves again")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		server := answers(503, 0)
		_, err := post(WithKey(t.Context(), "pay-1"), t, &Transport{Base: server}, "x")
		require.ErrorIs(t, err, errBroken)
		failed, ok := errors.AsType[*SendError](err)
		require.True(t, ok)
		require.Equal(t, SendError{Key: "pay-1", Attempts: DefaultAttempts, Err: errBroken},
			*failed)
		require.Len(t, server.seen, DefaultAttempts)
		require.Equal(t, 1, strings.Count(err.Error(), "http://api.test"), err.Error())
	})
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{script: func(int, *http.Request) (*http.Response, error) {
			return nil, &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
		}}
		_, err := post(t.Context(), t, &Transport{Base: server}, "x")
		require.Error(t, err)
		require.Len(t, server.seen, 1, "it comes again at each attempt")
	})
}

// An endless answer before the last one is not read to its end.
func TestTransportDrainsWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
			resp := response(200)
			if attempt == 1 {
				resp = response(503)
				resp.Body = &trackedBody{Reader: endless{}}
			}
			return resp, nil
		}}
		resp, err := post(t.Context(), t, &Transport{Base: server}, "x")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.True(t, server.bodies[0].closed)
		require.LessOrEqual(t, server.bodies[0].read, 64<<10)
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Pauses double, less a random part of up to a half, and have a bound.
func TestTransportBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answers(503)
		resp, err := post(t.Context(), t, &Transport{
			Base: server, Attempts: 6, Backoff: time.Second, MaxBackoff: 4 * time.Second,
		}, "x")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, server.seen, 6)
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second,
			4 * time.Second, 4 * time.Second} {
			wait := server.seen[i+1].at.Sub(server.seen[i].at)
			require.LessOrEqual(t, wait, most)
			require.GreaterOrEqual(t, wait, most/2)
		}
	})
	// clients spread, even if the server told all of them the same time
	synctest.Test(t, func(t *testing.T) {
		waits := map[time.Duration]bool{}
		for range 10 {
			for _, headers := range [][]string{nil, {"Retry-After", "1"}} {
				server := &fakeServer{
					script: func(int, *http.Request) (*http.Response, error) {
						return response(503, headers...), nil
					},
				}
				resp, err := post(t.Context(), t, &Transport{Base: server, Attempts: 2}, "x")
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				waits[server.seen[1].at.Sub(server.seen[0].at)] = true
			}
		}
		require.Len(t, waits, 20)
	})
}

func TestTransportRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		value func() string
		after time.Duration
		again bool
	}{
		"seconds":                {func() string { return "7" }, 7 * time.Second, true},
		"date":                   {func() string { return time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat) }, 9 * time.Second, true},
		"longer than a back-off": {func() string { return "45" }, 45 * time.Second, true},
		"beyond patience":        {func() string { return "61" }, 0, false},
		"beyond counting":        {func() string { return "9223372036854775807" }, 0, false},
		"beyond 64 bits":         {func() string { return strings.Repeat("9", 30) }, 0, false},
		"a date beyond counting": {func() string { return "Fri, 31 Dec 9999 23:59:59 GMT" }, 0,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{script: func(attempt int, _ *http.Request) (*http.Response, error) {
					if attempt == 2 {
						return response(200), nil
					}
					return response(503, "Retry-After", c.value()), nil
				}}
				began := time.Now()
				resp, err := post(t.Context(), t, &Transport{Base: server}, "x")
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				if !c.again {
					require.Equal(t, 503, resp.StatusCode)
					require.Len(t, server.seen, 1)
					require.Zero(t, time.Since(began), "it does not wait in vain")
					return
				}
				require.Equal(t, 200, resp.StatusCode)
				wait := server.seen[1].at.Sub(began)
				require.GreaterOrEqual(t, wait, c.after)
				require.LessOrEqual(t, wait, c.after+DefaultBackoff)
			})
		})
	}
}

// MaxElapsed and the context bound the time of all attempts, and the end of the context ends a
// pause.
func TestTransportEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answers(0)
		began := time.Now()
		_, err := post(t.Context(), t, &Transport{Base: server, Attempts: 1000}, "x")
		require.ErrorIs(t, err, errBroken)
		require.LessOrEqual(t, time.Since(began), DefaultMaxElapsed)
		require.Greater(t, len(server.seen), 5)
	})
	synctest.Test(t, func(t *testing.T) { // cancelled during a pause
		ctx, cancel := context.WithCancel(t.Context())
		server := &fakeServer{
			script: func(int, *http.Request) (*http.Response, error) {
				return response(503, "Retry-After", "30"), nil
			},
		}
		stop := time.AfterFunc(5*time.Second, cancel)
		defer stop.Stop()
		began := time.Now()
		_, err := post(WithKey(ctx, "k"), t, &Transport{Base: server}, "x")
		require.ErrorIs(t, err, context.Canceled)
		failed, ok := errors.AsType[*SendError](err)
		require.True(t, ok)
		require.Equal(t, "k", failed.Key)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Len(t, server.seen, 1)
		require.True(t, server.bodies[0].closed)
	})
	// a deadline before the end of the pause: the answer is returned at once
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		server := &fakeServer{
			script: func(int, *http.Request) (*http.Response, error) {
				return response(503, "Retry-After", "30"), nil
			},
		}
		began := time.Now()
		resp, err := post(ctx, t, &Transport{Base: server}, "x")
		require.NoError(t, err)
		require.Equal(t, "answer 503", readAll(t, resp))
		require.Zero(t, time.Since(began))
	})
	synctest.Test(t, func(t *testing.T) { // the client's own time-out, during an attempt
		server := &fakeServer{script: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		client := &http.Client{Transport: &Transport{Base: server}, Timeout: 3 * time.Second}
		_, err := client.Post("http://api.test/", "text/plain", strings.NewReader("x"))
		failed, ok := errors.AsType[*url.Error](err)
		require.True(t, ok)
		require.True(t, failed.Timeout())
		require.Len(t, server.seen, 1)
	})
}

// A client that was restarted sends the key that it had stored.
func TestTransportKeyOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answers(0, 0, 0, 200)
		ctx := WithKey(t.Context(), "order-42")
		_, err := post(ctx, t, &Transport{Base: server, Attempts: 2}, "x")
		require.ErrorIs(t, err, errBroken)
		resp, err := post(WithKey(t.Context(), "order-42"), t, &Transport{Base: server}, "x")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, server.seen, 4)
		for _, s := range server.seen {
			require.Equal(t, []string{"order-42"}, s.key)
		}
	})
}

// The caller's client handles redirects: one that keeps the method is followed with the key of the
// context, or with a derived one.
func TestTransportRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		server := &fakeServer{script: func(_ int, r *http.Request) (*http.Response, error) {
			if paths = append(paths, r.URL.Path); r.URL.Path == "/payments" {
				return response(http.StatusPermanentRedirect, "Location", "/v2/payments"), nil
			}
			return response(200), nil
		}}
		resp, err := post(WithKey(t.Context(), "k"), t, &Transport{Base: server}, "body")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"/payments", "/v2/payments"}, paths)
		for _, s := range server.seen {
			require.Equal(t, "body", s.body)
			require.Equal(t, []string{"k"}, s.key)
		}
	})
}
