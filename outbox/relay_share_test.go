package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// clock notes when a relay publishes.
type clock struct{ notes[time.Time] }

func (c *clock) tick() { c.add(time.Now()) }

// A relay that cannot renew its leases stops before they are over, in the middle of a round (O-13).
func TestRelay_CannotRenew_O13(t *testing.T) {
	for _, how := range []string{"errors", "hangs"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				const lease = 6 * time.Second
				b.fate = func(*idem.Message) fate { return fate{wait: 100 * time.Millisecond, written: true} }
				for i := range 100 {
					b.table.add("t", "a", fmt.Sprintf("%02d", i))
				}
				began, c := time.Now(), &clock{}
				r := b.start(func(cfg *outbox.RelayConfig, f *faults) {
					cfg.Lease = lease
					cfg.Producer.(*producer).gate = c.tick
					f.before = func(ctx context.Context, call string) error {
						switch {
						case call == "fetch" || call == "settle" || time.Since(began) < time.Second:
							return nil
						case how == "hangs":
							<-ctx.Done()
						}
						return errDatabase
					}
				})
				b.sleep(time.Minute)
				last := c.all()[len(c.all())-1].Sub(began)
				require.Greater(t, last, lease/2)
				require.Less(t, last, lease-lease/6+101*time.Millisecond, "it went on")
				require.Error(t, r.Ready())
				require.Equal(t, 1, b.log.count("cannot be read or written"))
			})
		})
	}
}

// A relay pauses for two leases in the middle of a round, and another relay takes its share. The
// first relay publishes and records no more rows. The first appearances of both are in order
// (O-13).
func TestRelay_StandsStill_O13(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const lease = 6 * time.Second
		for i := range 20 {
			b.table.add("t", "a", fmt.Sprintf("a%02d", i))
		}
		began, calls := time.Now(), atomic.Int32{}
		stands := func() {
			if d := 2*lease - time.Since(began); d > 0 {
				time.Sleep(d)
			}
		}
		still := b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Lease = lease
			c.Producer.(*producer).gate = func() {
				if calls.Add(1) >= 11 { // at the sixth wave of all, before it is on its way
					stands()
				}
			}
			f.before = func(_ context.Context, call string) error {
				if calls.Load() >= 11 {
					stands()
				}
				return nil
			}
		})
		b.sleep(time.Millisecond)
		other := b.start(func(c *outbox.RelayConfig, _ *faults) { c.Lease = lease })
		b.drained(2*lease - time.Second)
		// The first batch of the relay that paused had two rows of the shard, and these are settled.
		require.Len(t, other.producer.rounds(), 18, "it had to begin at the beginning")
		b.sleep(2 * lease)
		require.Len(t, still.producer.rounds(), 6, "it went on with what is not its own any longer")
		require.Equal(t, ids("a", 20), b.broker.firsts("t", "a"))
		require.Equal(t, 1, b.log.count("taken over by another relay"))
		require.Equal(t, 2, b.broker.times("a05"))
		require.Equal(t, 1, b.broker.times("a06"))
	})
}

// A relay gives a shard up as soon as the store reports that another relay took it (O-13).
func TestRelay_LostShard_O13(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seized := false
		b.start(func(c *outbox.RelayConfig, _ *faults) {
			c.Producer.(*producer).gate = func() {
				if !seized { // while it is published
					b.table.seize("somebody", 4*time.Second)
				}
				seized = true
			}
		})
		b.sleep(time.Second)
		b.table.add("t", "a", "a1")
		b.sleep(3 * time.Second)
		require.Equal(t, 1, b.broker.times("a1"))
		require.Equal(t, 1, b.table.count(waiting), "it is not ours to record")
		require.Equal(t, 1, b.log.count("taken over by another relay"))
		b.drained(3 * outbox.DefaultLease)
		require.Equal(t, 2, b.broker.times("a1"))
	})
}

// A shard that came back under another epoch is fetched anew: another relay has published the rows
// of the old fetch (O-13).
func TestRelay_EpochChanged_O13(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.add("t", "a", "a1")
		b.table.add("t", "a", "a2")
		handed := false
		b.start(func(c *outbox.RelayConfig, _ *faults) {
			c.Producer.(*producer).gate = func() {
				if !handed { // while a1 is published
					handed = true
					b.table.workedBySomebodyElse()
					time.Sleep(outbox.DefaultLease / 2) // the relay renews, and learns the new epoch
				}
			}
		})
		b.drained(3 * outbox.DefaultLease)
		b.sleep(outbox.DefaultLease)
		require.Equal(t, 2, b.broker.times("a1"), "it was under way")
		require.Equal(t, 1, b.broker.times("a2"), "published under a lease that had changed hands")
	})
}

// workedBySomebodyElse has another relay take all shards, publish all rows, and give the shards
// back.
func (t *table) workedBySomebodyElse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.owners {
		t.owners[i].epoch += 2
	}
	for i := range t.shards {
		for _, r := range t.shards[i] {
			m := r.Message()
			t.broker.write(m)
			t.broker.ack(m)
			t.set(r, sent)
		}
	}
}

// A new relay gets its share while others work, and no event is published twice.
func TestRelay_Newcomer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := time.Now().Add(time.Minute)
		b.start(nil)
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; time.Now().Before(stop); i++ {
				b.table.add("t", fmt.Sprint(i%100), fmt.Sprintf("%06d", i))
				time.Sleep(5 * time.Millisecond)
			}
		})
		b.sleep(outbox.DefaultLease)
		b.start(nil)
		b.sleep(outbox.DefaultLease)
		require.Len(t, b.table.owned(), 2)
		for _, n := range b.table.owned() {
			require.Equal(t, outbox.Shards/2, n)
		}
		writer.Wait()
		b.drained(time.Second)
		for id := range b.table.states() {
			require.Equal(t, 1, b.broker.times(id))
		}
		require.Zero(t, b.log.count("WARN"))
	})
}

// A request to share out the shards that got no answer may have given shards up. No row is
// published before another request is answered.
func TestRelay_ShareUnanswered(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		lost, c := atomic.Bool{}, &clock{}
		b.start(func(cfg *outbox.RelayConfig, f *faults) {
			cfg.Producer.(*producer).gate = c.tick
			f.after = func(_ context.Context, call string) error {
				if lost.Load() && call == "share" {
					b.table.add("t", "a", fmt.Sprint("a", time.Now().UnixNano()))
					return errDatabase
				}
				return nil
			}
			f.before = func(_ context.Context, call string) error {
				if lost.Load() && call == "renew" {
					return errDatabase
				}
				return nil
			}
		})
		b.sleep(time.Second)
		lost.Store(true)
		b.sleep(2 * outbox.DefaultLease / 3)
		require.Empty(t, c.all())
		lost.Store(false)
		b.drained(10 * time.Second)
	})
}

// At its end a relay waits for the messages that the producer has and records the results. It
// starts no other work, and its share is free at once.
func TestRelay_Stop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(*idem.Message) fate { return fate{wait: 3 * time.Second, written: true} }
		b.table.add("t", "a", "a1")
		b.table.add("t", "a", "a2")
		settleFails := true
		r := b.start(func(_ *outbox.RelayConfig, f *faults) {
			f.before = func(_ context.Context, call string) error {
				if call == "settle" && settleFails {
					settleFails = false
					return errDatabase
				}
				return nil
			}
		})
		b.sleep(time.Second)
		require.NoError(t, r.Ready())
		began := time.Now()
		r.stop()
		require.Less(t, time.Since(began), 2200*time.Millisecond)
		require.Equal(t, []string{"a1"}, b.broker.all("t", "a"))
		require.Equal(t, sent, b.table.states()["a1"])
		require.Empty(t, b.table.owned())
		require.EqualError(t, r.Ready(), "outbox: the relay does not run")
		require.ErrorContains(t, r.Run(t.Context()), "was called before")
	})
}

// Without an answer of the producer or the database, the end is delayed for a bounded time.
func TestRelay_Stop_Bounded(t *testing.T) {
	for _, hangs := range []string{"producer", "database"} {
		for _, lease := range []time.Duration{2 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(hangs, lease), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					b.fate = func(*idem.Message) fate { return fate{wait: time.Hour, written: true} }
					if hangs == "database" {
						b.fate = nil
					}
					b.table.add("t", "a", "a1")
					r := b.start(func(c *outbox.RelayConfig, f *faults) {
						c.Lease = lease
						f.before = func(ctx context.Context, call string) error {
							if hangs == "database" && (call == "settle" || call == "leave") {
								<-ctx.Done()
								return ctx.Err()
							}
							return nil
						}
					})
					b.sleep(time.Second)
					began := time.Now()
					r.stop()
					grace := min(10*time.Second, lease)
					if hangs == "database" {
						grace += 6 * time.Second
						require.Equal(t, 1, b.log.count("free when its lease is over"))
					}
					require.LessOrEqual(t, time.Since(began), grace+time.Millisecond)
					require.Equal(t, waiting, b.table.states()["a1"])
					require.Zero(t, b.log.count("does not take events"), "it is we who stopped")
				})
			})
		}
	}
}

type panics struct{}

func (panics) ObserveRound(context.Context, outbox.Round) { panic(errDatabase) }

// A panic of an observer reaches the caller of Run, after the share was given up and all goroutines
// have ended.
func TestRelay_ObserverPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.add("t", "a", "a1")
		p := newProducer(b.broker, nil)
		r, err := outbox.NewRelay(outbox.RelayConfig{
			Store: &waker{&faults{Store: b.table, held: p.held}, func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }}, Wake: true,
			Producer: p, Observers: []outbox.Observer{panics{}},
		})
		require.NoError(t, err)
		require.PanicsWithError(t, errDatabase.Error(), func() { _ = r.Run(t.Context()) })
		require.Empty(t, b.table.owned())
		require.Error(t, r.Ready())
		require.Equal(t, 1, b.table.count(sent))
		p.late.Wait()
	})
}

// If a producer returns too few results, the rest counts as not acknowledged (O-08).
func TestRelay_MissingResults_O08(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.add("t", "a", "a1")
		b.table.add("t", "b", "b1")
		r := b.start(func(c *outbox.RelayConfig, _ *faults) { c.Producer = short{c.Producer.(*producer)} })
		b.sleep(time.Second)
		require.Equal(t, 1, b.table.count(sent))
		require.Equal(t, 1, b.table.count(waiting))
		require.NoError(t, r.Ready())
	})
}

type short struct{ *producer }

func (s short) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	return s.producer.ProduceEach(ctx, msgs[:1])[:len(msgs)/2]
}

func TestNewRelay_SaysAllThatIsWrong(t *testing.T) {
	_, err := outbox.NewRelay(outbox.RelayConfig{
		Interval: -1, Batch: 10_001, BatchBytes: -1, Lease: time.Millisecond, MaxAttempts: -1, WhenParked: 2, Keep: -1,
		Observers: []outbox.Observer{nil, "nothing"},
	})
	for _, word := range []string{"Store", "Producer", "Interval", "Batch", "BatchBytes", "Lease", "MaxAttempts", "WhenParked(2)", "Keep",
		"<nil> implements none", "string implements none"} {
		require.ErrorContains(t, err, word)
	}
	_, err = outbox.NewRelay(outbox.RelayConfig{Store: newTable(nil), Producer: newProducer(nil, nil), Wake: true})
	require.ErrorContains(t, err, "does not implement Waker")
	_, err = outbox.NewRelay(outbox.RelayConfig{Store: newTable(nil), Producer: newProducer(nil, nil)})
	require.NoError(t, errors.Join(err))
}

// A relay whose share became empty is ready: no call of the store and no answer of the broker is
// missing any more.
func TestRelay_ReadyWithoutShards(t *testing.T) {
	for _, fails := range []string{"fetch", "broker"} {
		t.Run(fails, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seized := false
				seize := func() {
					seized = true
					b.table.seize("another", time.Hour)
				}
				b.fate = func(*idem.Message) fate {
					seize()
					return fate{err: errBroker}
				}
				if fails == "broker" {
					b.table.add("t", "a", "a1")
				}
				r := b.start(func(_ *outbox.RelayConfig, f *faults) {
					f.before = func(_ context.Context, call string) error {
						if fails != "fetch" || call != "fetch" {
							return nil
						}
						if !seized {
							seize()
						}
						return errDatabase
					}
				})
				b.sleep(2 * outbox.DefaultLease)
				require.True(t, seized)
				require.NoError(t, r.Ready())
				if fails == "fetch" {
					require.Equal(t, 1, b.log.count("outbox can be read and written again"))
				}
			})
		})
	}
}
