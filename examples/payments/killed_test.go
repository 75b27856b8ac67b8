package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/examples/payments/provider"
)

// order is a payment that clients send copies times.
type order struct {
	key, body string
	copies    int
	declined  bool

	mu      sync.Mutex
	answers map[answer]int // without the replayed flag
}

// newOrders makes n payments, of which a twentieth will be declined, and the copies of all, in
// random order.
func newOrders(rng *rand.Rand, n int) (orders, copies []*order) {
	for i := range n {
		customer := fmt.Sprint("customer-", rng.IntN(n))
		o := &order{key: fmt.Sprint("key-", i), copies: 1 + rng.IntN(5), declined: rng.IntN(20) == 0, answers: make(map[answer]int)}
		if o.declined {
			customer = "declined"
		}
		o.body = wish(fmt.Sprint("order-", i), customer, 1+rng.IntN(100_000))
		orders = append(orders, o)
		for range o.copies {
			copies = append(copies, o)
		}
	}
	// Copies come at about the same time, as retries do. Each is moved by at most a hundred places.
	type place struct {
		o  *order
		at float64
	}
	places := make([]place, len(copies))
	for i, o := range copies {
		places[i] = place{o, float64(i) + 100*rng.Float64()}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for i, p := range places {
		copies[i] = p.o
	}
	return orders, copies
}

// troubles returns the faults of the provider: of 100 first and second attempts, 2 fail before the
// charge and 2 after the charge.
func troubles(seed uint64, hung, refused *atomic.Int64) func(provider.Request) provider.Fault {
	return func(r provider.Request) provider.Fault {
		f := provider.Fault{Decline: r.Customer == "declined"}
		dice := rand.New(rand.NewPCG(seed, hash(r.Key)+uint64(r.Attempt))).IntN(100)
		switch {
		case r.Attempt > 2:
		case dice < 2:
			refused.Add(1)
			f.Unavailable = true
		case dice < 4:
			hung.Add(1)
			f.Hang = true
		}
		return f
	}
}

func hash(s string) (h uint64) {
	for _, b := range []byte(s) {
		h = h*31 + uint64(b)
	}
	return h
}

// 20 clients send each of many payments 1 to 5 times, in parallel, and repeat each copy until they
// get an answer. Meanwhile kill -9 ends the server at random moments, and the provider fails before
// and after charging, and declines. In the end each payment has one row, one charge, and one answer
// for all its copies. A declined payment has neither row nor charge. IDEM_SOAK selects the long
// form.
func TestKilledAgainAndAgain_Idempotent(t *testing.T) {
	payments, kills := 1000, 5
	if os.Getenv("IDEM_SOAK") != "" {
		payments, kills = 20_000, 60
	}
	const clients = 20
	rng, seed := clitest.Seed(t, "IDEM_SEED")
	s := newTown(t)
	var hung, refused, tries atomic.Int64
	s.faults.set(troubles(seed, &hung, &refused))
	orders, copies := newOrders(rng, payments)
	p := s.start()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	work := make(chan *order)
	var done atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for o := range work {
				n, err := o.send(ctx, s)
				if err != nil {
					t.Error(err)
					cancel()
				}
				tries.Add(int64(n))
				done.Add(1)
			}
		})
	}
	all.Go(func() {
		defer close(work)
		for _, o := range copies {
			select {
			case work <- o:
			case <-ctx.Done():
				return
			}
		}
	})
	for k := range kills {
		portion := len(copies) / (kills + 1)
		at := int64(k*portion + 1 + rng.IntN(portion))
		require.Eventually(t, func() bool { return done.Load() >= at || ctx.Err() != nil }, 10*time.Minute, time.Millisecond)
		<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
		p.kill()
		p = s.start()
	}
	all.Wait()
	require.False(t, t.Failed())
	require.Equal(t, cli.ExitOK, p.terminate())
	checkOrders(t, s, orders)
	t.Logf("soak: TestKilledAgainAndAgain_Idempotent seed=%d size=%d kills=%d cuts=0 rebalances=0 outcome=%d copies sent %d times, "+
		"provider: %d failed before, %d after the charge; %d charges, %d asked for again",
		seed, payments, kills, len(copies), tries.Load(), refused.Load(), hung.Load(), len(s.provider.Charges()), askedAgain(s))
	require.NotZero(t, refused.Load())
	require.NotZero(t, hung.Load())
	require.Greater(t, tries.Load(), int64(len(copies)), "no kill was felt")
}

// askedAgain counts charges that the provider was asked for more than once.
func askedAgain(s *town) (n int) {
	for _, c := range s.provider.Charges() {
		if s.provider.Attempts(c.Key) > 1 {
			n++
		}
	}
	return n
}

func (o *order) send(ctx context.Context, s *town) (tries int, err error) {
	a, tries, err := s.insist(ctx, o.key, o.body)
	if err != nil {
		return tries, err
	}
	a.replayed = false
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers[a]++
	return tries, nil
}

// checkOrders compares the answers to clients with the database and with the charges.
func checkOrders(t *testing.T, s *town, orders []*order) {
	t.Helper()
	charged := make(map[string]provider.Charge) // by reference, which is the ID of the payment
	keys := make(map[string]bool)
	for _, c := range s.provider.Charges() {
		require.Empty(t, charged[c.Reference], "charged twice: %+v", c)
		require.False(t, keys[c.Key], "charged twice under one key")
		charged[c.Reference], keys[c.Key] = c, true
	}
	paid := 0
	for _, o := range orders {
		require.Len(t, o.answers, 1, "%s: its copies were told different things", o.key)
		for a, n := range o.answers {
			require.Equal(t, o.copies, n, o.key)
			if o.declined {
				require.Equal(t, http.StatusPaymentRequired, a.status, a.body)
				continue
			}
			paid++
			c, ok := charged[a.id(t)]
			require.True(t, ok, "%s was not charged", o.key)
			require.Equal(t, 1, count(t, s.pool, `SELECT count(*) FROM payments
				WHERE idempotency_key = $1 AND id = $2 AND charge_id = $3 AND amount = $4`, o.key, c.Reference, c.ID, c.Amount), "%s: %+v", o.key, c)
		}
	}
	require.Len(t, charged, paid, "charges that nobody was told of")
	require.Equal(t, paid, count(t, s.pool, `SELECT count(*) FROM payments`))
	require.Equal(t, len(orders), count(t, s.pool, `SELECT count(*) FROM processed_events WHERE result IS NOT NULL`))
}
