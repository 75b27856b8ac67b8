package httpidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
)

// sentEarly are the two ways to send a stored answer before its handler ends.
func sentEarly() map[string]func(*httpidem.Config) {
	return map[string]func(*httpidem.Config){
		"flush":     func(c *httpidem.Config) { c.StreamOnFlush = true },
		"too large": func(c *httpidem.Config) { c.MaxResponse, c.MaxBuffer = 1, 10 },
	}
}

// lostFor loses the calls of verbs for that long, from now on.
func lostFor(d time.Duration, verbs ...string) func(string) bool {
	end := time.Now().Add(d)
	return func(verb string) bool {
		for _, v := range verbs {
			if v == verb {
				return time.Now().Before(end)
			}
		}
		return false
	}
}

// alone counts the handlers at the same time.
type alone struct{ now, most atomic.Int32 }

func (a *alone) enter() (leave func()) {
	if n := a.now.Add(1); n > a.most.Load() {
		a.most.Store(n)
	}
	return func() { a.now.Add(-1) }
}

// H-04, H-18: the store does not take the record of an answer that is sent early. The handler keeps
// its key, and the record is written when the handler has ended.
func TestEarlyAnswerThatIsNotStored_H18(t *testing.T) {
	for name, early := range sentEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				var handlers alone
				s.work = func(w http.ResponseWriter, r *http.Request) {
					defer handlers.enter()()
					lose(&f.asked, lostFor(12*time.Second, "complete"))
					sendEarly(t, w, http.StatusOK) // takes the ten seconds of attempts
					time.Sleep(5 * time.Second)    // leases
					assert.NoError(t, r.Context().Err())
				}
				here := s.claimed(f, early)
				there := s.claimed(f.Store, early, func(c *httpidem.Config) { c.Rerun = true })
				ended := make(chan *httptest.ResponseRecorder, 1)
				go func() { ended <- send(here, "a") }()
				time.Sleep(13 * time.Second)
				require.Equal(t, "request_in_flight", code(send(there, "a")))
				rec := <-ended
				require.Equal(t, http.StatusOK, rec.Code)
				require.Contains(t, rec.Body.String(), "a in run 1")
				require.Equal(t, httpidem.Executed, s.last())
				for _, h := range []http.Handler{here, there} {
					require.Equal(t, "not_replayable", code(send(h, "a")))
				}
				require.Equal(t, 1, s.ran("a"))
				require.EqualValues(t, 1, handlers.most.Load())
			})
		})
	}
}

// H-04, H-18: the store takes the record of an answer that is sent early, and its answers are lost
// for longer than a lease. The handler is not cancelled, and its key is done.
func TestEarlyAnswerThatIsStoredWithoutAnAnswer_H18(t *testing.T) {
	for name, early := range sentEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				s.work = func(w http.ResponseWriter, r *http.Request) {
					lose(&f.answered, lostFor(12*time.Second, "complete"))
					sendEarly(t, w, http.StatusOK) // takes the ten seconds of attempts
					assert.NoError(t, r.Context().Err())
					time.Sleep(5 * time.Second) // leases
					assert.NoError(t, r.Context().Err())
				}
				here := s.claimed(f, early)
				there := s.claimed(f.Store, early, func(c *httpidem.Config) { c.Rerun = true })
				ended := make(chan *httptest.ResponseRecorder, 1)
				go func() { ended <- send(here, "a") }()
				time.Sleep(13 * time.Second)
				require.Equal(t, "request_in_flight", code(send(here, "a")))
				require.Equal(t, "not_replayable", code(send(there, "a")))
				rec := <-ended
				require.Equal(t, http.StatusOK, rec.Code)
				require.Contains(t, rec.Body.String(), "a in run 1")
				require.Equal(t, httpidem.Executed, s.last())
				require.Equal(t, "not_replayable", code(send(here, "a")))
				require.Equal(t, 1, s.ran("a"))
			})
		})
	}
}

// H-18: the store takes no record, and a handler sends its answer at the end of its time. The request
// takes the longest time that the check of http.Server.WriteTimeout counts with, and no longer.
func TestEarlyAnswerTakesTheLongest_H18(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		lose(&f.asked, func(verb string) bool { return verb == "complete" })
		s.work = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(httpidem.DefaultTimeout - time.Millisecond)
			sendEarly(t, w, http.StatusOK)
			assert.Error(t, r.Context().Err())
		}
		var log journal
		server := &http.Server{WriteTimeout: time.Second, ReadHeaderTimeout: time.Second}
		r := post(context.WithValue(t.Context(), http.ServerContextKey, server), "/orders", "a")
		began := time.Now()
		s.claimed(f, log.to, sentEarly()["flush"], func(c *httpidem.Config) {
			c.Lease = dedup.DefaultLease
		}).ServeHTTP(httptest.NewRecorder(), r)
		took := time.Since(began)
		require.Equal(t, httpidem.Unstored, s.last())
		require.Greater(t, took, httpidem.DefaultTimeout+19*time.Second)
		lines := log.take()
		_, text, _ := strings.Cut(lines[0], "longest_request=")
		longest, err := time.ParseDuration(strings.TrimSpace(text))
		require.NoError(t, err)
		require.LessOrEqual(t, took, longest)
	})
}

// H-18: the store stays down. The loss of the claim cancels the handler.
func TestEarlyAnswerAndALostClaim_H18(t *testing.T) {
	for name, early := range sentEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				s.work = func(w http.ResponseWriter, r *http.Request) {
					lose(&f.asked, lostFor(11*time.Second, "complete"))
					sendEarly(t, w, http.StatusOK)
					lose(&f.asked, every)
					began := time.Now()
					<-r.Context().Done()
					assert.ErrorIs(t, context.Cause(r.Context()), dedup.ErrClaimLost)
					assert.LessOrEqual(t, time.Since(began), time.Second, "a lease")
				}
				here, there := s.claimed(f, early), s.claimed(f.Store, early)
				require.Equal(t, http.StatusOK, send(here, "a").Code)
				require.Equal(t, httpidem.Unstored, s.last())
				require.Equal(t, "unknown_outcome", code(send(there, "a")))
				require.Equal(t, 1, s.ran("a"))
			})
		})
	}
}

// H-18: another process has the key already when the record is to be written. The handler is
// cancelled, and its record does not replace that of the other run.
func TestEarlyAnswerAfterATakeOver_H18(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		early := sentEarly()["flush"]
		there := s.claimed(f.Store, func(c *httpidem.Config) { c.Rerun = true })
		s.work = func(w http.ResponseWriter, r *http.Request) {
			if s.ran("a") > 1 {
				return
			}
			lose(&f.asked, func(verb string) bool { return verb == "renew" })
			<-r.Context().Done()
			assert.Equal(t, "a in run 2", send(there, "a").Body.String())
			sendEarly(t, w, http.StatusOK)
		}
		require.Equal(t, http.StatusOK, send(s.claimed(f, early), "a").Code)
		require.Equal(t, httpidem.Unstored, s.last())
		rec := send(there, "a")
		require.Equal(t, "a in run 2", rec.Body.String())
		require.True(t, replayed(rec))
	})
}

// A stored answer is the end of the claim: neither the close of the middleware nor a later outage
// cancels the handler.
func TestEarlyAnswerThatIsStored(t *testing.T) {
	for name, early := range sentEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				cfg := s.config(f)
				early(&cfg)
				m, err := httpidem.New(cfg)
				require.NoError(t, err)
				s.work = func(w http.ResponseWriter, r *http.Request) {
					sendEarly(t, w, http.StatusOK)
					lose(&f.asked, every)
					m.Close()
					time.Sleep(5 * time.Second) // leases
					synctest.Wait()
					assert.NoError(t, r.Context().Err())
				}
				require.Equal(t, http.StatusOK, send(m.Handler(s), "a").Code)
				require.Equal(t, httpidem.Executed, s.last())
				require.Equal(t, "not_replayable", code(send(s.claimed(f.Store), "a")))
			})
		})
	}
}

// H-09, H-18: a panic after an answer that is not stored. The record of the answer is tried again.
func TestEarlyAnswerThatIsNotStoredAndAPanic_H09(t *testing.T) {
	for name, early := range sentEarly() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *service, f *faulty) {
				s.work = func(w http.ResponseWriter, _ *http.Request) {
					lose(&f.asked, lostFor(12*time.Second, "complete"))
					sendEarly(t, w, http.StatusOK)
					panic("after the answer")
				}
				h := s.claimed(f, early)
				require.Panics(t, func() { send(h, "a") })
				require.Equal(t, httpidem.Panicked, s.last())
				require.Equal(t, "not_replayable", code(send(h, "a")))
				require.Equal(t, 1, s.ran("a"))
			})
		})
	}
}
