package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/observe"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// soak chooses between a number for CI and a number for a long run (IDEM_SOAK).
func soak(short, long int) int {
	if os.Getenv("IDEM_SOAK") != "" {
		return long
	}
	return short
}

// newSeed returns the source of all that is random in a test, and its seed: that of IDEM_SEED if it is set.
func newSeed(t testing.TB) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64() >> 32 // short enough to be typed
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("repeat with IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// engine is a processor with a store in Postgres, and the counts of a test. It is its own observer
// and producer.
type engine struct {
	t      testing.TB
	p      *idem.Processor
	offset int64

	mu          sync.Mutex
	runs        map[string]int // by event
	deadLetters []*idem.Message
	unknown     int // commits with an unknown outcome
	refused     int // claims that a read-only server refused
	downs       int // times that the store went away
}

func (e *engine) Produce(_ context.Context, msgs ...*idem.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadLetters = append(e.deadLetters, msgs...)
	return nil
}

func (e *engine) ObserveClaim(_ context.Context, c observe.ClaimEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(c.Err, dedup.ErrUnknownCommit) {
		e.unknown++
	}
	if pg, ok := errors.AsType[*pgconn.PgError](c.Err); ok && pg.Code == "25006" {
		e.refused++
	}
}

func (e *engine) ObserveStore(_ context.Context, l observe.StoreEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.Down {
		e.downs++
	}
}

func (e *engine) ran(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[id]++
}

// counts returns how often an event was run and how many dead letters there are.
func (e *engine) counts(id string) (runs, letters int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id], len(e.deadLetters)
}

// newEngine makes a processor that waits as long as it takes. register adds the handlers.
func newEngine(t testing.TB, s *pgstore.Store, register func(*engine, *idem.Router)) *engine {
	t.Helper()
	e := &engine{t: t, runs: make(map[string]int)}
	r := idem.NewRouter(idem.ID(idem.FromHeader("event-id")), idem.Type(idem.FromHeader("event-type")))
	register(e, r)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: s, Scope: "orders", Producer: e, Observers: []observe.Observer{e}, BusyWait: idem.Forever,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	e.p = p
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return e
}

// payload is empty: only the IDs of events differ.
type payload struct{}

// write is a handler that writes one effect.
func (e *engine) write(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
	e.ran(ev.ID)
	return addEffect(ctx, tx, ev.ID)
}

// message makes the next record of the one partition.
func (e *engine) message(typ, id string) *idem.Message {
	e.offset++
	return &idem.Message{
		Topic: "payments", Offset: e.offset, Value: []byte("{}"), Time: time.Now(),
		Headers: []idem.Header{{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte(typ)}},
	}
}

// settle gives messages to the processor and requires that all are settled.
func (e *engine) settle(msgs ...*idem.Message) {
	e.t.Helper()
	n, err := e.p.HandleBatch(e.t.Context(), msgs)
	require.NoError(e.t, err)
	require.Equal(e.t, len(msgs), n)
}

// trust handles so many events that the partition is no longer watched: each start would be written down, and committed.
func (e *engine) trust(typ string) {
	e.t.Helper()
	for i := range 40 {
		e.settle(e.message(typ, fmt.Sprint("first-", i)))
	}
}

// effects counts all effects, and the events that have one.
func effects(t testing.TB, pool *pgxpool.Pool) (all, events int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()),
		"SELECT count(*), count(DISTINCT name) FROM effects").Scan(&all, &events))
	return all, events
}

// shuffledCuts returns n of each kind, in any order.
func shuffledCuts(rng *rand.Rand, n int) []cut {
	cuts := make([]cut, 0, 2*n)
	for range n {
		cuts = append(cuts, beforeCommit, afterCommit)
	}
	rng.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
	return cuts
}

// P-11: the connection breaks exactly before the server gets COMMIT, or exactly after it has
// committed, for one event and for groups. The outcome is unknown, and another claim shows it.
// After a break before COMMIT the whole transaction runs again, and after a commit no part of it.
// Each event has one effect.
func TestCutsAtCommit_P11(t *testing.T) {
	for name, most := range map[string]int{"single": 1, "group": 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := soak(50, 1000)
			rng, seed := newSeed(t)
			url := newTables(t)
			direct := newPool(t, url)
			proxy, through := throughCutter(t, direct)
			proxy.only = "idem.session" // the transactions of events; a look commits too
			pool := newPool(t, url, through, maxConns(4))
			e := newEngine(t, pgstore.New(pool), func(e *engine, r *idem.Router) {
				for i := range 2*n + 1 { // each group has a handler of its own, which has met no trouble yet
					idem.OnTx(r, fmt.Sprint(i), e.write)
				}
			})
			e.trust(fmt.Sprint(2 * n))
			var all []*idem.Message
			for i, what := range shuffledCuts(rng, n) {
				msgs := make([]*idem.Message, min(most, 2+rng.IntN(most)))
				for j := range msgs {
					msgs[j] = e.message(fmt.Sprint(i), fmt.Sprint(i, "-", j))
				}
				all = append(all, msgs...)
				proxy.arm(what)
				e.settle(msgs...)
				require.True(t, proxy.spent(), "nothing was cut")
				for j := range msgs {
					runs, letters := e.counts(fmt.Sprint(i, "-", j))
					require.Equal(t, map[cut]int{beforeCommit: 2, afterCommit: 1}[what], runs, "event %d-%d, cut %s", i, j, what)
					require.Zero(t, letters)
				}
			}
			for _, m := range all { // every record comes again
				e.settle(m)
			}
			got, events := effects(t, direct)
			t.Logf("soak: TestCutsAtCommit_P11/%s seed=%d size=%d kills=0 cuts=%d rebalances=0 outcome=%d effects of %d events, %d rolled back, %d committed unheard",
				name, seed, len(all), proxy.cuts(), got-40, events-40, proxy.before.Load(), proxy.after.Load())
			require.EqualValues(t, n, proxy.before.Load())
			require.EqualValues(t, n, proxy.after.Load())
			require.Equal(t, len(all), e.unknownCommits(), "claims whose commit was in doubt")
			require.Equal(t, len(all)+40, got)
			require.Equal(t, got, events, "an event with two effects")
			healthy(t, pool)
		})
	}
}

func (e *engine) unknownCommits() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unknown
}

func (e *engine) refusals() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused
}

// P-11, R-01: the same for the store's own transactions, which claim and complete. A claim with an
// unknown outcome is asked for again under its token, and an end is recorded again. Each handler
// runs once.
func TestCutsAtCommitOfClaims_P11(t *testing.T) {
	t.Parallel()
	n := soak(25, 500)
	rng, seed := newSeed(t)
	url := newTables(t)
	proxy, through := throughCutter(t, newPool(t, url))
	pool := newPool(t, url, through, maxConns(4))
	var atEnd cut
	e := newEngine(t, pgstore.New(pool), func(e *engine, r *idem.Router) {
		idem.On(r, "mail", func(_ context.Context, ev idem.Event[payload]) error {
			e.ran(ev.ID)
			proxy.arm(atEnd) // the next COMMIT is that of the completion
			return nil
		})
	})
	cuts := shuffledCuts(rng, 2*n)
	for i, what := range cuts {
		id, claim := fmt.Sprint(i), rng.IntN(2) == 0
		atEnd = what
		if claim {
			atEnd = noCut
			proxy.arm(what)
		}
		m := e.message("mail", id)
		e.settle(m)
		require.True(t, proxy.spent(), "nothing was cut")
		e.settle(m)
		runs, letters := e.counts(id)
		require.Equal(t, 1, runs, "event %s, cut %s, at the claim: %t", id, what, claim)
		require.Zero(t, letters)
	}
	t.Logf("soak: TestCutsAtCommitOfClaims_P11 seed=%d size=%d kills=0 cuts=%d rebalances=0 outcome=each ran once, %d rolled back, %d committed unheard",
		seed, len(cuts), proxy.cuts(), proxy.before.Load(), proxy.after.Load())
	require.EqualValues(t, 2*n, proxy.before.Load())
	require.EqualValues(t, 2*n, proxy.after.Load())
	healthy(t, pool)
}
