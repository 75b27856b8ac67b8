package idem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// nameless is a record without an event ID.
func nameless(offset int64) *idem.Message {
	m := message("", offset)
	m.Value = []byte(`{"type":"paid","amount":7}`)
	return m
}

// counts keeps the numbers of settled, skipped and unprotected deliveries that observers get.
type counts struct {
	settled     map[string]int
	skipped     []observe.SkippedEvent
	unprotected []observe.UnprotectedEvent
}

func (c *counts) ObserveSettled(_ context.Context, e observe.SettledEvent) {
	for i, n := range e.Counts {
		if n > 0 {
			c.settled[observe.Settlement(i).String()] += n
		}
	}
}
func (c *counts) ObserveSkipped(_ context.Context, e observe.SkippedEvent) {
	c.skipped = append(c.skipped, e)
}
func (c *counts) ObserveUnprotected(_ context.Context, e observe.UnprotectedEvent) {
	c.unprotected = append(c.unprotected, e)
}

// counted adds an observer of counts.
func (b *bench) counted() *counts {
	c := &counts{settled: map[string]int{}}
	b.cfg.Observers = append(b.cfg.Observers, c)
	return c
}

func TestNoID_Policies(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []idem.Option
		journal []string
		settled map[string]int
	}{
		"default":     {nil, []string{"dead letter: no-event-id"}, map[string]int{"dead_letter": 1, "handled": 1}},
		"dead letter": {[]idem.Option{idem.WhenNoID(idem.DeadLetterNoID)}, []string{"dead letter: no-event-id"}, map[string]int{"dead_letter": 1, "handled": 1}},
		"skip":        {[]idem.Option{idem.WhenNoID(idem.SkipNoID)}, nil, map[string]int{"skipped": 1, "handled": 1}},
		"run":         {[]idem.Option{idem.WhenNoID(idem.RunNoID)}, []string{"run 1"}, map[string]int{"unprotected": 1, "handled": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seen := b.counted()
				b.on(succeed, c.opts...)
				_, err := b.start().HandleBatch(t.Context(), []*idem.Message{nameless(0), message("e1", 1)})
				require.NoError(t, err)
				require.Equal(t, append(c.journal, "claim: fresh", "run 1", "complete: done"), b.all())
				require.Equal(t, c.settled, seen.settled)
				require.Len(t, seen.skipped, c.settled["skipped"])
				require.Len(t, seen.unprotected, c.settled["unprotected"])
				for _, s := range seen.skipped {
					require.True(t, s.NoID)
					require.Equal(t, "paid", s.Type)
				}
				for _, u := range seen.unprotected {
					require.Equal(t, observe.NoEventID, u.Reason)
					require.Equal(t, dedup.Key{Scope: "g", Type: "paid"}, u.Key)
				}
				require.Equal(t, c.settled["dead_letter"] == 0, strings.Contains(b.log.String(), "record has no event ID"))
			})
		})
	}
}

// The log has one line a minute, not one for each record.
func TestNoID_IsLoggedOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.WhenNoID(idem.SkipNoID))
		p := b.start()
		for i := range int64(20) {
			require.NoError(t, p.Handle(t.Context(), nameless(i)))
		}
		require.Equal(t, 1, strings.Count(b.log.String(), "record has no event ID, skipping it"))
	})
}

// An outside API recognizes a redelivery of a record, and does not take two records for one.
func TestNoID_IdempotencyKeyIsThatOfTheRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var keys []string
		b.on(func(ctx context.Context, e idem.Event[payload]) error {
			require.Empty(t, e.ID)
			require.NoError(t, e.Identity().Validate(), "emitted events need a valid parent")
			parent, _ := dedup.ParentFrom(ctx)
			require.Equal(t, e.Identity(), parent)
			keys = append(keys, e.IdempotencyKey())
			return nil
		}, idem.WhenNoID(idem.RunNoID))
		p := b.start()
		for _, offset := range []int64{1, 2, 1} {
			require.NoError(t, p.Handle(t.Context(), nameless(offset)))
		}
		require.NotEqual(t, keys[0], keys[1])
		require.Equal(t, keys[0], keys[2])
		require.Zero(t, b.store.claims)
	})
}

func TestNoID_RunRetriesAndGivesUp(t *testing.T) {
	for name, register := range map[string]func(*bench, error, ...idem.Option){
		"On": func(b *bench, err error, o ...idem.Option) { b.on(failing(9, err), o...) },
		"OnBatch": func(b *bench, err error, o ...idem.Option) {
			shapes["OnBatch"](b, func(context.Context) error { b.add("run 1"); return err }, o...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seen := b.counted()
				register(b, errBoom, idem.WhenNoID(idem.RunNoID), idem.Retry(idem.RetryPolicy{MaxAttempts: 3}))
				require.NoError(t, b.start().Handle(t.Context(), nameless(0)))
				require.Len(t, b.sent.deadLetters(), 1)
				l, err := deadletter.Parse(b.sent.deadLetters()[0])
				require.NoError(t, err)
				require.Equal(t, idem.ClassFailed, l.Class)
				require.Equal(t, 3, l.Attempts)
				require.Equal(t, dedup.Key{}, l.Key, "no store knows the event")
				require.Equal(t, "paid", l.Type)
				require.Zero(t, b.store.claims)
				require.Equal(t, map[string]int{"dead_letter": 1}, seen.settled)
				require.Len(t, seen.unprotected, 1, "once, however often it fails")

				again, err := l.Redrive(dedup.Position{})
				require.NoError(t, err)
				require.NoError(t, b.p.Handle(t.Context(), again), "a replay runs without protection too")
				require.Len(t, seen.unprotected, 2)
			})
		})
	}
}

// An outage of a dependency waits, without an attempt.
func TestNoID_RunWaitsForADependency(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(20, idem.Unavailable(errBoom)), idem.WhenNoID(idem.RunNoID))
		require.NoError(t, b.start().Handle(t.Context(), nameless(0)))
		require.Equal(t, 21, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestNoID_RunInATransaction(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		seen := b.counted()
		b.cfg.Store = &shadowStore{txStore: s}
		b.onTx(failingTx(1, errBoom), idem.WhenNoID(idem.RunNoID))
		require.NoError(t, b.start().Handle(t.Context(), nameless(0)))
		require.Equal(t, 1, s.effects)
		require.Empty(t, s.state, "no mark")
		require.Equal(t, map[string]int{"unprotected": 1}, seen.settled)
	})
}

// Limits hold without the store too.
func TestNoID_RunWithinLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 0
		b.on(succeed, idem.WhenNoID(idem.RunNoID), idem.RateLimit(1, 3600e9))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), nameless(0)))
		require.ErrorIs(t, p.Handle(t.Context(), nameless(1)), idem.ErrBusy)
	})
}

// The policy is for a missing ID only: each of these is a fault or an outage.
func TestNoID_OtherFaultsStayDeadLetters(t *testing.T) {
	for name, c := range map[string]struct {
		m     *idem.Message
		opts  []idem.Option
		class idem.Class
	}{
		"invalid":    {&idem.Message{Value: []byte(`{}`), Headers: headers("event-id", "\xff", "event-type", "paid")}, nil, idem.ClassNoID},
		"two IDs":    {&idem.Message{Value: []byte(`{}`), Headers: headers("event-id", "1", "event-id", "2", "event-type", "paid")}, nil, idem.ClassAmbiguous},
		"not JSON":   {&idem.Message{Value: []byte(`no`), Headers: headers("event-type", "paid")}, nil, idem.ClassNotJSON},
		"no tenant":  {message("e1", 0), []idem.Option{idem.Tenant(idem.FromHeader("tenant"))}, idem.ClassNoID},
		"the data":   {&idem.Message{Value: []byte(`{"type":"paid","amount":"x"}`)}, nil, idem.ClassUndecodable},
		"the tenant": {nameless(0), []idem.Option{idem.Tenant(idem.FromHeader("tenant"))}, idem.ClassNoID},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(succeed, append(c.opts, idem.WhenNoID(idem.RunNoID))...)
				require.NoError(t, b.start().Handle(t.Context(), c.m))
				require.Equal(t, []string{"dead letter: " + string(c.class)}, b.all())
			})
		})
	}
}

func TestNoID_ExtractorThatIsUnavailableIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		find := times(3, idem.Unavailable(idem.ErrNotFound))
		b.on(succeed, idem.WhenNoID(idem.SkipNoID), idem.ID(idem.FromFunc("x/v1", func(*idem.Message) (string, error) { return "e1", find() })))
		require.NoError(t, b.start().Handle(t.Context(), nameless(0)))
		require.Equal(t, []string{"claim: fresh", "run 1", "complete: done"}, b.all())
	})
}

// Events without an ID and a Kafka key have no order among each other.
func TestNoID_OrderKey(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.WhenNoID(idem.RunNoID))
		m := nameless(0)
		m.Key = nil
		require.Empty(t, b.start().OrderKey(m))
	})
}

func TestNoID_Mistakes(t *testing.T) {
	run := idem.WhenNoID(idem.RunNoID)
	for name, c := range map[string]struct {
		opts []idem.Option
		want string
	}{
		"unknown":        {[]idem.Option{idem.WhenNoID(9)}, "WhenNoID: unknown policy 9"},
		"later attempts": {[]idem.Option{run, idem.RetryTopics(5e9)}, "choose Blocking"},
		"at most once":   {[]idem.Option{run, idem.WhenUncertain(idem.DeadLetterUncertain)}, "promises at most one run"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.on(succeed, c.opts...)
			_, err := idem.NewProcessor(b.router, b.cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("transaction", func(t *testing.T) {
		b := newBench(t)
		b.cfg.Store = newTxStore(b)
		b.onTx(failingTx(0, nil), run)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "needs a dedup.TxRunner")
	})
	t.Run("skipping needs nothing", func(t *testing.T) {
		b := newBench(t)
		b.cfg.Store = newTxStore(b)
		b.onTx(failingTx(0, nil), idem.WhenNoID(idem.SkipNoID), idem.RetryTopics(5e9))
		b.start()
		require.NoError(t, b.p.Close())
	})
}
