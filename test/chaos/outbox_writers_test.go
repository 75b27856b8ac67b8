package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// outboxAggregates is the number of aggregates, unless a test has another one.
const outboxAggregates = 1_000

// way is a kind of transaction that emits.
type way int

const (
	queued  way = iota // a transaction with a queue: all is inserted at its end
	gated              // a transaction of the store, as handlers have it: likewise
	bare               // a transaction as it comes: inserted at once, and only then comes the pause
	waysAll            // how many there are
)

// writers emit events in transactions until they are told to stop.
type writers struct {
	box   *mailbox
	stop  context.CancelFunc
	group sync.WaitGroup
	size  int           // events in a transaction
	pause time.Duration // at most, in each transaction

	txs, last                      atomic.Int64 // last is when the last one ended, Unix nanoseconds
	events, rolledBack, triedAgain atomic.Int64 // events committed, transactions rolled back on purpose, and those that ran again
	mu                             sync.Mutex
	err                            error
	goal                           int64 // no more events than about so many; 0: no limit
}

// write starts n writers. Each draws from a source of its own.
func (b *mailbox) write(n int, seed uint64, w *writers) *writers {
	b.t.Helper()
	w.box = b
	ctx, stop := context.WithCancel(b.t.Context())
	w.stop = stop
	for i := range n {
		rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
		w.group.Go(func() {
			defer func() { w.last.Store(time.Now().UnixNano()) }()
			for ctx.Err() == nil && (w.goal == 0 || w.events.Load() < w.goal) {
				// A begun transaction is ended: a cancelled commit may have happened, and the test
				// would not know.
				if err := w.transaction(context.WithoutCancel(ctx), rng); err != nil {
					w.mu.Lock()
					w.err = errors.Join(w.err, err)
					w.mu.Unlock()
					return
				}
			}
		})
	}
	b.t.Cleanup(func() {
		stop()
		w.group.Wait()
	})
	return w
}

// end waits for the writers: with now, which are told to stop first.
func (w *writers) end(now bool) {
	w.box.t.Helper()
	if now {
		w.stop()
	}
	w.group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(w.box.t, w.err)
}

var errRollBack = errors.New("rolled back on purpose")

// transaction emits once, in as many tries as it needs.
func (w *writers) transaction(ctx context.Context, rng *rand.Rand) error {
	tx, how := int(w.txs.Add(1)), way(rng.IntN(int(waysAll)))
	abouts := 12 // aggregates to draw from
	if how == bare {
		abouts = 3 // they are locked until the commit: with more the writers wait for each other all the time
	}
	about := make([]int, abouts)
	for i := range about {
		about[i] = rng.IntN(outboxAggregates)
	}
	events := make([]emission, max(1, w.size+rng.IntN(7)-3))
	for n := range events {
		events[n] = emission{tx, n, about[rng.IntN(abouts)]}
	}
	rollBack := rng.IntN(20) == 0
	for range 100 {
		pause := time.Duration(rng.Int64N(int64(w.pause) + 1))
		err := w.try(ctx, how, events, pause, rollBack)
		switch {
		case errors.Is(err, errRollBack):
			w.rolledBack.Add(1)
			return nil
		case err == nil:
			w.events.Add(int64(len(events)))
			return nil
		case how == gated && errors.Is(err, dedup.ErrUnavailable): // another try cannot do the work twice
		case !w.box.db.runsAgain(err):
			return fmt.Errorf("transaction %d: %w", tx, err)
		}
		w.triedAgain.Add(1)
	}
	return fmt.Errorf("transaction %d does not come through", tx)
}

func (w *writers) try(ctx context.Context, how way, events []emission, pause time.Duration, rollBack bool) error {
	half := len(events) / 2
	if how == bare {
		half = 0 // in one go, else two of them wait for each other crosswise
	}
	return w.box.db.transact(ctx, how, events[0].parent(), func(emit func([]emission) error) error {
		err := emit(events[:half])
		if err == nil && how != bare {
			<-time.After(pause)
		}
		if err == nil {
			err = emit(events[half:])
		}
		if err == nil && how == bare {
			<-time.After(pause)
		}
		if err == nil && rollBack {
			err = errRollBack
		}
		return err
	})
}

// recordRetention is how long the store keeps the records of gated transactions.
const recordRetention = time.Minute

// cursor is the wrong way to read an outbox: it asks for rows with a higher number than all it has
// seen (O-01). It reads the table emitted, which the same transactions write.
type cursor struct {
	box  *mailbox
	stop context.CancelFunc
	done chan struct{}
	seen map[string]bool
	err  error
}

func (b *mailbox) cursor() *cursor {
	ctx, stop := context.WithCancel(b.t.Context())
	c := &cursor{box: b, stop: stop, done: make(chan struct{}), seen: make(map[string]bool)}
	go func() {
		defer close(c.done)
		c.err = c.run(ctx)
	}()
	b.t.Cleanup(func() {
		stop()
		<-c.done
	})
	return c
}

// read reads the rows behind last, and moves last.
func (c *cursor) read(ctx context.Context, last *int64, limit int) (n int, err error) {
	query := fmt.Sprintf("SELECT seq, event_id FROM emitted WHERE seq > %d ORDER BY seq LIMIT %d", *last, limit)
	rows, err := c.box.db.query(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for name := ""; rows.Next(); n++ {
		if err := rows.Scan(last, &name); err != nil {
			return n, err
		}
		c.seen[name] = true
	}
	return n, rows.Err()
}

// run reads until it was told to stop and finds no more.
func (c *cursor) run(ctx context.Context) error {
	const limit = 100
	for last := int64(0); ; {
		stopped := ctx.Err() != nil
		n, err := c.read(context.WithoutCancel(ctx), &last, limit)
		if err != nil {
			return err
		}
		if stopped && n < limit {
			return nil
		}
		if n < limit {
			waitABit(c.box.t)
		}
	}
}

// lost ends the cursor, and counts the committed events that it has not seen.
func (c *cursor) lost(events []emission) (n int) {
	c.box.t.Helper()
	c.stop()
	<-c.done
	require.NoError(c.box.t, c.err)
	for _, e := range events {
		entry := c.box.entry(e)
		if !c.seen[id(&entry)] {
			n++
		}
	}
	return n
}

// requireStands fails the test if a writer has given up.
func (w *writers) requireStands(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(t, w.err)
}
