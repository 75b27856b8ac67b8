package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

// storm is a store on the other side of a bad network: calls are lost, or their answers, or arrive long after the caller has
// given up on them.
type storm struct {
	dedup.Store
	mu   sync.Mutex
	rng  *rand.Rand
	over bool
	late sync.WaitGroup
}

func (s *storm) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return n - 1
	}
	return s.rng.IntN(n)
}

func (s *storm) send(ctx context.Context, call func() error) error {
	time.Sleep(time.Duration(s.roll(20)) * time.Millisecond)
	switch s.roll(20) {
	case 0, 1:
		return errDown
	case 2, 3:
		_ = call()
		return errDown
	case 4:
		if s.sendLate(time.Duration(s.roll(3000))*time.Millisecond, call) {
			return errDown
		}
	case 5:
		after := time.Duration(s.roll(5000)) * time.Millisecond
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
		return errDown
	}
	return call()
}

// sendLate sends a call that arrives after its caller has left. After the end of the storm it sends
// no call.
func (s *storm) sendLate(after time.Duration, call func() error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.late.Go(func() {
		time.Sleep(after)
		_ = call()
	})
	return true
}

func (s *storm) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	asked, answers := []dedup.Request{r[0]}, make([]dedup.Answer, 1) // a late call must not write to the caller's slices
	err := s.send(ctx, func() error {
		return s.Store.Claim(context.WithoutCancel(ctx), t, lease, asked, answers)
	})
	if err == nil {
		copy(a, answers)
	}
	return err
}

func (s *storm) Renew(ctx context.Context, lease time.Duration, c []dedup.Claim) error {
	return s.send(ctx, func() error { return s.Store.Renew(context.WithoutCancel(ctx), lease, c) })
}

func (s *storm) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.send(ctx, func() error { return s.Store.Complete(context.WithoutCancel(ctx), done) })
}

func (s *storm) Release(ctx context.Context, r []dedup.Release) error {
	return s.send(ctx, func() error { return s.Store.Release(context.WithoutCancel(ctx), r) })
}

// The network, the callers and the function fail at random. Without Rerun there is at most one
// effect for each key, and every result is the result of this effect.
func TestDo_Random(t *testing.T) {
	seeds := []uint64{1, 2, 3, rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("IDEM_SEED=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { (&gale{T: t, rng: rand.New(rand.NewPCG(seed, 1))}).run() })
		})
	}
}

type gale struct {
	*testing.T
	rng *rand.Rand

	mu      sync.Mutex
	effects [30]int
	results [30]map[int]bool
}

func (g *gale) run() {
	net := &storm{Store: memstore.New(), rng: rand.New(rand.NewPCG(g.rng.Uint64(), 2))}
	cfg := dedup.GuardConfig{Lease: 3 * time.Second, Wait: 2 * time.Second, MaxWaiters: 4}
	guards := []*dedup.Guard{dedup.NewGuard(net, cfg), dedup.NewGuard(net, cfg), dedup.NewGuard(net.Store, cfg)}
	var all sync.WaitGroup
	for range 600 {
		key, guard := g.rng.IntN(len(g.effects)), guards[g.rng.IntN(len(guards))]
		begin, patience := g.upTo(20000), g.upTo(4000)-time.Second
		limit, how, takes := g.upTo(30000)+time.Second, g.rng.IntN(12), g.upTo(6000)
		all.Go(func() {
			time.Sleep(begin)
			ctx, cancel := context.WithTimeout(g.Context(), limit)
			defer cancel()
			g.call(ctx, guard, key, how, takes, dedup.WaitFor(patience))
		})
	}
	all.Wait()
	net.mu.Lock()
	net.over = true
	net.mu.Unlock()
	net.late.Wait()
	time.Sleep(time.Minute) // all leases are over
	for key := range g.effects {
		had := g.effects[key]
		for _, guard := range guards {
			g.call(g.Context(), guard, key, 11, 0)
		}
		require.LessOrEqual(g, had, 1, "effects of key %d", key)
		require.LessOrEqual(g, g.effects[key], 1, "effects of key %d", key)
		require.LessOrEqual(g, len(g.results[key]), 1, "results of key %d: %v", key, g.results[key])
	}
	for _, guard := range guards {
		guard.Close()
	}
}

func (g *gale) upTo(millis int) time.Duration {
	return time.Duration(g.rng.IntN(millis)) * time.Millisecond
}

var errRefused = errors.New("refused before anything happened")

// call runs a function that may fail, be cut short after its effect, or not return.
func (g *gale) call(ctx context.Context, guard *dedup.Guard, key, how int, takes time.Duration, opts ...dedup.DoOption) {
	defer func() { _ = recover() }()
	id := dedup.Key{Scope: "random", ID: strconv.Itoa(key)}
	r, _, err := dedup.Do(ctx, guard, id, func(ctx context.Context) (int, error) {
		if how == 0 || how == 1 {
			return 0, errRefused
		}
		g.mu.Lock()
		g.effects[key]++
		n := key*1000 + g.effects[key]
		g.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return 0, fmt.Errorf("cut short: %w", ctx.Err())
		}
		switch how {
		case 2:
			panic("odd")
		case 3:
			return 0, dedup.ErrUnknownOutcome
		}
		return n, nil
	}, opts...)
	if err == nil || r != 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.results[key] == nil {
			g.results[key] = make(map[int]bool)
		}
		g.results[key][r] = true
	}
}
