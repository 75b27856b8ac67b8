package idem_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// Rule 42: an event that asks for more time than the longest delay does not run before, also beside
// others in one transaction.
func TestProcessor_NotBeforeInAGroup_Rule42(t *testing.T) {
	for name, register := range map[string]func(b *bench, fn func(idem.Event[payload]) error, opts ...idem.Option){
		"transactional": func(b *bench, fn func(idem.Event[payload]) error, opts ...idem.Option) {
			b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error { return fn(e) }, opts...)
		},
		"claimed": func(b *bench, fn func(idem.Event[payload]) error, opts ...idem.Option) {
			b.on(func(_ context.Context, e idem.Event[payload]) error { return fn(e) }, opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				if name == "claimed" {
					b.cfg.Store = b.store
				}
				began := time.Now()
				var again []time.Duration
				runs := map[string]int{}
				register(b, func(e idem.Event[payload]) error {
					runs[e.ID]++
					switch {
					case e.ID != "slow 1" && e.ID != "slow 2":
						return nil
					case runs[e.ID] == 1:
						return idem.RetryAfter(150*time.Second, errBoom)
					}
					require.Equal(t, 7, e.Data.Amount)
					again = append(again, time.Since(began))
					return nil
				}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Minute))
				p := b.start()
				for i := range 2 {
					require.NoError(t, p.Handle(t.Context(), message(fmt.Sprint("slow ", i+1), int64(i))))
				}
				_, err := p.HandleBatch(t.Context(), series(100)) // so that transactions are shared
				require.NoError(t, err)
				time.Sleep(time.Minute)
				for done := 0; done < len(b.sent.deadLetters()); {
					require.Less(t, done, 20, "moved on for ever")
					copies := b.sent.deadLetters()[done:]
					done += len(copies)
					for i, c := range copies {
						require.Equal(t, "orders.g.retry.1m", c.Topic)
						c := *c
						c.Partition, c.Offset = 7, int64(i)
						copies[i] = &c
					}
					_, err := p.HandleBatch(t.Context(), copies)
					require.NoError(t, err)
				}
				require.Len(t, again, 2)
				for _, at := range again {
					require.GreaterOrEqual(t, at, 150*time.Second, "not before")
				}
			})
		})
	}
}

// T-07: delayed copies that share a claim or a transaction ask the retry budget like those that
// come one by one.
func TestProcessor_BudgetOfCopiesInAGroup_T07(t *testing.T) {
	const n = 300
	for _, way := range []string{"on", "batch", "transactional", "transactional batch"} {
		t.Run(way, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				opts := []idem.Option{idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Minute)}
				fails, ran := true, 0
				fn := func() error {
					if fails {
						return errBoom
					}
					ran++
					return nil
				}
				all := func(events []idem.Event[payload]) (err error) {
					for range events {
						err = fn()
					}
					return err
				}
				switch way {
				case "on":
					b.cfg.Store = b.store
					b.on(func(context.Context, idem.Event[payload]) error { return fn() }, opts...)
				case "batch":
					b.cfg.Store = b.store
					b.onBatch(func(_ context.Context, events []idem.Event[payload]) error { return all(events) }, opts...)
				case "transactional":
					b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { return fn() }, opts...)
				default:
					b.onGroupBatch(func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error { return all(events) }, opts...)
				}
				p := b.start()
				for i := range n {
					m := message(strconv.Itoa(i), int64(i))
					m.Key = []byte(strconv.Itoa(i))
					require.NoError(t, p.Handle(t.Context(), m))
				}
				copies := b.sent.deadLetters()
				require.Len(t, copies, n)
				fails = false
				_, err := p.HandleBatch(t.Context(), series(200)) // so that transactions are shared again
				require.NoError(t, err)
				require.Equal(t, 200, ran)
				time.Sleep(time.Hour)
				b.store.sizes, s.sizes = nil, nil
				began := time.Now()
				settled, err := p.HandleBatch(t.Context(), copies)
				require.NoError(t, err)
				require.Equal(t, n, settled)
				require.Equal(t, 200+n, ran)
				require.Greater(t, slices.Max(append(b.store.sizes, s.sizes...)), 1, "copies that share nothing prove nothing")
				// A burst of 100, then ten a second and one for every five successes.
				require.InDelta(t, (n-100-n/5)/10, time.Since(began).Seconds(), 3)
			})
		})
	}
}

// T-07: retries are earned by successes, and not by duplicates.
func TestProcessor_DuplicatesEarnNoRetries_T07(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fails := 0
		b.on(func(context.Context, idem.Event[payload]) error {
			if fails--; fails >= 0 {
				return errBoom
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, MinBackoff: 1, MaxBackoff: 1, InPlace: idem.Forever}))
		p := b.start()
		fails = 100 // the burst
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		for range 1000 {
			require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		}
		fails = 50
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e2", 1)))
		require.GreaterOrEqual(t, time.Since(began), 4*time.Second, "ten a second")
	})
}
