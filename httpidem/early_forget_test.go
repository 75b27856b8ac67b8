package httpidem_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
)

// forgottenEarly are answers that are sent before their handler ends, and that are not stored.
func forgottenEarly() map[string]struct {
	status int
	change func(*httpidem.Config)
} {
	return map[string]struct {
		status int
		change func(*httpidem.Config)
	}{
		"flush": {http.StatusTooManyRequests, func(c *httpidem.Config) { c.StreamOnFlush = true }},
		"too large": {
			http.StatusTooManyRequests, func(c *httpidem.Config) { c.MaxResponse, c.MaxBuffer = 1, 10 },
		},
		"ForgetStatus": {http.StatusUnauthorized, func(c *httpidem.Config) {
			c.StreamOnFlush, c.ForgetStatus = true, []int{http.StatusUnauthorized}
		}},
		"ResultPolicy": {http.StatusOK, func(c *httpidem.Config) {
			c.StreamOnFlush = true
			c.ResultPolicy = func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy { return httpidem.Forget }
		}},
	}
}

// sendEarly sends bytes while the handler goes on.
func sendEarly(t *testing.T, w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	_, err := w.Write([]byte("come back later"))
	assert.NoError(t, err)
	assert.NoError(t, http.NewResponseController(w).Flush())
}

// H-04, H-14: a handler whose answer is sent early and not stored keeps its key until it has ended.
func TestEarlyAnswerThatIsForgotten_H04(t *testing.T) {
	for name, c := range forgottenEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				s.work = func(w http.ResponseWriter, r *http.Request) {
					sendEarly(t, w, c.status)
					time.Sleep(5 * time.Second) // leases
					assert.NoError(t, r.Context().Err())
				}
				here, there := s.claimed(f, c.change), s.claimed(f.Store, c.change)
				ended := make(chan int, 1)
				go func() { ended <- send(here, "a").Code }()
				for range 4 {
					synctest.Wait()
					for _, h := range []http.Handler{here, there} {
						require.Equal(t, "request_in_flight", code(send(h, "a")))
					}
					time.Sleep(time.Second)
				}
				require.Equal(t, c.status, <-ended)
				require.Equal(t, httpidem.Forgotten, s.last())
				require.NotContains(t, s.results(), httpidem.Executed)
				require.Equal(t, 1, s.ran("a"))
				require.Equal(t, c.status, send(there, "a").Code, "the key is free")
				require.Equal(t, 2, s.ran("a"))
			})
		})
	}
}

// H-09: a panic after such an answer is a panic like any other.
func TestEarlyAnswerThatIsForgottenAndAPanic_H09(t *testing.T) {
	for name, c := range forgottenEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				s.work = func(w http.ResponseWriter, _ *http.Request) {
					sendEarly(t, w, c.status)
					panic("after the answer")
				}
				h := s.claimed(f, c.change)
				require.Panics(t, func() { send(h, "a") })
				require.Equal(t, httpidem.Panicked, s.last())
				free := name == "ForgetStatus" // acts like NotApplied
				if free {
					require.Panics(t, func() { send(h, "a") })
					require.Equal(t, 2, s.ran("a"))
					return
				}
				want := http.StatusInternalServerError
				if name == "too large" { // so is the stored answer, for this MaxResponse
					want = http.StatusConflict
				}
				require.Equal(t, want, send(h, "a").Code)
				require.Equal(t, 1, s.ran("a"))
			})
		})
	}
}
