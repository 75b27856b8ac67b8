// Package defertest tests handlers that are KeyOrdered on the stores of sqlstore.
package defertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// Site is a database with the tables of one test.
type Site struct {
	// Open returns a store of the tables, as a process that starts does.
	Open func(t testing.TB) *sqlstore.Store
	// Insert adds the name of an effect to the table effects.
	Insert string
	// Count counts the names in the table effects.
	Count func(t testing.TB) (all, distinct int)
}

const (
	orderKeys, orderEach = 12, 20
	orderRounds          = 6
	topic                = "payments"
	scope                = "orders"
)

var errRefused = errors.New("refused")

// partition is a partition of a topic, and the effects of its events.
type partition struct {
	t    *testing.T
	site Site
	log  []*idem.Message

	mu        sync.Mutex
	committed int            // offset
	tries     map[string]int // by event
	order     map[string][]int
	letters   int
}

// Produce counts dead letters.
func (p *partition) Produce(_ context.Context, msgs ...*idem.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letters += len(msgs)
	return nil
}

// KeyOrder runs two kinds of handlers in workers that end at any time, one after the other. Of each
// Kafka key the effects first appear in order, no event is lost, no transaction takes effect twice,
// and no event stays deferred (rule 4, T-06).
func KeyOrder(t *testing.T, site Site) {
	rng := newRand(t)
	p := &partition{t: t, site: site, tries: make(map[string]int), order: make(map[string][]int)}
	for seq := range orderEach {
		for _, key := range rng.Perm(orderKeys) {
			kind := [...]string{"on", "tx"}[key%2]
			p.log = append(p.log, &idem.Message{
				Topic: topic, Offset: int64(len(p.log)), Key: fmt.Append(nil, key), Time: time.Now(),
				Headers: []idem.Header{{Key: "event-id", Value: fmt.Appendf(nil, "%d/%d", key, seq)},
					{Key: "event-type", Value: []byte(kind)}},
				Value: []byte("{}"),
			})
		}
	}
	most := 0
	for range orderRounds {
		most = max(most, p.work(time.Duration(100+rng.IntN(400))*time.Millisecond, false))
	}
	most = max(most, p.work(2*time.Minute, true))

	require.Positive(t, most, "no event was deferred when the test looked")
	require.Zero(t, p.letters, "dead letters")
	for key := range orderKeys {
		first := []int{}
		for _, seq := range p.order[fmt.Sprint(key)] {
			if len(first) == 0 || seq > first[len(first)-1] {
				require.Equal(t, len(first), seq, "key %d: %v", key, p.order[fmt.Sprint(key)])
				first = append(first, seq)
			}
		}
		require.Len(t, first, orderEach, "key %d", key)
	}
	all, distinct := site.Count(t)
	require.Equal(t, orderKeys/2*orderEach, distinct, "lost")
	require.Equal(t, distinct, all, "transactions that took effect twice")
}

func newRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// errLimit is the end of a worker that was to end.
var errLimit = errors.New("the time of the worker is over")

// work runs a worker until all events have ended, or for some time. The worker then ends as if
// killed, in the middle of handlers and calls of the store. The result is the largest number of
// queues that the test has seen.
func (p *partition) work(limit time.Duration, toEnd bool) (most int) {
	s := p.site.Open(p.t)
	r := idem.NewRouter(idem.ID(idem.FromHeader("event-id")),
		idem.Type(idem.FromHeader("event-type")))
	opts := []idem.Option{idem.Retry(idem.RetryPolicy{MaxAttempts: 1}),
		idem.KeyOrdered(time.Millisecond, 20*time.Millisecond, 50*time.Millisecond)}
	idem.On(r, "on", func(_ context.Context, e idem.Event[struct{}]) error {
		return p.handle(e.ID)
	}, opts...)
	idem.OnTx(r, "tx", func(ctx context.Context, tx *sql.Tx, e idem.Event[struct{}]) error {
		if _, err := tx.ExecContext(ctx, p.site.Insert, e.ID); err != nil {
			return err
		}
		return p.handle(e.ID)
	}, opts...)
	engine, err := idem.NewProcessor(r, idem.Config{Store: s, Scope: scope, Producer: p,
		Lease: time.Second, BusyWait: idem.Forever,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(p.t, err)
	engine.Assigned(topic, 0)
	// No deadline: a call of the store could fail by the deadline a moment before ctx ends.
	ctx, cancel := context.WithCancelCause(p.t.Context())
	defer cancel(nil)
	defer time.AfterFunc(limit, func() { cancel(errLimit) }).Stop()
	var all sync.WaitGroup
	all.Go(func() { _ = engine.RunDeferred(ctx, topic, 0) })
	all.Go(func() { p.feed(ctx, engine) })
	part := dedup.DeferredPartition{Scope: scope, Topic: topic}
	for ctx.Err() == nil {
		queues, err := s.Queues(ctx, part, "", orderKeys+1)
		if ctx.Err() != nil {
			break
		}
		require.NoError(p.t, err)
		most = max(most, len(queues))
		if toEnd && len(queues) == 0 && p.fed() {
			cancel(nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	all.Wait()
	require.NoError(p.t, engine.Close())
	if toEnd {
		require.NotErrorIs(p.t, context.Cause(ctx), errLimit, "events are left")
	}
	return most
}

// feed hands the records to the engine, and commits.
func (p *partition) feed(ctx context.Context, engine *idem.Processor) {
	for ctx.Err() == nil && !p.fed() {
		p.mu.Lock()
		begin := p.committed
		p.mu.Unlock()
		end := min(begin+7, len(p.log))
		n, _ := engine.HandleBatch(ctx, p.log[begin:end])
		p.mu.Lock()
		p.committed = begin + n
		p.mu.Unlock()
	}
}

func (p *partition) fed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed == len(p.log)
}

// handle fails the first runs of some events.
func (p *partition) handle(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[id]++
	key, number, _ := strings.Cut(id, "/")
	seq, err := strconv.Atoi(number)
	if err != nil {
		return idem.Permanent(err)
	}
	if k, _ := strconv.Atoi(key); p.tries[id] <= (k+seq*7)%10-6 {
		return errRefused
	}
	p.order[key] = append(p.order[key], seq)
	return nil
}
