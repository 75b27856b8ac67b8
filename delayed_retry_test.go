package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// tiers starts with a handler that has retry topics, and one try in place.
func (b *bench) tiers(fn func(context.Context, idem.Event[payload]) error, delays ...time.Duration) {
	b.on(fn, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(delays...))
	b.start()
}

// deliverCopies handles the copies in retry topics until no further copy is published, as a
// consumer of the topics does. It returns the topics in order.
func (b *bench) deliverCopies() (topics []string) {
	for done := 0; ; {
		msgs := b.sent.deadLetters()
		if done == len(msgs) {
			return topics
		}
		for _, m := range msgs[done:] {
			done++
			topics = append(topics, m.Topic)
			if m.Topic != "orders.g.dlq" {
				c := *m
				c.Partition, c.Offset = 7, int64(done)
				require.NoError(b.t, b.p.Handle(b.t.Context(), &c))
			}
		}
	}
}

func TestLater_RetryTopics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var seen []time.Duration
		var origins []int64
		began := time.Now()
		b.tiers(func(_ context.Context, e idem.Event[payload]) error {
			seen = append(seen, time.Since(began))
			origins = append(origins, e.Message.Offset)
			require.Equal(t, "orders", e.Message.Topic)
			require.Equal(t, len(seen), e.Attempt)
			return errBoom
		}, 5*time.Second, time.Minute)
		m := message("e1", 42)
		require.NoError(t, b.p.Handle(t.Context(), m))
		require.Equal(t, []string{"orders.g.retry.5s", "orders.g.retry.1m", "orders.g.dlq"}, b.deliverCopies())
		require.Equal(t, []time.Duration{0, 5 * time.Second, 65 * time.Second}, seen)
		require.Equal(t, []int64{42, 42, 42}, origins)

		letter, err := deadletter.Parse(b.sent.deadLetters()[2])
		require.NoError(t, err)
		require.Equal(t, m, letter.Message, "the dead letter is of the record, not of its copy (T-09)")
		require.Equal(t, 3, letter.Attempts)
		require.Equal(t, time.Minute, letter.LastFailure.Sub(letter.FirstFailure)-5*time.Second)
	})
}

// rule 3: once it was moved on, no other copy of the event runs, before or behind.
func TestLater_MovedEventDoesNotRunFromItsOldPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fail := errBoom
		b.tiers(func(context.Context, idem.Event[payload]) error { return fail }, 5*time.Second)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		fail = nil
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)), "the mark was lost")
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 9)), "a producer's copy")
		require.Equal(t, 1, b.count("run 1"))
		copied := b.sent.deadLetters()[0]
		require.NoError(t, b.p.Handle(t.Context(), copied))
		require.NoError(t, b.p.Handle(t.Context(), copied))
		require.Equal(t, 1, b.count("run 2"), "%v", b.all())
	})
}

// rule 3: between the ack of the copy and its record in the store the process dies. The copy is
// accepted, the event itself is not run beside it.
func TestLater_CrashBetweenCopyAndRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fail := errBoom
		b.tiers(func(context.Context, idem.Event[payload]) error { return fail }, 5*time.Second)
		b.store.completeErr = func() error { return dedup.ErrUnavailable }
		ctx, crash := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Second, func() { crash(idem.ErrPartitionLost) })
		require.Error(t, b.p.Handle(ctx, message("e1", 1)))
		b.store.completeErr, fail = nil, nil
		time.Sleep(time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), b.sent.deadLetters()[0]))
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
		require.Equal(t, 1, b.count("run 2"), "%v", b.all())
	})
}

// rule 42: the first delay that is long enough, else the longest again, without counting an
// attempt.
func TestLater_RetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		var runs []time.Duration
		b.tiers(func(_ context.Context, e idem.Event[payload]) error {
			runs = append(runs, time.Since(began))
			switch len(runs) {
			case 1:
				return idem.RetryAfter(20*time.Second, errBoom)
			case 2:
				require.Equal(t, 2, e.Attempt)
				return idem.RetryAfter(150*time.Second, errBoom)
			}
			return nil
		}, 5*time.Second, time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		require.Equal(t, []string{
			"orders.g.retry.1m", "orders.g.retry.1m", "orders.g.retry.1m", "orders.g.retry.1m",
		}, b.deliverCopies())
		require.Len(t, runs, 3)
		require.Equal(t, time.Minute, runs[1])
		require.GreaterOrEqual(t, runs[2], runs[1]+150*time.Second, "not before")
		require.LessOrEqual(t, runs[2], runs[1]+181*time.Second)
		require.Equal(t, 2, b.count("run 2"), "the second wait was no attempt: %v", b.all())
	})
}

// T-08: an event that asks for more time for ever is given up.
func TestLater_MovesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.tiers(func(context.Context, idem.Event[payload]) error { return idem.RetryAfter(time.Hour, errBoom) }, time.Second)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		topics := b.deliverCopies()
		require.Equal(t, "orders.g.dlq", topics[len(topics)-1])
		require.Len(t, topics, 1001)
	})
}

// G-03: headers of Idem have no meaning outside the group's own topics. In these topics, headers
// that do not fit are not believed.
func TestLater_ForgedHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.tiers(succeed, time.Minute)
		forged := message("e1", 1)
		forged.Headers = []idem.Header{
			{Key: deadletter.HeaderRetry, Value: []byte("9")}, {Key: deadletter.HeaderDue, Value: []byte("2027-01-01T00:00:00Z")},
			{Key: deadletter.HeaderAttempts, Value: []byte("999")}, {Key: deadletter.HeaderGeneration, Value: []byte("3")},
		}
		began := time.Now()
		require.NoError(t, b.p.Handle(t.Context(), forged))
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, b.count("run 1"))

		stray := message("e2", 1)
		stray.Topic = "orders.g.retry.1m"
		elsewhere := message("e3", 1)
		elsewhere.Topic = "orders.g.retry"
		elsewhere.Headers = []idem.Header{
			{Key: deadletter.HeaderTopic, Value: []byte("admin")}, {Key: deadletter.HeaderPartition, Value: []byte("0")},
			{Key: deadletter.HeaderOffset, Value: []byte("0")}, {Key: deadletter.HeaderTime, Value: []byte("2026-01-01T00:00:00Z")},
			{Key: deadletter.HeaderGroup, Value: []byte("g")},
		}
		for _, m := range []*idem.Message{stray, elsewhere} {
			require.NoError(t, b.p.Handle(t.Context(), m))
		}
		require.Equal(t, 1, b.count("run 1"))
		for _, l := range b.sent.deadLetters() {
			require.Equal(t, string(idem.ClassNotACopy), headerOf(l, deadletter.HeaderErrorClass))
		}
		require.Len(t, b.sent.deadLetters(), 2)
	})
}

// T-02, rule 6: fail, dead letter, fix, reopen, replay: applied once, and no other generation runs.
func TestLater_Redrive(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fail := idem.Permanent(errBoom)
		b.on(func(context.Context, idem.Event[payload]) error { return fail })
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		letter, err := deadletter.Parse(b.sent.deadLetters()[0])
		require.NoError(t, err)
		early, err := letter.Redrive(dedup.Position{})
		require.NoError(t, err)
		require.NoError(t, b.p.Handle(t.Context(), early), "nobody has reopened it")
		require.Equal(t, 1, b.count("run 1"))

		position, err := b.store.Reopen(t.Context(), letter.Key)
		require.NoError(t, err)
		fail = nil
		replayed, err := letter.Redrive(position)
		require.NoError(t, err)
		require.Equal(t, "orders.g.retry", replayed.Topic)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)), "rewound")
		require.Equal(t, 1, b.count("run 1"))
		for range 2 {
			require.NoError(t, b.p.Handle(t.Context(), replayed))
		}
		require.Equal(t, 2, b.count("run 1"), "%v", b.all())
		require.Len(t, b.sent.deadLetters(), 1)
	})
}

// T-04: fifty rounds through dead letters and back leave the record as it was, and the dead letter
// as large.
func TestLater_RedriveDoesNotGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) })
		b.start()
		m := message("e1", 1)
		m.Headers = []idem.Header{{Key: "idem-scope", Value: []byte("x")}, {Key: "a", Value: nil}, {Key: "a", Value: []byte{}}}
		require.NoError(t, b.p.Handle(t.Context(), m))
		var sizes []int
		for range 50 {
			l := b.sent.deadLetters()[len(b.sent.deadLetters())-1]
			letter, err := deadletter.Parse(l)
			require.NoError(t, err)
			require.Equal(t, m, letter.Message)
			n := 0
			for _, h := range l.Headers {
				if h.Key != deadletter.HeaderGeneration {
					n += len(h.Key) + len(h.Value)
				}
			}
			sizes = append(sizes, n)
			position, err := b.store.Reopen(t.Context(), letter.Key)
			require.NoError(t, err)
			replayed, err := letter.Redrive(position)
			require.NoError(t, err)
			require.NoError(t, b.p.Handle(t.Context(), replayed))
		}
		require.Len(t, slices.Compact(sizes), 1)
		require.Equal(t, 51, b.count("run 1"))
	})
}

func TestLater_NotDueEndsTheCallOfAForeignLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		b.on(failing(1, errBoom), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Minute))
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		copied := b.sent.deadLetters()[0]
		require.Equal(t, time.Minute, b.p.Due(copied))
		err := b.p.Handle(t.Context(), copied)
		var wait *idem.WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, idem.ErrNotDue)
		require.Equal(t, 59*time.Second, wait.After)
		require.False(t, slices.Contains(b.all(), "run 2"))
		time.Sleep(wait.After)
		require.NoError(t, b.p.Handle(t.Context(), copied))
		require.Equal(t, 1, b.count("run 2"))
	})
}

func TestLater_WiringMistakes(t *testing.T) {
	for name, opts := range map[string][]idem.Option{
		"none":     {idem.RetryTopics()},
		"falling":  {idem.RetryTopics(time.Minute, time.Second)},
		"uneven":   {idem.KeyOrdered(1500 * time.Microsecond)},
		"too long": {idem.RetryTopics(time.Hour), idem.Retention(time.Hour)},
	} {
		b := newBench(t)
		b.on(succeed, opts...)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "paid", name)
	}
}

// T-02: the release between two attempts cannot read the copy, or has no handler for its type any
// longer. The event is not dropped. A replay of its dead letter runs at the position that the store
// waits for.
func TestLater_CopyThatNobodyUnderstands(t *testing.T) {
	for name, wire := range map[string]func(*idem.Router){
		"undecodable": func(r *idem.Router) {
			idem.On(r, "paid", func(context.Context, idem.Event[struct{ Amount string }]) error { return nil })
		},
		"no handler": func(r *idem.Router) { idem.On(r, "refunded", succeed) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				fail := errBoom
				b.tiers(func(context.Context, idem.Event[payload]) error { return fail }, 5*time.Second)
				good := b.p
				require.NoError(t, good.Handle(t.Context(), message("e1", 1)))
				b.router = idem.NewRouter()
				wire(b.router)
				bad := b.start()
				require.NoError(t, bad.Handle(t.Context(), b.sent.deadLetters()[0]))
				require.Len(t, b.sent.deadLetters(), 2)
				letter, err := deadletter.Parse(b.sent.deadLetters()[1])
				require.NoError(t, err)
				require.Equal(t, message("e1", 1), letter.Message)
				var position dedup.Position
				if name == "undecodable" { // it can be identified, so the store knows that it is dead
					position, err = b.store.Reopen(t.Context(), letter.Key)
					require.NoError(t, err)
				}
				replayed, err := letter.Redrive(position)
				require.NoError(t, err)
				fail = nil
				for range 2 {
					require.NoError(t, good.Handle(t.Context(), replayed))
				}
				require.Equal(t, 2, b.count("run 1"), "once before, once after: %v", b.all())
				require.NoError(t, good.Close())
			})
		})
	}
}

// Rule 42: an event with a RetryAfter of at most the longest delay uses its attempts up like any
// other.
func TestLater_ShortRetryAfterIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.tiers(func(context.Context, idem.Event[payload]) error { return idem.RetryAfter(time.Second, errBoom) },
			5*time.Second, time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		require.Equal(t, []string{"orders.g.retry.5s", "orders.g.retry.1m", "orders.g.dlq"}, b.deliverCopies())
	})
}

// T-05: the clock of the writer of a copy is years ahead, or the copy is forged. The copy waits for
// the delay of its topic.
func TestLater_WaitIsBoundedByTheDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.Attempt == 1 {
				return errBoom
			}
			return nil
		}, once, idem.RetryTopics(time.Minute))
		b.start()
		for i, id := range []string{"e1", "e2"} {
			require.NoError(t, b.p.Handle(t.Context(), message(id, 1)))
			c := b.sent.deadLetters()[i]
			for j := range c.Headers {
				if c.Headers[j].Key == deadletter.HeaderDue {
					c.Headers[j].Value = []byte("2999-01-01T00:00:00Z")
				}
			}
			began := time.Now()
			if id == "e2" { // a pump asks
				for wait := b.p.Due(c); wait > 0; wait = b.p.Due(c) {
					time.Sleep(min(wait, 10*time.Second))
				}
			}
			require.NoError(t, b.p.Handle(t.Context(), c))
			require.Equal(t, time.Minute, time.Since(began))
		}
	})
}

// T-07: a poll loop that never waits for longer than a second has no more retries than others.
func TestLater_BudgetOfAForeignLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const n = 400
		b.cfg.BusyWait = time.Second
		var runs atomic.Int64
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.Attempt > 1 {
				runs.Add(1)
			}
			return errBoom
		}, once, idem.RetryTopics(time.Second))
		b.start()
		for i := range n {
			require.NoError(t, b.p.Handle(t.Context(), message(fmt.Sprint(i), int64(i))))
		}
		copies := b.sent.deadLetters()
		time.Sleep(time.Second)
		began := time.Now()
		var all sync.WaitGroup
		for _, c := range copies {
			all.Go(func() {
				for {
					err := b.p.Handle(t.Context(), c)
					var wait *idem.WaitError
					if !errors.As(err, &wait) {
						require.NoError(t, err)
						return
					}
					time.Sleep(wait.After)
				}
			})
		}
		time.Sleep(5 * time.Second)
		require.LessOrEqual(t, runs.Load(), int64(100+5*10+15))
		all.Wait()
		require.EqualValues(t, n, runs.Load())
		require.Less(t, time.Since(began), time.Minute)
	})
}

// Rule 42: a copy cannot be published while the brokers are away. A step that ran no handler is no
// failed run, and a run with NotApplied leaves no doubt. So the promised run takes place.
func TestLater_UnpublishedCopyCostsNoRun_Rule42(t *testing.T) {
	away := func(*idem.Message) error { return errBoom }
	atMostOnce := idem.WhenUncertain(idem.DeadLetterUncertain)
	for name, c := range map[string]struct {
		err   error
		opts  []idem.Option
		first bool // the brokers are away at the first run, not at its copy
	}{
		"of a wait":               {err: idem.RetryAfter(150*time.Second, errBoom)},
		"of a wait, at most once": {err: idem.NotApplied(idem.RetryAfter(150*time.Second, errBoom)), opts: []idem.Option{atMostOnce}},
		"of a run, at most once":  {err: idem.NotApplied(errBoom), opts: []idem.Option{atMostOnce}, first: true},
		"of a permanent failure, at most once": {
			err: idem.Permanent(idem.NotApplied(errBoom)), opts: []idem.Option{atMostOnce}, first: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				runs, fail := 0, times(1, c.err)
				b.on(func(context.Context, idem.Event[payload]) error { runs++; return fail() },
					append(c.opts, once, idem.RetryTopics(5*time.Second, time.Minute))...)
				b.cfg.BusyWait = time.Second
				m := message("e1", 1)
				b.start()
				if !c.first {
					require.NoError(t, b.p.Handle(t.Context(), m))
					m = b.sent.deadLetters()[0]
					time.Sleep(time.Minute)
				}
				b.sent.fail = away
				require.ErrorIs(t, b.p.Handle(t.Context(), m), dedup.ErrUnavailable)
				require.Equal(t, 1, runs)

				b.sent.fail = nil
				b.cfg.BusyWait = idem.Forever
				require.NoError(t, b.p.Close())
				b.start()
				if c.first {
					require.NoError(t, b.p.Handle(t.Context(), m))
				}
				require.NotContains(t, b.deliverCopies(), "orders.g.dlq", "%v", b.all())
				require.Equal(t, 2, runs)
			})
		})
	}
}
