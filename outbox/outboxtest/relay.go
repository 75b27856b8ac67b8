package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// broker records the published messages. Every seventh message fails, once for each ID. Half of the
// failed messages are in the log nevertheless.
type broker struct {
	mu     sync.Mutex
	calls  int
	firsts map[string][]string // the IDs of each key, at their first appearance
	seen   map[string]bool
	failed map[string]bool
}

var errLost = errors.New("no answer")

// ProduceEach implements [outbox.Producer].
func (b *broker) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		id := string(m.Headers[0].Value)
		b.calls++
		if b.calls%7 == 0 && !b.failed[id] {
			b.failed[id], errs[i] = true, errLost
			if b.calls%14 == 0 {
				continue
			}
		}
		if !b.seen[id] {
			b.seen[id] = true
			b.firsts[string(m.Key)] = append(b.firsts[string(m.Key)], id)
		}
	}
	return errs
}

// relay: relays publish all committed entries, and only these. The first appearances of an
// aggregate are in the order of commits, which a counter of the test decides.
func (k *kit[Tx]) relay() {
	const keys, rounds = 4, 25
	k.logSeed()
	b := &broker{firsts: map[string][]string{}, seen: map[string]bool{}, failed: map[string]bool{}}
	ctx, stop := context.WithCancel(k.ctx)
	ended := make(chan error, 2)
	var running sync.WaitGroup
	defer func() { // also after a failure
		stop()
		running.Wait()
	}()
	for range cap(ended) {
		r, err := outbox.NewRelay(outbox.RelayConfig{Store: k.Outbox, Producer: b,
			Interval: 20 * time.Millisecond, Lease: 3 * time.Second})
		require.NoError(k, err)
		running.Go(func() { ended <- r.Run(ctx) })
	}
	var mu [keys]sync.Mutex // makes the order of commits known
	want := make([][]string, keys)
	require.NoError(k, together(2*keys, func(w int) error {
		r, key := k.random(w), w%keys
		for i := range rounds {
			id := fmt.Sprintf("%d.%d", w, i)
			mu[key].Lock()
			tx, err := k.Begin(k.ctx)
			if err == nil {
				err = k.Add(k.ctx, tx, entry(fmt.Sprint(key), id))
			}
			switch {
			case err != nil:
			case r.IntN(4) == 0:
				err = k.Rollback(k.ctx, tx)
			default:
				if err = k.Commit(k.ctx, tx); err == nil {
					want[key] = append(want[key], id)
				}
			}
			mu[key].Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	}))
	require.Eventually(k, func() bool {
		waiting, err := k.Outbox.Backlog(k.ctx, 1)
		return err == nil && waiting.Waiting == 0
	}, time.Minute, 20*time.Millisecond)
	stop()
	for range cap(ended) {
		require.NoError(k, <-ended)
	}
	for key := range keys {
		require.Equal(k, want[key], b.firsts[fmt.Sprint(key)], "key %d", key)
	}
	require.Empty(k, k.rowStates())
}
