package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
)

// till answers like a server of payments. It fails the first attempt of each key and then answers
// with id.
type till struct {
	mu   sync.Mutex
	seen map[string]int
	id   func(key string, attempt int) string
}

func (s *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(httpidem.DefaultHeader) + r.Header.Get("X-Account")
	s.mu.Lock()
	s.seen[key]++
	attempt := s.seen[key]
	s.mu.Unlock()
	if attempt == 1 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if attempt > 2 {
		w.Header().Set(httpidem.DefaultReplayedHeader, "true")
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, s.id(key, attempt))
}

func pay(t *testing.T, id func(key string, attempt int) string) (*clients, *till) {
	t.Helper()
	return payOver(t, 0, "", id)
}

func payOver(
	t *testing.T, over time.Duration, hurry string, id func(key string, attempt int) string,
) (*clients, *till) {
	t.Helper()
	s := &till{seen: make(map[string]int), id: id}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c := &clients{
		url: srv.URL, account: "a", payments: 90, all: 8, seed: 1, over: over, hurry: hurry,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.run(ctx)
	return c, s
}

// All requests of a payment have one key, needless requests too, and all are counted.
func TestClients_Idempotent(t *testing.T) {
	c, s := pay(t, func(key string, _ int) string { return "of " + key })
	require.Empty(t, c.wrong)
	require.Len(t, s.seen, 90)
	require.EqualValues(t, 90, c.answered.Load())
	require.Greater(t, c.impatient.Load(), int64(10))
	sum := 0
	for _, n := range s.seen {
		sum += n
	}
	require.LessOrEqual(t, sum, int(c.requests.Load()), "one that was given up may not have arrived")
	require.Positive(t, c.replays.Load())
	require.Equal(t, "of order-7a", c.ids[7])
}

// The payments of an hour begin at once if they are told to.
func TestClientsHurry(t *testing.T) {
	hurry := filepath.Join(t.TempDir(), "hurry")
	require.NoError(t, os.WriteFile(hurry, nil, 0o600))
	c, _ := payOver(t, time.Hour, hurry, func(key string, _ int) string { return key })
	require.Empty(t, c.wrong)
	require.EqualValues(t, 90, c.answered.Load())
}

// A server that makes two payments of one request is detected.
func TestClientsSeeTwoPayments(t *testing.T) {
	c, _ := pay(t, func(key string, attempt int) string { return fmt.Sprint(key, attempt) })
	require.NotEmpty(t, c.wrong)
	require.Contains(t, c.wrong[0], "is paid by")
}
