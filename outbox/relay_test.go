package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

func ids(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s%02d", prefix, i))
	}
	return list
}

// A row with a lower number and a later commit is published like any other (O-01).
func TestRelay_LateRow_O01(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		early := b.table.draw()
		b.table.add("t", "b", "b1")
		b.start(nil)
		b.drained(time.Minute)
		b.sleep(time.Minute)
		b.table.commit(early, outbox.Entry{Topic: "t", Key: "a", ID: "a1"})
		b.drained(outbox.DefaultInterval + 50*time.Millisecond)
		require.Equal(t, 1, b.broker.times("a1"))
	})
}

// Four relays share the outbox: each event is published once, those of an aggregate in order
// (O-04). The share of one that leaves is published by the others.
func TestRelay_FourRelays_O04(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for range 4 {
			b.start(nil)
		}
		b.sleep(outbox.DefaultLease)
		require.Len(t, b.table.owned(), 4)
		for relay, n := range b.table.owned() {
			require.Equal(t, outbox.Shards/4, n, relay)
		}
		fill := func(from, to int) {
			for i := from; i < to; i++ {
				for a := range 100 {
					b.table.add("t", fmt.Sprint(a), fmt.Sprintf("%d-%02d", a, i))
				}
			}
		}
		fill(0, 20)
		b.drained(time.Minute)
		b.relays[0].stop()
		fill(20, 30)
		b.drained(time.Minute)
		require.Less(t, len(b.relays[0].producer.rounds()), len(b.relays[1].producer.rounds()))
		for a := range 100 {
			require.Equal(t, ids(fmt.Sprintf("%d-", a), 30), b.broker.all("t", fmt.Sprint(a)))
		}
	})
}

// If a relay dies between the acknowledgement and the record, the event is published again with the
// same ID (O-07).
func TestRelay_DiesBeforeSettle_O07(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.add("t", "a", "a1")
		b.table.add("t", "a", "a2")
		dies := b.start(func(_ *outbox.RelayConfig, f *faults) {
			f.before = func(_ context.Context, call string) error {
				if call == "settle" || call == "leave" {
					return errDatabase
				}
				return nil
			}
		})
		b.within(time.Second, func() bool { return b.broker.times("a2") == 1 }, "published")
		dies.stop()
		b.start(nil)
		b.drained(outbox.DefaultLease + outbox.DefaultLease/3 + time.Second)
		require.Equal(t, []string{"a1", "a2", "a1", "a2"}, b.broker.all("t", "a"))
	})
}

// While the database cannot record results, no duplicates are made, and no other row is published
// (O-07).
func TestRelay_SettleFails_NoDuplicates_O07(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.add("t", "a", "a1")
		var fails atomic.Int32
		fails.Store(20)
		r := b.start(func(_ *outbox.RelayConfig, f *faults) {
			f.before = func(_ context.Context, call string) error {
				if call == "settle" && fails.Load() > 0 {
					b.table.add("t", "b", fmt.Sprint("b", fails.Add(-1)))
					return errDatabase
				}
				return nil
			}
		})
		b.within(5*time.Minute, func() bool { return fails.Load() == 0 }, "tried again")
		require.Len(t, r.producer.rounds(), 1)
		b.drained(10 * time.Second)
		require.Equal(t, 1, b.broker.times("a1"))
		require.Equal(t, 1, b.log.count("cannot be read or written"))
		require.Equal(t, 1, b.log.count("can be read and written again"))
	})
}

// Only acknowledged messages count as sent, one by one (O-08).
func TestRelay_MarksOnlyAcked_O08(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		tries := map[string]int{}
		b.fate = func(m *idem.Message) fate {
			mu.Lock()
			defer mu.Unlock()
			tries[idOf(m)]++
			if strings.HasSuffix(idOf(m), "7") && tries[idOf(m)] <= 3 { // the first is lost, two are written without an answer
				return fate{wait: time.Millisecond, written: tries[idOf(m)] > 1, err: errBroker}
			}
			return acknowledged
		}
		for i := range 50 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		b.start(nil)
		b.drained(time.Minute) // the table notes rows that are settled without an ack
		require.Equal(t, 3, b.broker.times("e7"))
		require.Equal(t, 1, b.broker.times("e8"))
	})
}

// After a failure no other row of the aggregate is published before the failed one. Other
// aggregates go on (O-09).
func TestRelay_FailureKeepsOrder_O09(t *testing.T) {
	for _, failure := range []error{errBroker, idem.ErrNoTopic} {
		t.Run(failure.Error(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				fails := 4
				b.fate = func(m *idem.Message) fate {
					if idOf(m) == "a03" && fails > 0 {
						fails--
						return fate{wait: time.Millisecond, err: failure}
					}
					return acknowledged
				}
				for i := range 10 {
					b.table.add("t", "a", fmt.Sprintf("a%02d", i))
					b.table.add("t", "b", fmt.Sprintf("b%02d", i))
				}
				b.start(nil)
				b.within(time.Second, func() bool { return len(b.broker.all("t", "b")) == 10 }, "others go on")
				require.Equal(t, ids("a", 3), b.broker.all("t", "a"))
				b.drained(time.Minute)
				require.Equal(t, ids("a", 10), b.broker.all("t", "a"))
			})
		})
	}
}

// parkedLog is an observer.
type parkedLog struct{ notes[string] }

func (p *parkedLog) ObserveParked(_ context.Context, row outbox.Row, err error) {
	if err != nil {
		p.add(row.Entry.ID)
	}
}

// A row that can never be published is parked. Its aggregate halts or goes on. Other aggregates go
// on (O-10).
func TestRelay_PoisonIsParked_O10(t *testing.T) {
	for _, when := range []outbox.WhenParked{outbox.Halt, outbox.Skip} {
		for _, failure := range []error{idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic} {
			t.Run(when.String()+" "+failure.Error(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					poison := func(id string) bool { return id == "a03" || id == "keyless03" }
					tries := 0
					b.fate = func(m *idem.Message) fate {
						if !poison(idOf(m)) {
							return acknowledged
						}
						if idOf(m) == "a03" {
							tries++
						}
						return fate{wait: time.Millisecond, err: fmt.Errorf("%w: \x00\xff %s", failure, strings.Repeat("long ", 1000))}
					}
					for i := range 10 {
						b.table.add("t", "a", fmt.Sprintf("a%02d", i))
						b.table.add("t", "b", fmt.Sprintf("b%02d", i))
						b.table.add("t", "", fmt.Sprintf("keyless%02d", i))
					}
					told := &parkedLog{}
					b.start(func(c *outbox.RelayConfig, _ *faults) {
						c.WhenParked, c.Observers = when, []outbox.Observer{told}
					})
					b.within(time.Second, func() bool { return len(b.broker.all("t", "b")) == 10 && len(b.broker.all("t", "")) == 9 }, "others flow")
					b.drained(time.Minute)
					b.table.add("t", "a", "a10") // behind a row that was parked long ago
					b.drained(time.Second)

					wantState, wantLog, wantTries := blocked, ids("a", 3), 1
					if when == outbox.Skip {
						wantState, wantLog = sent, slices.Delete(ids("a", 11), 3, 4)
					}
					if failure == idem.ErrNoTopic { //nolint:errorlint // the very one
						wantTries = outbox.DefaultMaxAttempts
					}
					require.Equal(t, wantLog, b.broker.all("t", "a"))
					require.Equal(t, wantTries, tries)
					for id, s := range b.table.states() {
						switch {
						case poison(id):
							require.Equal(t, parked, s, id)
						case id > "a03" && id < "b":
							require.Equal(t, wantState, s, id)
						default:
							require.Equal(t, sent, s, id)
						}
					}
					require.ElementsMatch(t, []string{"a03", "keyless03"}, told.all())
					require.Equal(t, 2, b.log.count("level=ERROR"))
					require.Contains(t, b.log.String(), "event_id=a03 type=test seq=")
					for _, r := range b.table.rows {
						require.LessOrEqual(t, len(r.reason), 1024)
						require.NotContains(t, r.reason, "\x00")
						require.Equal(t, strings.ToValidUTF8(r.reason, ""), r.reason)
					}
				})
			})
		}
	}
}

// A row of a missing topic is tried MaxAttempts times, with pauses of 1 s, 2 s and 4 s. An outage
// of the broker in between does not count.
func TestRelay_NoTopicBackOff_O10(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var at []time.Time
		b.fate = func(m *idem.Message) fate {
			if idOf(m) != "a1" {
				return acknowledged
			}
			at = append(at, time.Now())
			if len(at) == 2 {
				return fate{err: errBroker}
			}
			return fate{err: idem.ErrNoTopic}
		}
		b.table.add("t", "a", "a1")
		b.start(func(c *outbox.RelayConfig, _ *faults) { c.MaxAttempts = 4 })
		b.drained(time.Minute)
		require.Len(t, at, 5)
		for i, least := range []time.Duration{time.Second, 180 * time.Millisecond, time.Second, 2 * time.Second} {
			gap := at[i+1].Sub(at[i])
			require.GreaterOrEqual(t, gap, least, "gap %d", i)
			require.Less(t, gap, least+outbox.DefaultInterval, "gap %d", i)
		}
		require.Equal(t, 1, b.table.count(parked))
	})
}

// waker is a store that announces new rows.
type waker struct {
	*faults
	wake func(ctx context.Context, wake func()) error
}

func (w *waker) Wake(ctx context.Context, wake func()) error { return w.wake(ctx, wake) }

// Announced rows are published at once. After a failure of the listener, rows are found within
// Interval, and the listener is started again (O-12).
func TestRelay_ListenerKilled_O12(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const interval = 10 * time.Second
		news, kill := make(chan struct{}), make(chan struct{})
		var listening atomic.Int32
		b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Interval, c.Wake, c.Lease = interval, true, 5*time.Minute
			c.Store = &waker{f, func(ctx context.Context, wake func()) error {
				listening.Add(1)
				for {
					select {
					case <-news:
						wake()
					case <-kill:
						return errDatabase
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}}
		})
		b.sleep(interval)
		latency := func(tell bool) time.Duration {
			b.sleep(time.Duration(len(b.table.states())%7) * time.Second)
			began := time.Now()
			b.table.add("t", "a", fmt.Sprint("a", len(b.table.states())))
			if tell {
				news <- struct{}{}
			}
			b.drained(2 * interval)
			return time.Since(began)
		}
		require.Less(t, latency(true), 10*time.Millisecond)
		for i := range 20 {
			require.LessOrEqual(t, latency(false), interval+10*time.Millisecond)
			kill <- struct{}{}
			if i > 0 { // again and again: it rests longer each time
				continue
			}
			synctest.Wait()
			require.EqualValues(t, 1, listening.Load(), "it rests")
			b.sleep(time.Second)
			require.EqualValues(t, 2, listening.Load(), "it listens again")
			require.Less(t, latency(true), 10*time.Millisecond)
		}
		require.EqualValues(t, 20, listening.Load())
		require.LessOrEqual(t, b.log.count("does not announce new rows"), 2, "it was back once in between")
	})
}

// Without Wake no listener runs, and rows are found within Interval (O-12).
func TestRelay_Interval_O12(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(nil)
		for i := range 20 {
			b.sleep(outbox.DefaultLease / 7)
			b.table.add("t", "a", fmt.Sprint("a", i))
			b.drained(outbox.DefaultInterval + 10*time.Millisecond)
		}
	})
}

// A shard with a backlog does not wait for others, nor do they for it: the outbox is drained
// without a pause.
func TestRelay_Backlog_WithoutPause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 2000 {
			b.table.add("t", "hot", fmt.Sprintf("%04d", i))
		}
		for i := range 2000 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		r := b.start(nil)
		began := time.Now()
		b.drained(time.Minute)
		// One row of the hot aggregate each millisecond, since each waits for the one before. Only
		// these rows take time here.
		require.Less(t, time.Since(began), 2500*time.Millisecond)
		require.Less(t, r.store.count("fetch"), 150)
		require.True(t, slices.IsSorted(b.broker.all("t", "hot")))
	})
}

// A batch that is smaller than the number of shards reaches all shards.
func TestRelay_SmallBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start(func(c *outbox.RelayConfig, _ *faults) { c.Batch = 3 })
		for i := range 200 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		b.drained(10 * time.Second)
		b.table.add("t", "x", "x")
		b.drained(outbox.DefaultInterval + 10*time.Millisecond)
	})
}

// The batches grow with the backlog up to the maximum, and are small again after it (O-15).
func TestRelay_BatchGrows_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fill := func(name string, n int) {
			for i := range n {
				b.table.add("t", fmt.Sprint(name, i), fmt.Sprint(name, "-", i))
			}
		}
		fill("a", 5000)
		r := b.start(func(c *outbox.RelayConfig, _ *faults) { c.Batch = 500 })
		b.drained(time.Minute)
		longest := 0
		for _, round := range r.producer.rounds() {
			longest = max(longest, len(round))
		}
		require.LessOrEqual(t, len(r.producer.rounds()[0]), 100)
		require.Greater(t, longest, 400)
		require.LessOrEqual(t, longest, 500)
		b.sleep(time.Minute)
		before := len(r.producer.rounds())
		fill("b", 5000)
		b.drained(time.Minute)
		require.LessOrEqual(t, len(r.producer.rounds()[before]), 100)
	})
}
