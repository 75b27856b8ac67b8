package outboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// patience bounds a test.
const patience = 2 * time.Minute

// kit is one test.
type kit[Tx any] struct {
	testing.TB
	Site[Tx]
	ctx  context.Context //nolint:containedctx // of the test
	seed uint64
}

func newKit[Tx any](t testing.TB, site Site[Tx]) *kit[Tx] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	k := &kit[Tx]{TB: t, Site: site, ctx: ctx, seed: rand.Uint64()}
	if text := os.Getenv("IDEM_SEED"); text != "" {
		var err error
		k.seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	return k
}

// random returns a source of numbers for one goroutine.
func (k *kit[Tx]) random(of int) *rand.Rand { return rand.New(rand.NewPCG(k.seed, uint64(of))) }

// logSeed prints the seed of a random test.
func (k *kit[Tx]) logSeed() { k.Logf("seed: IDEM_SEED=%d", k.seed) }

func entry(key, id string) outbox.Entry {
	return outbox.Entry{Topic: "orders", Key: key, Type: "order.paid", ID: id,
		Payload: []byte("payload of " + id)}
}

// begin begins a transaction that is rolled back at the end of the test.
func (k *kit[Tx]) begin() Tx {
	k.Helper()
	tx, err := k.Begin(k.ctx)
	require.NoError(k, err)
	k.Cleanup(func() { _ = k.Rollback(context.WithoutCancel(k.ctx), tx) })
	return tx
}

// commit commits a transaction that adds entries.
func (k *kit[Tx]) commit(entries ...outbox.Entry) {
	k.Helper()
	require.NoError(k, k.write(entries...))
}

// write is commit for any goroutine.
func (k *kit[Tx]) write(entries ...outbox.Entry) error {
	tx, err := k.Begin(k.ctx)
	if err != nil {
		return err
	}
	if err := k.Add(k.ctx, tx, entries...); err != nil {
		return errors.Join(err, k.Rollback(k.ctx, tx))
	}
	return k.Commit(k.ctx, tx)
}

// many commits n entries of as many keys as given.
func (k *kit[Tx]) many(n, keys int) {
	k.Helper()
	entries := make([]outbox.Entry, n)
	for i := range entries {
		entries[i] = entry(strconv.Itoa(i%keys), strconv.Itoa(i))
	}
	k.commit(entries...)
}

// hold lets a relay take all that it may.
func (k *kit[Tx]) hold(relay string) []outbox.Lease {
	k.Helper()
	held, err := k.Outbox.Hold(k.ctx, relay, time.Minute, true)
	require.NoError(k, err)
	return held
}

// renew lets a relay renew what it has.
func (k *kit[Tx]) renew(relay string) []outbox.Lease {
	k.Helper()
	held, err := k.Outbox.Hold(k.ctx, relay, time.Minute, false)
	require.NoError(k, err)
	return held
}

// everything asks for all rows.
func everything() outbox.Fetch {
	f := outbox.Fetch{Limit: 10_000 * outbox.Shards, Bytes: 1 << 30, Halt: true}
	for s := range outbox.Shards {
		f.Shards = append(f.Shards, outbox.Lease{Shard: s})
	}
	return f
}

func (k *kit[Tx]) fetchAll() []outbox.Row {
	k.Helper()
	return k.fetch(everything())
}

func (k *kit[Tx]) fetch(f outbox.Fetch) []outbox.Row {
	k.Helper()
	rows, err := k.Outbox.Fetch(k.ctx, f)
	require.NoError(k, err)
	return rows
}

// settle settles rows of shards that the relay holds.
func (k *kit[Tx]) settle(relay string, held []outbox.Lease, s outbox.Settlement) {
	k.Helper()
	lost, err := k.Outbox.Settle(k.ctx, relay, held, s)
	require.NoError(k, err)
	require.Empty(k, lost)
}

// rowStates returns the state of each row.
func (k *kit[Tx]) rowStates() map[string]int {
	k.Helper()
	all, err := k.States(k.ctx)
	require.NoError(k, err)
	return all
}

func ids(rows []outbox.Row) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.Entry.ID
	}
	return out
}

func rowIDs(rows []outbox.Row) []outbox.RowID {
	out := make([]outbox.RowID, len(rows))
	for i, r := range rows {
		out[i] = r.RowID()
	}
	return out
}

// together runs n functions at once, and returns their errors.
func together(n int, fn func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = fn(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// wait waits for the clock of the database.
func (k *kit[Tx]) wait(d time.Duration) {
	k.Helper()
	sleep(k.ctx, d)
	require.NoError(k, k.ctx.Err())
}

// pause waits for up to 10 ms of real time, so that transactions of the server overlap.
func pause(ctx context.Context, r *rand.Rand) {
	sleep(ctx, time.Duration(r.IntN(10_000))*time.Microsecond)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
