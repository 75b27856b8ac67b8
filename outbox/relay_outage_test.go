package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// During an outage of the broker for 5 minutes no row is parked. The relay retries with a backoff
// and logs the outage once. Afterwards all rows are published (O-15).
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
		b.sleep(time.Second)
		require.NoError(t, r.Ready(), "it may come back")
		b.sleep(5*time.Minute - time.Second)
		require.ErrorIs(t, r.Ready(), errBroker)
		require.Less(t, len(r.producer.rounds()), 150, "it is asked twice in 5 s")
		for _, ids := range r.producer.rounds() {
			require.LessOrEqual(t, len(ids), 100, "batches do not grow during an outage")
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

// While the broker does not answer for 5 minutes, the relay waits for the messages it has sent. The
// relay sends no message again, fetches no other rows, and keeps its share (O-15).
func TestRelay_BrokerHangs_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		back := time.Now().Add(5 * time.Minute)
		b.fate = func(*idem.Message) fate { return fate{wait: max(time.Millisecond, time.Until(back)), written: true} }
		for i := range 150 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		r := b.start(nil)
		b.sleep(outbox.DefaultLease / 2)
		require.NoError(t, r.Ready())
		b.sleep(4 * time.Minute)
		require.ErrorContains(t, r.Ready(), "the broker has taken nothing for 4m")
		require.Len(t, r.producer.rounds(), 1)
		require.Equal(t, 1, r.store.count("fetch"))
		require.Len(t, b.table.owned(), 1)
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

// During an outage of a part of the broker, the aggregates of that part wait, and others go on
// without a pause. The log has the outage once.
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

// The same with failures that take longer than their backoff: the rows behind are published too.
func TestRelay_PartOfBrokerAway_Slowly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		back := time.Now().Add(20 * time.Minute)
		b.fate = func(m *idem.Message) fate {
			if m.Topic == "away" && time.Now().Before(back) {
				return fate{wait: 10 * time.Second, err: errBroker}
			}
			return acknowledged
		}
		for i := range 500 {
			b.table.add("away", fmt.Sprint(i), fmt.Sprint("away", i))
		}
		for i := range 100 {
			b.table.add("t", fmt.Sprint(i), fmt.Sprint("e", i))
		}
		b.start(nil)
		b.within(5*time.Minute, func() bool { return b.table.count(sent) == 100 }, "others go on")
	})
}

// skips notes how many failures a relay remembers.
type skips struct {
	outbox.Store
	most, limit int
}

func (s *skips) Fetch(ctx context.Context, f outbox.Fetch) ([]outbox.Row, error) {
	s.most = max(s.most, len(f.Skip)+len(f.SkipRows))
	s.limit = max(s.limit, f.Limit)
	return s.Store.Fetch(ctx, f)
}

// With 2,500 aggregates of a missing topic, the number of remembered failures is bounded, and all
// rows are parked in the end (O-10, O-15).
func TestRelay_ManyFailures_Bounded_O15(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.fate = func(m *idem.Message) fate {
			if m.Topic == "missing" {
				return fate{err: idem.ErrNoTopic}
			}
			return acknowledged
		}
		for i := range 1200 {
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
		require.Equal(t, 1200, b.table.count(parked))
		require.Equal(t, 1, b.table.count(sent))
	})
}

// An aggregate that fails while the list of failures is full keeps its order: its second row waits
// for the first (O-09, O-15).
func TestRelay_FailureBeyondTheBound_O09(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mended atomic.Bool
		b.fate = func(m *idem.Message) fate {
			if m.Topic == "missing" || idOf(m) == "first" && !mended.Load() {
				return fate{err: idem.ErrNoTopic}
			}
			return acknowledged
		}
		for i := range 1000 {
			b.table.add("missing", fmt.Sprint(i), fmt.Sprint("m", i))
		}
		b.start(func(c *outbox.RelayConfig, _ *faults) { c.MaxAttempts = 1_000_000 })
		b.sleep(time.Minute)
		b.table.add("t", "a", "first")
		b.table.add("t", "a", "second")
		b.sleep(time.Minute)
		require.Empty(t, b.broker.all("t", "a"), "the second row went out before the first")
		mended.Store(true)
		b.within(5*time.Minute, func() bool { return b.table.count(sent) == 2 }, "both are sent")
		require.Equal(t, []string{"first", "second"}, b.broker.all("t", "a"))
		require.Equal(t, 1000, b.table.count(waiting))
	})
}

// An outage of the database is logged once. The relay retries after at most 5 s, and Run goes on.
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
				b.sleep(59 * time.Second)
				require.NoError(t, r.Ready())
				b.sleep(5 * time.Minute)
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
type rounds struct{ notes[outbox.Round] }

func (r *rounds) ObserveRound(_ context.Context, s outbox.Round) { r.add(s) }

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
		b.sleep(3 * time.Second)
		told, storeFails := &rounds{}, atomic.Bool{}
		b.start(func(c *outbox.RelayConfig, f *faults) {
			c.Observers = []outbox.Observer{told}
			f.before = func(_ context.Context, call string) error {
				if storeFails.Load() && call == "fetch" {
					return errDatabase
				}
				return nil
			}
		})
		b.sleep(100 * time.Millisecond)
		require.Len(t, told.all(), 1, "empty rounds are not told")
		s := told.all()[0]
		require.Equal(t, []int{6, 2, 1, 1, 1, outbox.Shards}, []int{s.Rows, s.Sent, s.Failed, s.Parked, s.Blocked, s.Shards})
		require.ErrorIs(t, s.Err, errBroker)
		require.Equal(t, 2*time.Millisecond, s.Took)
		require.Equal(t, 3*time.Second+2*time.Millisecond, s.Delay)
		storeFails.Store(true)
		b.sleep(time.Second)
		s = told.all()[len(told.all())-1]
		require.ErrorIs(t, s.Err, errDatabase)
		require.Zero(t, s.Rows)
	})
}

// backlogs is an observer.
type backlogs struct{ notes[outbox.Backlog] }

func (o *backlogs) ObserveBacklog(_ context.Context, b outbox.Backlog) { o.add(b) }

// Observers get the backlog every 10 s. An event that waits for longer than a minute is logged
// once.
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
		b.sleep(4 * time.Minute)
		seen := told.all()
		require.InDelta(t, 24, len(seen), 6)
		require.EqualValues(t, 1, seen[len(seen)-1].Waiting)
		require.Greater(t, seen[len(seen)-1].Oldest, 3*time.Minute)
		b.sleep(2 * time.Minute)
		require.Equal(t, 1, b.log.count("events wait in the outbox for long"))
		require.Equal(t, 1, b.log.count("do not wait for long any more"))
	})
}

// Sent rows stay for Keep. They are deleted in batches every minute, and publishing does not wait.
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
			b.sleep(100 * time.Millisecond)
			b.table.add("t", "a", fmt.Sprint("a", i))
			b.drained(outbox.DefaultInterval + 150*time.Millisecond)
		}
		b.sleep(2 * time.Second)
		require.Equal(t, 6, r.store.count("purge"))
		b.sleep(time.Minute)
		require.Equal(t, 7, r.store.count("purge"))
		require.Zero(t, b.table.keeps(), "what was sent was kept until then")
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.kept = 2500 // by an earlier relay
		r := b.start(nil)
		b.table.add("t", "a", "a1")
		b.sleep(5 * time.Minute)
		require.Less(t, r.store.count("purge"), 10)
		require.Zero(t, b.table.keeps())
	})
}

// A failure to purge or to count the backlog is logged once, and publishing goes on.
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
			b.sleep(time.Second)
			require.Zero(t, b.table.count(waiting))
			require.NoError(t, r.Ready())
		}
		require.Equal(t, 2, strings.Count(b.log.String(), "permission denied"))
		require.Equal(t, 1, b.log.count("backlog of the outbox can be read again"))
		require.Equal(t, 1, b.log.count("are deleted from the outbox again"))
	})
}
