package httpidem_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
)

// held delays the answers to the first n claims by two seconds; the lease is one. meanwhile may be
// nil.
func held(n int32, meanwhile func()) func(string) bool {
	var claims atomic.Int32
	return func(verb string) bool {
		if verb == "claim" && claims.Add(1) <= n {
			time.Sleep(2 * time.Second)
			if meanwhile != nil {
				meanwhile()
			}
		}
		return false
	}
}

// patient waits long enough for such answers.
func patient(c *httpidem.Config) { c.StoreTimeout = time.Minute }

// Rule 3: the answer to a claim comes after its lease, so the handler must not begin under it. The
// middleware asks the store again.
func TestLease_LateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		var late bool
		s.work = func(_ http.ResponseWriter, r *http.Request) {
			late = late || r.Context().Err() != nil
		}
		lose(&f.answered, held(1, nil))
		rec := send(s.claimed(f, patient), "a")
		require.Equal(t, http.StatusCreated, rec.Code)
		require.Equal(t, 1, s.ran("a"))
		require.False(t, late, "begun under a lease that was over")
	})
}

// Another process takes the key over before the answer arrives.
func TestLease_LateAnswerAndAnHeir(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		there := s.claimed(f.Store, func(c *httpidem.Config) { c.Rerun = true })
		lose(&f.answered, held(1, func() { send(there, "a") }))
		rec := send(s.claimed(f, patient), "a")
		require.Equal(t, http.StatusCreated, rec.Code)
		require.True(t, replayed(rec))
		require.Equal(t, 1, s.ran("a"))
	})
}

// A store cannot be used if its answers always come too late.
func TestLease_AlwaysLate(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		lose(&f.answered, held(1<<20, nil))
		rec := send(s.claimed(f, patient), "a")
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Zero(t, s.ran("a"))
		require.Equal(t, "a in run 1", send(s.claimed(f.Store), "a").Body.String(),
			"it never ran, and the store knows")
	})
}

// slow is a log that takes two seconds for lines with a given text.
type slow struct {
	slog.Handler
	text string
}

func (h slow) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.text) {
		time.Sleep(2 * time.Second)
	}
	return h.Handler.Handle(ctx, r)
}

// The process is paused between the answer and the handler; the log stands for the pause.
func TestLease_PausedBeforeTheHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, s *service, f *faulty) {
		h := s.claimed(f, func(c *httpidem.Config) {
			c.Logger = slog.New(slow{
				Handler: slog.NewTextHandler(io.Discard, nil), text: "can be used again",
			})
		})
		lose(&f.asked, every)
		require.Equal(t, http.StatusServiceUnavailable, send(h, "a").Code)
		time.Sleep(time.Minute)
		lose(&f.asked, func(verb string) bool { return verb == "renew" })
		require.Equal(t, http.StatusServiceUnavailable, send(h, "a").Code)
		require.Zero(t, s.ran("a"), "begun under a lease that was over")
		require.Equal(t, "a in run 1", send(h, "a").Body.String(),
			"it never ran, and the store knows")
	})
}
