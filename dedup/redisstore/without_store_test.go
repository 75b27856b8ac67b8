package redisstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Redis takes requests and does not reply. A handler with WhenUnavailable runs its events.
// When the replies come again, copies are claimed as usual, also copies of an event with a claim
// that was granted without a reply.
func TestHandlerWithoutItsStore_R19(t *testing.T) {
	direct, prefix := testenv.Redis(t)
	way := &heldUp{}
	proxy := netproxy.Start(t, direct.Options().Addr, func() netproxy.Link { return netproxy.Link{Down: way.replies} })
	opts := testenv.RedisOptions(t)
	opts.Addr, opts.ReadTimeout, opts.MaxRetries = proxy.Addr(), 500*time.Millisecond, -1
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })

	var mu sync.Mutex
	runs := map[string]int{}
	note := func(_ context.Context, e idem.Event[struct{}]) error {
		mu.Lock()
		defer mu.Unlock()
		runs[e.ID]++
		return nil
	}
	router := idem.NewRouter()
	idem.On(router, "alarm", note, idem.WhenUnavailable(idem.UnavailablePolicy{
		RunFor: time.Minute, MaxEvents: 3, After: 100 * time.Millisecond,
	}))
	p, err := idem.NewProcessor(router, idem.Config{
		Store: New(client, Prefix(prefix)), Scope: "without", Lease: time.Second, StoreTimeout: 300 * time.Millisecond,
		BusyWait: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	message := func(id string) *idem.Message {
		return &idem.Message{Topic: "orders", Value: []byte(`{"event_id":"` + id + `","type":"alarm"}`)}
	}
	require.NoError(t, p.Handle(t.Context(), message("known")))

	open := way.shut()
	defer open()
	alarms := []*idem.Message{message("known"), message("a"), message("b"), message("c")}
	settled, err := p.HandleBatch(t.Context(), alarms)
	require.Error(t, err)
	require.Equal(t, 3, settled, "the bound")
	require.Equal(t, map[string]int{"known": 2, "a": 1, "b": 1}, runs)

	open()
	for range 2 {
		for _, m := range alarms {
			require.Eventually(t, func() bool { return p.Handle(t.Context(), m) == nil }, 20*time.Second, 10*time.Millisecond)
		}
	}
	require.Equal(t, map[string]int{"known": 2, "a": 2, "b": 2, "c": 1}, runs)
}
