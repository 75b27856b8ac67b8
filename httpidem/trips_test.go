package httpidem_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// trips counts round trips of a client: a command, or a pipeline. Other tests remove the scripts of
// the server. A trip that only tells the client so does not count: the client sends the script
// then.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.count(cmd)
		return err
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.count(cmds...)
		return err
	}
}

// count counts a trip, which had these commands.
func (h *trips) count(cmds ...redis.Cmder) {
	if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
		return redis.HasErrorPrefix(c.Err(), "NOSCRIPT")
	}) {
		h.n.Add(1)
	}
}

// A replay costs one round trip to Redis, with and without Lookup; a first request two, and three
// with Lookup.
func TestReplayFromRedisIsOneRoundTrip(t *testing.T) {
	client, prefix := testenv.Redis(t)
	store := redisstore.New(client, redisstore.Prefix(prefix))
	m, err := httpidem.New(httpidem.Config{
		Store: store, Scope: "trips", Public: true, Secret: []byte(strings.Repeat("s", 16)),
	})
	require.NoError(t, err)
	defer m.Close()
	handler := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	for name, way := range map[string]struct {
		handler       http.Handler
		first, replay int64
	}{
		"claimed at once": {handler, 2, 1},
		"looked up first": {m.Lookup(handler), 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			send := func(key string) (status int, replayed string) {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/transfers",
					strings.NewReader(`{"amount":1}`))
				r.Header.Set("Idempotency-Key", key)
				w := httptest.NewRecorder()
				way.handler.ServeHTTP(w, r)
				return w.Code, w.Header().Get("Idempotent-Replayed")
			}
			send(name + " warm") // a script is sent once to each server
			send(name + " warm")
			var count trips
			client.AddHook(&count)
			status, replayed := send(name)
			require.Equal(t, http.StatusCreated, status)
			require.Empty(t, replayed)
			require.Equal(t, way.first, count.n.Swap(0), "the first request")
			status, replayed = send(name)
			require.Equal(t, http.StatusCreated, status)
			require.Equal(t, "true", replayed)
			require.Equal(t, way.replay, count.n.Load(), "a replay")
		})
	}
}
