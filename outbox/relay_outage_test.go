package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// neverAsked is a hook that notes if rows are fetched while something is under way.
func (b *bench) oneBatch(r *running) func(context.Context, string) error {
	return func(_ context.Context, call string) error {
		if call == "fetch" && r.producer.held() > 0 {
			b.table.problem("O-15: fetched while the fate of a batch is not known")
		}
		return nil
	}
}

// A broker that is away for 5 minutes: nobody is parked, it is asked now and then, told once, and afterwards all is published (O-15).
func TestRelay_BrokerAway_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		away := true
		var mu sync.Mutex
		b.fate = func(*idem.Message) fate {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return fate{wait: 10 * time.Millisecond, err: errBroker}
			}
			return acknowledged
		}
		for i := range 5000 {
			b.table.add("t", fmt.Sprint(i%2000), fmt.Sprintf("%d-%02d", i%2000, i/2000))
		}
		r := b.start(nil)
		r.store.before = b.oneBatch(r)
		time.Sleep(time.Second)
		require.NoError(t, r.Ready(), "it may come back")
		time.Sleep(5*time.Minute - time.Second)
		require.ErrorIs(t, r.Ready(), errBroker)
		require.Less(t, len(r.producer.rounds()), 100, "it is asked every 5 s")
		for _, ids := range r.producer.rounds() {
			require.LessOrEqual(t, len(ids), outbox.DefaultBatch)
		}
		require.Equal(t, 5000, b.table.count(waiting))
		mu.Lock()
		away = false
		mu.Unlock()
		b.drained(15 * time.Second)
		require.Equal(t, 5000, b.table.count(sent))
		require.NoError(t, r.Ready())
		require.Equal(t, 1, b.log.count("broker does not take events"))
		require.Equal(t, 1, b.log.count("broker takes the events of the outbox again"))
		for a := range 2000 {
			require.IsIncreasing(t, b.broker.firsts("t", fmt.Sprint(a)))
		}
	})
}

// A broker that does not answer for 5 minutes: what it was given is waited for, nothing is given to it again, nothing else is fetched, and
// the share is kept (O-15).
func TestRelay_BrokerHangs_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		back := time.Now().Add(5 * time.Minute)
		b.fate = func(*idem.Message) fate { return fate{wait: max(time.Millisecond, time.Until(back)), written: true} }
		for i := range 150 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		r := b.start(nil)
		r.store.before = b.oneBatch(r)
		time.Sleep(outbox.DefaultLease / 2)
		require.NoError(t, r.Ready())
		time.Sleep(4 * time.Minute)
		require.ErrorContains(t, r.Ready(), "the broker has taken nothing for 4m")
		require.Len(t, r.producer.rounds(), 1)
		require.Equal(t, 1, r.store.count("fetch"))
		for _, n := range b.table.owned() {
			require.Equal(t, outbox.Shards, n)
		}
		b.drained(2 * time.Minute)
		for i := range 150 {
			require.Equal(t, 1, b.broker.times(fmt.Sprint("e", i)))
		}
		require.NoError(t, r.Ready())
	})
}

// A part of the broker is away: its aggregates wait, others go on without a pause, and it is told once.
func TestRelay_PartOfBrokerAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		b.fate = func(m *idem.Message) fate {
			if m.Topic == "away" && time.Since(began) < time.Minute {
				return fate{wait: time.Millisecond, err: errBroker}
			}
			return acknowledged
		}
		for i := range 500 {
			b.table.add("away", fmt.Sprint(i), fmt.Sprint("away", i))
		}
		for i := range 2000 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		r := b.start(nil)
		b.within(10*time.Second, func() bool { return b.table.count(sent) == 2000 }, "others go on")
		b.table.add("t", "new", "new")
		b.within(5*time.Second, func() bool { return b.broker.times("new") == 1 }, "others go on")
		require.NoError(t, r.Ready())
		b.drained(70 * time.Second)
		require.Zero(t, b.table.count(parked))
		require.Equal(t, 1, b.log.count("broker does not take events"))
		require.Equal(t, 1, b.log.count("broker takes the events of the outbox again"))
	})
}

// skips watches how much a relay remembers of failures.
type skips struct {
	outbox.Store
	most, limit int
}

func (s *skips) Fetch(ctx context.Context, f outbox.Fetch) ([]outbox.Row, error) {
	s.most = max(s.most, len(f.Skip)+len(f.SkipRows))
	s.limit = max(s.limit, f.Limit)
	return s.Store.Fetch(ctx, f)
}

// A topic that is missing, and 2,500 aggregates of it: what is remembered of them is bounded, and all are parked in the end (O-10, O-15).
func TestRelay_ManyFailures_Bounded_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(m *idem.Message) fate {
			if m.Topic == "missing" {
				return fate{err: idem.ErrNoTopic}
			}
			return acknowledged
		}
		for i := range 2500 {
			key := fmt.Sprint(i)
			if i%2 == 0 {
				key = ""
			}
			b.table.add("missing", key, fmt.Sprint("m", i))
		}
		b.table.add("t", "a", "behind all of them")
		watch := &skips{Store: b.table}
		b.start(func(_ *outbox.RelayConfig, f *faults) { f.Store = watch })
		b.drained(5 * time.Minute)
		require.Equal(t, 1000, watch.most)
		require.Equal(t, 2500, b.table.count(parked))
		require.Equal(t, 1, b.table.count(sent))
	})
}

// A database that is away is told once, and looked for every 5 s at most. Run goes on.
func TestRelay_DatabaseAway(t *testing.T) {
	for _, how := range []string{"errors", "hangs"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				began := time.Now()
				away := func() bool { d := time.Since(began); return d > time.Minute && d < 6*time.Minute }
				r := b.start(func(c *outbox.RelayConfig, f *faults) {
					c.Keep = time.Hour
					f.before = func(ctx context.Context, _ string) error {
						if !away() {
							return nil
						}
						if how == "hangs" {
							<-ctx.Done()
							return ctx.Err()
						}
						return errDatabase
					}
				})
				time.Sleep(59 * time.Second)
				require.NoError(t, r.Ready())
				time.Sleep(5 * time.Minute)
				require.Error(t, r.Ready())
				require.Less(t, r.store.count("fetch")+r.store.count("share"), 250)
				b.table.add("t", "a", "a1")
				b.drained(20 * time.Second)
				require.NoError(t, r.Ready())
				require.Equal(t, 1, b.log.count("cannot be read or written"), b.log)
				require.Equal(t, 1, b.log.count("can be read and written again"), b.log)
			})
		})
	}
}

// rounds is an observer.
type rounds struct{ seen []outbox.Round }

func (r *rounds) ObserveRound(_ context.Context, s outbox.Round) { r.seen = append(r.seen, s) }

func TestRelay_Rounds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(m *idem.Message) fate {
			switch idOf(m) {
			case "b1":
				return fate{err: idem.ErrTooLarge}
			case "c1":
				return fate{err: errBroker}
			}
			return acknowledged
		}
		for _, id := range []string{"a1", "a2", "b1", "b2", "c1", "c2"} {
			b.table.add("t", id[:1], id)
		}
		time.Sleep(3 * time.Second)
		told, storeFails := &rounds{}, false
		b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Observers = []outbox.Observer{told}
			f.before = func(_ context.Context, call string) error {
				if storeFails && call == "fetch" {
					return errDatabase
				}
				return nil
			}
		})
		time.Sleep(100 * time.Millisecond)
		require.Len(t, told.seen, 1, "empty rounds are not told")
		s := told.seen[0]
		require.Equal(t, []int{6, 2, 1, 1, 1, outbox.Shards}, []int{s.Rows, s.Sent, s.Failed, s.Parked, s.Blocked, s.Shards})
		require.ErrorIs(t, s.Err, errBroker)
		require.Equal(t, 2*time.Millisecond, s.Took)
		require.Equal(t, 3*time.Second+2*time.Millisecond, s.Delay)
		storeFails = true
		time.Sleep(time.Second)
		s = told.seen[len(told.seen)-1]
		require.ErrorIs(t, s.Err, errDatabase)
		require.Zero(t, s.Rows)
	})
}

// backlogs is an observer.
type backlogs struct{ seen []outbox.Backlog }

func (o *backlogs) ObserveBacklog(_ context.Context, b outbox.Backlog) { o.seen = append(o.seen, b) }

// The backlog is told every 10 s, and an event that waits for longer than a minute is logged once.
func TestRelay_Backlog(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		b.fate = func(m *idem.Message) fate {
			if time.Since(began) < 5*time.Minute && m.Topic == "away" {
				return fate{err: errBroker}
			}
			return acknowledged
		}
		b.table.add("away", "a", "a1")
		told := &backlogs{}
		b.start(func(c *outbox.RelayConfig, _ *faults) { c.Observers = []outbox.Observer{told} })
		time.Sleep(4 * time.Minute)
		require.InDelta(t, 24, len(told.seen), 6)
		require.EqualValues(t, 1, told.seen[len(told.seen)-1].Waiting)
		require.Greater(t, told.seen[len(told.seen)-1].Oldest, 3*time.Minute)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 1, b.log.count("events wait in the outbox for long"))
		require.Equal(t, 1, b.log.count("do not wait for long any more"))
	})
}

// What was sent stays for Keep, and is deleted in batches, every minute, without holding up what is to be published.
func TestRelay_Purge(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.kept = 5500
		r := b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Keep = time.Hour
			f.before = func(_ context.Context, call string) error {
				if call == "purge" {
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			}
		})
		for i := range 10 {
			time.Sleep(100 * time.Millisecond)
			b.table.add("t", "a", fmt.Sprint("a", i))
			b.drained(outbox.DefaultInterval + 150*time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, 6, r.store.count("purge"))
		time.Sleep(time.Minute)
		require.Equal(t, 7, r.store.count("purge"))
		require.Zero(t, b.table.kept, "what was sent was kept until then")
	})
	inBubble(t, func(t *testing.T, b *bench) {
		r := b.start(nil)
		b.table.add("t", "a", "a1")
		time.Sleep(5 * time.Minute)
		require.Zero(t, r.store.count("purge"))
		require.Zero(t, b.table.kept)
	})
}

// A purge or a look that fails is told once, and disturbs nothing.
func TestRelay_ChoresFail(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		r := b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Keep, c.Observers = time.Hour, []outbox.Observer{&backlogs{}}
			f.before = func(_ context.Context, call string) error {
				if (call == "purge" || call == "backlog") && time.Since(began) < 5*time.Minute {
					return errors.New("permission denied")
				}
				return nil
			}
		})
		for i := range 400 {
			b.table.add("t", "a", fmt.Sprint("a", i))
			time.Sleep(time.Second)
			require.Zero(t, b.table.count(waiting))
			require.NoError(t, r.Ready())
		}
		require.Equal(t, 2, strings.Count(b.log.String(), "permission denied"))
		require.Equal(t, 1, b.log.count("can be seen again"))
		require.Equal(t, 1, b.log.count("are deleted from the outbox again"))
	})
}
