package redisstore

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// heldUp is a way to Redis on which requests arrive at once, and replies wait while it is shut.
type heldUp struct {
	mu   sync.Mutex
	open chan struct{}
	held atomic.Int64
}

func (h *heldUp) shut() (open func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{})
	h.open = c
	return sync.OnceFunc(func() { close(c) })
}

func (h *heldUp) replies(client io.Writer, server io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		h.mu.Lock()
		open := h.open
		h.mu.Unlock()
		if open != nil {
			h.held.Add(1)
			<-open
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Rule 3: Redis grants a claim, and its reply is on its way for longer than the lease. Another worker takes the event over and
// handles it. The first worker must not begin then. go-redis does not end a read with its context, so the reply is read.
func TestReplyLaterThanTheLease(t *testing.T) {
	direct, prefix := testenv.Redis(t)
	way := &heldUp{}
	proxy := netproxy.Start(t, direct.Options().Addr, func() netproxy.Link { return netproxy.Link{Down: way.replies} })
	opts := testenv.RedisOptions(t)
	opts.Addr = proxy.Addr()
	slow := redis.NewClient(opts)
	t.Cleanup(func() { _ = slow.Close() })

	var runs, late atomic.Int64
	worker := func(t *testing.T, client *redis.Client, batch bool) *idem.Processor {
		t.Helper()
		router := idem.NewRouter()
		note := func(ctx context.Context) {
			runs.Add(1)
			if ctx.Err() != nil {
				late.Add(1)
			}
		}
		if batch {
			idem.OnBatch(router, "paid", func(ctx context.Context, _ []idem.Event[struct{}]) error { note(ctx); return nil })
		} else {
			idem.On(router, "paid", func(ctx context.Context, _ idem.Event[struct{}]) error { note(ctx); return nil })
		}
		p, err := idem.NewProcessor(router, idem.Config{
			Store: New(client, Prefix(prefix)), Scope: "late", Lease: time.Second, BusyWait: idem.Forever,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	batch := func(ids ...string) (msgs []*idem.Message) {
		for i, id := range ids {
			msgs = append(msgs, &idem.Message{Topic: "orders", Offset: int64(i), Value: []byte(`{"event_id":"` + id + `","type":"paid"}`)})
		}
		return msgs
	}
	for name, c := range map[string]struct {
		batch bool
		ids   []string
		runs  int64
	}{
		"one event":     {false, []string{"a"}, 1},
		"group":         {false, []string{"b", "c"}, 2},
		"batch handler": {true, []string{"d", "e"}, 2}, // the second worker takes each over alone
	} {
		t.Run(name, func(t *testing.T) {
			runs.Store(0)
			first, heir := worker(t, slow, c.batch), worker(t, direct, c.batch)
			_, err := first.HandleBatch(t.Context(), batch("before-"+name)) // connected, and the scope is known
			require.NoError(t, err)
			require.EqualValues(t, 1, runs.Swap(0))
			way.held.Store(0)
			open := way.shut()
			defer open()
			ended := make(chan error, 1)
			go func() { _, err := first.HandleBatch(t.Context(), batch(c.ids...)); ended <- err }()
			require.Eventually(t, func() bool { return way.held.Load() > 0 }, 10*time.Second, time.Millisecond)
			_, err = heir.HandleBatch(t.Context(), batch(c.ids...))
			require.NoError(t, err)
			require.Equal(t, c.runs, runs.Load())
			open()
			require.NoError(t, <-ended)
			require.Equal(t, c.runs, runs.Load(), "handled twice")
			require.Zero(t, late.Load(), "begun under a lease that was over")
		})
	}
}
