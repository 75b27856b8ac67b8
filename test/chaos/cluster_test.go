package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
)

// Rule 9: two workers get the same events in other orders, as copies in two partitions. On a
// cluster a batch of claims is atomic for each key only, so that each worker may get a claim that
// the other waits for. If they kept and renewed such claims while they wait, neither would ever go
// on.
func TestSameEventsInOtherOrdersOnACluster(t *testing.T) {
	needTime(t)
	few := 20 // a worker that has to wait comes again after up to a second
	if soak() {
		few = 200
	}
	t.Run("one by one", func(t *testing.T) { sameEventsInOtherOrders(t, few, onEach) })
	t.Run("in batches", func(t *testing.T) { sameEventsInOtherOrders(t, 200, onAll) })
}

func sameEventsInOtherOrders(t *testing.T, rounds int, on func(*idem.Router, *counts)) {
	const events = 64
	rng, seed := newSeeded(t)
	_, prefix := testenv.RedisCluster(t)
	var effects [2]counts
	workers := [2]*idem.Processor{}
	for w := range workers {
		effects[w].of = make([]atomic.Int32, rounds*events)
		router := idem.NewRouter()
		on(router, &effects[w])
		workers[w] = clusterWorker(t, prefix, router)
	}
	contended := 0
	for round := range rounds {
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // half a lease
		var errs [2]error
		for w := range workers {
			msgs := sameEvents(rng, round, events, int32(w))
			all.Go(func() { errs[w] = insist(ctx, workers[w], msgs) })
		}
		all.Wait()
		cancel()
		require.NoError(t, errors.Join(errs[:]...), "round %d: stuck", round)
		shares := [2]int32{}
		for i := round * events; i < (round+1)*events; i++ {
			a, b := effects[0].of[i].Load(), effects[1].of[i].Load()
			require.EqualValues(t, 1, a+b, "event %d", i)
			shares[0] += a
			shares[1] += b
		}
		if shares[0] > 0 && shares[1] > 0 {
			contended++
		}
	}
	soaked(t, t.Name(), seed, rounds*events, 0, 0, 0, fmt.Sprintf("each once; both workers had a share in %d of %d rounds", contended, rounds))
	require.Positive(t, contended, "else they never got in each other's way")
}

type numbered struct {
	N int `json:"n"`
}

// counts are the effects of a worker, by event.
type counts struct{ of []atomic.Int32 }

func onEach(r *idem.Router, c *counts) {
	idem.On(r, "numbered", func(_ context.Context, e idem.Event[numbered]) error {
		c.of[e.Data.N].Add(1)
		return nil
	})
}

func onAll(r *idem.Router, c *counts) {
	idem.OnBatch(r, "numbered", func(_ context.Context, all []idem.Event[numbered]) error {
		for _, e := range all {
			c.of[e.Data.N].Add(1)
		}
		return nil
	})
}

// clusterWorker is a processor with a client of its own.
func clusterWorker(t testing.TB, prefix string, router *idem.Router) *idem.Processor {
	opts := testenv.RedisClusterOptions(t)
	opts.NewClient = func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		c.AddHook(unevenHook{})
		return c
	}
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	p, err := idem.NewProcessor(router, idem.Config{
		Store: redisstore.New(client, redisstore.Prefix(prefix)), Scope: "workers", Lease: 30 * time.Second,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// sameEvents are the events of a round in an order of their own.
func sameEvents(rng *rand.Rand, round, events int, partition int32) []*idem.Message {
	msgs := make([]*idem.Message, events)
	for at, i := range rng.Perm(events) {
		n := round*events + i
		msgs[at] = &idem.Message{
			Topic: "copies", Partition: partition, Offset: int64(round*events + at), Time: time.Now(),
			Value: fmt.Appendf(nil, `{"n":%d}`, n),
			Headers: []idem.Header{
				{Key: "event-type", Value: []byte("numbered")}, {Key: "event-id", Value: fmt.Append(nil, n)},
			},
		}
	}
	return msgs
}

// insist calls HandleBatch as a poll loop does, until all is settled.
func insist(ctx context.Context, p *idem.Processor, msgs []*idem.Message) error {
	for len(msgs) > 0 {
		settled, err := p.HandleBatch(ctx, msgs)
		msgs = msgs[settled:]
		var wait *idem.WaitError
		switch {
		case err == nil:
		case errors.As(err, &wait):
			select {
			case <-time.After(wait.After):
			case <-ctx.Done():
				return fmt.Errorf("%d events are left: %w", len(msgs), err)
			}
		default:
			return fmt.Errorf("%d events are left: %w", len(msgs), err)
		}
	}
	return nil
}

// unevenHook lets each batch reach the servers of a cluster at different moments.
type unevenHook struct{}

func (unevenHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (unevenHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (unevenHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 1 {
			<-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond)
		}
		return next(ctx, cmds)
	}
}
