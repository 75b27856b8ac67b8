package redisstore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// lossyProxy is a way to Redis on which requests arrive and replies get lost. Now and then the
// server has executed a request, and the connection ends before, or within, the reply.
type lossyProxy struct {
	*netproxy.Proxy
	lost atomic.Int64
}

func newLossyProxy(t testing.TB, server string, loss float64) *lossyProxy {
	p := &lossyProxy{}
	p.Proxy = netproxy.Start(t, server, func() netproxy.Link {
		return netproxy.Link{Down: func(client io.Writer, server io.Reader) { p.replies(client, server, loss) }}
	})
	return p
}

func (p *lossyProxy) replies(client io.Writer, server io.Reader, loss float64) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if rand.Float64() < loss {
			p.lost.Add(1)
			_, _ = client.Write(buf[:rand.IntN(n)])
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *lossyProxy) client(t testing.TB) *redis.Client {
	opts := testenv.RedisOptions(t)
	opts.Addr = p.Addr()
	c := redis.NewClient(opts) // go-redis repeats commands by itself, as by default
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// however many replies get lost, every event is handled once and no event is taken for a
// duplicate. The client library repeats commands behind the store's back, and the caller repeats
// calls with their tokens.
func TestLostRepliesLoseNoEvent(t *testing.T) {
	direct, prefix := testenv.Redis(t)
	proxy := newLossyProxy(t, direct.Options().Addr, 0.1)
	const workers, rounds, batch = 4, 80, 16
	var effects [workers][rounds][batch]int
	var all sync.WaitGroup
	for w := range workers {
		s := New(proxy.client(t), Prefix(prefix))
		all.Go(func() {
			for round := range rounds {
				reqs := batchOf(fmt.Sprintf("%d-%d", w, round), batch)
				if err := handleOnce(s, reqs, &effects[w][round]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for w := range effects {
		for round := range effects[w] {
			for i, n := range effects[w][round] {
				require.Equal(t, 1, n, "event %d of round %d of worker %d", i, round, w)
			}
		}
	}
	t.Logf("%d replies lost", proxy.lost.Load())
	require.Greater(t, proxy.lost.Load(), int64(50), "the proxy must do its work")
}

// handleOnce claims, fails once in a while, and completes, repeating each call until it is answered.
func handleOnce(s *Store, reqs []dedup.Request, effects *[16]int) error {
	ctx := context.Background()
	for attempt := range 2 { // the first attempt of every third event fails
		tok, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
		if err := insist(func() error { return s.Claim(ctx, tok, long, reqs, answers) }); err != nil {
			return err
		}
		var good []dedup.Completion
		var bad []dedup.Release
		var held []dedup.Claim
		for i, a := range answers {
			switch {
			case a.Verdict == dedup.Done && attempt > 0:
				continue
			case a.Verdict != dedup.Fresh || a.Fence != uint64(attempt+1) || a.Failures != uint32(attempt):
				return fmt.Errorf("attempt %d of %q: %+v", attempt, reqs[i].Key, a)
			}
			c := reqs[i].Held(tok, a)
			held = append(held, c)
			if i%3 == 0 && attempt == 0 {
				bad = append(bad, dedup.Release{Claim: c, Outcome: dedup.Failed, Retention: retention})
				continue
			}
			effects[i]++
			d := completed(c)
			if i%2 == 0 {
				d.Result = dedup.Result{Schema: 1, Data: []byte("sent")}
			}
			good = append(good, d)
		}
		for _, verb := range []func() error{
			func() error { return s.Renew(ctx, long, held) },
			func() error { return s.Complete(ctx, good) },
			func() error { return s.Release(ctx, bad) },
		} {
			if err := insist(verb); err != nil {
				return err
			}
		}
	}
	return nil
}

// insist repeats a call until the store answers.
func insist(call func() error) error {
	var err error
	for range 50 {
		if err = call(); err == nil || !isUnavailable(err) {
			return err
		}
	}
	return err
}

// TestLostRepliesLoseEventsWithoutTokens is the negative control of the test above. The usual SETNX
// loses events on the same way to Redis, because the client library's repetition finds the key
// taken.
func TestLostRepliesLoseEventsWithoutTokens(t *testing.T) {
	direct, prefix := testenv.Redis(t)
	client := newLossyProxy(t, direct.Options().Addr, 0.1).client(t)
	lost := 0
	for i := range 500 {
		fresh, err := client.SetNX(t.Context(), fmt.Sprint(prefix, i), "PENDING", retention).Result()
		if err == nil && !fresh {
			lost++ // no other caller has ever asked for this key
		}
	}
	t.Logf("SETNX takes %d of 500 new events for duplicates", lost)
	require.Positive(t, lost)
}
