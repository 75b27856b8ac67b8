package idem_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// byAmount compares copies by their amount.
var byAmount = idem.Fingerprint(bytes.Repeat([]byte("s"), 16), "amount")

// paying is a message with another amount.
func paying(id string, offset int64, amount int) *idem.Message {
	m := message(id, offset)
	m.Value = fmt.Appendf(nil, `{"event_id":%q,"type":"paid","amount":%d}`, id, amount)
	return m
}

// conflicts keeps the events of a ConflictObserver.
type conflicts []observe.ConflictEvent

func (c *conflicts) ObserveConflict(_ context.Context, e observe.ConflictEvent) { *c = append(*c, e) }

// held is a claim of another process on the event, with another amount.
func (b *bench) held(lease time.Duration, id string) dedup.Claim {
	b.t.Helper()
	r := dedup.Request{
		Key: dedup.Key{Scope: "g", Type: "paid", ID: id}, Fingerprint: dedup.Fingerprint(bytes.Repeat([]byte{1}, 16)), Retention: time.Hour,
		Origin: dedup.Origin{Topic: "orders", Partition: 2, Offset: 99, Time: time.Unix(1, 0)},
	}
	var a [1]dedup.Answer
	t := dedup.NewToken()
	require.NoError(b.t, b.store.Store.Claim(b.t.Context(), t, lease, []dedup.Request{r}, a[:]))
	require.Equal(b.t, dedup.Fresh, a[0].Verdict)
	return r.Held(t, a[0])
}

// Without any configuration values are compared by a checksum. Two events with one ID are reported.
func TestConflict_ByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		opts []idem.Option
		want int // conflicts
	}{
		"default": {nil, 1},
		"fields":  {[]idem.Option{idem.Fingerprint(bytes.Repeat([]byte("s"), 16), "type")}, 0},
		"off":     {[]idem.Option{idem.NoContentCheck()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				var told conflicts
				w := &watcher{}
				b.cfg.Observers = []observe.Observer{&told, w}
				b.on(succeed, c.opts...)
				b.start()
				require.NoError(t, b.p.Handle(t.Context(), paying("e1", 1, 7)))
				require.NoError(t, b.p.Handle(t.Context(), paying("e1", 2, 7)))
				require.Empty(t, told, "an equal copy")
				require.NoError(t, b.p.Handle(t.Context(), paying("e1", 3, 8)))
				_, err := b.p.HandleBatch(t.Context(), []*idem.Message{paying("e2", 4, 7), paying("e2", 5, 7), paying("e2", 6, 8)})
				require.NoError(t, err)
				require.Len(t, told, 2*c.want)
				require.Len(t, w.duplicates, 4)
				require.Equal(t, c.want, strings.Count(b.log.String(), "event ID is known with another content, copy skipped"))
				require.Equal(t, 2, b.count("run 1"))
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// The end of a copy with another content depends on the state of the event. The copy is skipped
// only if the event is done (rules 6 d and 17).
func TestConflict_ByTheStateOfTheEvent(t *testing.T) {
	end := func(b *bench, c dedup.Completion) {
		c.Retention = time.Hour
		require.NoError(b.t, b.store.Store.Complete(b.t.Context(), []dedup.Completion{c}))
	}
	release := func(b *bench, c dedup.Claim, o dedup.Outcome) {
		require.NoError(b.t, b.store.Store.Release(b.t.Context(), []dedup.Release{{Claim: c, Outcome: o, Retention: time.Hour}}))
	}
	for name, c := range map[string]struct {
		given func(b *bench, c dedup.Claim)
		known dedup.Verdict // zero: skipped
		says  string
	}{
		"done":        {func(b *bench, c dedup.Claim) { end(b, dedup.Completion{Claim: c}) }, 0, ""},
		"dead":        {func(b *bench, c dedup.Claim) { end(b, dedup.Completion{Claim: c, Dead: "poison"}) }, dedup.Dead, "was given up: poison"},
		"discarded":   {func(b *bench, c dedup.Claim) { end(b, dedup.Completion{Claim: c, Dead: dedup.ReasonDiscarded + "no"}) }, dedup.Dead, "was given up"},
		"later":       {func(b *bench, c dedup.Claim) { end(b, dedup.Completion{Claim: c, Retry: 1}) }, dedup.Rescheduled, "waits for a later attempt"},
		"between":     {func(b *bench, c dedup.Claim) { release(b, c, dedup.Failed) }, dedup.Fresh, "was tried and is not done"},
		"in doubt":    {func(b *bench, c dedup.Claim) { release(b, c, dedup.Unknown) }, dedup.Fresh, "was tried and is not done"},
		"holder died": {func(*bench, dedup.Claim) { time.Sleep(2 * time.Minute) }, dedup.Fresh, "was tried and is not done"},
		"busy, then done": {func(b *bench, c dedup.Claim) {
			time.AfterFunc(5*time.Second, func() { end(b, dedup.Completion{Claim: c}) })
		}, 0, ""},
		"busy, then dead": {func(b *bench, c dedup.Claim) {
			time.AfterFunc(5*time.Second, func() { end(b, dedup.Completion{Claim: c, Dead: "poison"}) })
		}, dedup.Dead, "was given up: poison"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				var told conflicts
				w := &watcher{}
				b.cfg.Observers = []observe.Observer{&told, w}
				b.on(succeed, byAmount)
				b.start()
				claim := b.held(time.Minute, "e1")
				c.given(b, claim)
				require.NoError(t, b.p.Handle(t.Context(), paying("e1", 7, 8)))
				require.Zero(t, b.count("run 1"))
				require.Len(t, told, 1)
				require.Equal(t, claim.First.Offset, told[0].First.Offset)
				if strings.HasPrefix(name, "busy") {
					require.Greater(t, b.count("claim: conflict"), 1, "it waits and asks again")
				}
				if c.known == 0 {
					require.Empty(t, b.sent.deadLetters())
					require.Equal(t, dedup.Done, told[0].Known)
					require.False(t, told[0].DeadLetter)
					require.Len(t, w.duplicates, 1)
					require.Contains(t, b.log.String(), "event ID is known with another content, copy skipped")
					return
				}
				require.Len(t, b.sent.deadLetters(), 1, "it must not vanish")
				letter := b.sent.deadLetters()[0]
				require.Equal(t, string(idem.ClassConflict), headerOf(letter, deadletter.HeaderErrorClass))
				require.Contains(t, headerOf(letter, deadletter.HeaderError), c.says)
				require.Equal(t, c.known, told[0].Known)
				require.True(t, told[0].DeadLetter)
				require.Empty(t, w.duplicates)
			})
		})
	}
}

// A correction that comes while the bad event waits for its delayed attempt is kept for a person
// (rules 3 and 6 d).
func TestConflict_CorrectionOfAWaitingEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { return errBoom }, once, idem.RetryTopics(time.Minute), byAmount)
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 1, 7)))
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 2, 8)))
		require.Equal(t, []string{"orders.g.retry.1m", "orders.g.dlq", "orders.g.dlq"}, b.deliverCopies())
		letters := b.sent.deadLetters()
		require.Contains(t, string(letters[1].Value), `"amount":8`, "the correction")
		require.Equal(t, string(idem.ClassConflict), headerOf(letters[1], deadletter.HeaderErrorClass))
		require.Contains(t, string(letters[2].Value), `"amount":7`)
	})
}

// After a change of the compared parts, the store has a fingerprint of the old parts from the very
// same record. That is no conflict.
func TestConflict_TheRecordItselfIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var told conflicts
		b.cfg.Observers = []observe.Observer{&told}
		b.on(succeed, byAmount)
		b.start()
		c := b.held(time.Minute, "e1")
		require.NoError(t, b.store.Store.Release(t.Context(), []dedup.Release{{Claim: c, Outcome: dedup.Failed, Retention: time.Hour}}))
		m := paying("e1", c.First.Offset, 8)
		m.Topic, m.Partition = c.First.Topic, c.First.Partition
		require.NoError(t, b.p.Handle(t.Context(), m))
		require.Equal(t, 1, b.count("run 2"), "the second attempt")
		require.NoError(t, b.p.Handle(t.Context(), m))
		require.Empty(t, b.sent.deadLetters())
		require.Empty(t, told)
	})
}

// rule 27: a copy is settled with the first of its batch only if it says the same.
func TestConflict_CopiesWithinOneBatch(t *testing.T) {
	for name, register := range map[string]func(*bench){
		"On": func(b *bench) { b.on(succeed, byAmount) },
		"OnBatch": func(b *bench) {
			idem.OnBatch(b.router, "paid", func(_ context.Context, events []idem.Event[payload]) error {
				for range events {
					b.add("run 1")
				}
				return nil
			}, byAmount)
		},
		"OnTx": func(b *bench) {
			idem.OnTx(b.router, "paid", func(context.Context, *groupTx, idem.Event[payload]) error {
				b.add("run 1")
				return nil
			}, byAmount)
		},
		"OnBatchTx": func(b *bench) {
			idem.OnBatchTx(b.router, "paid", func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error {
				for range events {
					b.add("run 1")
				}
				return nil
			}, byAmount)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				if !strings.HasSuffix(name, "Tx") {
					b.cfg.Store = b.store
				}
				var told conflicts
				b.cfg.Observers = []observe.Observer{&told}
				register(b)
				b.start()
				n, err := b.p.HandleBatch(t.Context(), []*idem.Message{
					paying("e1", 1, 7), paying("e2", 2, 7), paying("e1", 3, 7), paying("e1", 4, 8), paying("e3", 5, 7), paying("e1", 6, 7),
				})
				require.NoError(t, err)
				require.Equal(t, 6, n)
				require.Equal(t, 3, b.count("run 1"))
				require.Len(t, told, 1)
				require.EqualValues(t, 4, told[0].Message.Offset)
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// The same with a leader that fails: the copy with another content is kept.
func TestConflict_CopiesWithinOneBatchOfAFailingEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) }, byAmount)
		b.start()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{paying("e1", 1, 7), paying("e1", 2, 8)})
		require.NoError(t, err)
		require.Equal(t, 1, b.count("dead letter: permanent"))
		require.Equal(t, 1, b.count("dead letter: conflict"))
	})
}

// Many conflicts of one handler are one line a minute.
func TestConflict_LoggedOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var told conflicts
		b.cfg.Observers = []observe.Observer{&told}
		b.on(succeed, byAmount)
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 1, 7)))
		for offset := range int64(10) {
			require.NoError(t, b.p.Handle(t.Context(), paying("e1", 2+offset, 8)))
		}
		const line = "another content"
		require.Equal(t, 1, strings.Count(b.log.String(), line))
		time.Sleep(time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 20, 8)))
		require.Equal(t, 2, strings.Count(b.log.String(), line))
		require.Contains(t, b.log.String(), "not_logged=9")
		require.Len(t, told, 11)
	})
}

// rules 4 and 6 d: a copy of a deferred event joins it if it says the same, and is kept for a
// person otherwise.
func TestConflict_CopiesOfDeferredEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mended atomic.Bool
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a1" && !mended.Load() {
				return errBoom
			}
			b.add("done %s %d", e.ID, e.Data.Amount)
			return nil
		}, once, idem.KeyOrdered(5*time.Second), byAmount)
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{
			paying("a1", 1, 7), paying("a2", 2, 7), paying("a2", 3, 9), paying("a2", 4, 7), // one call: a2 is new in it
		})
		require.NoError(t, err)
		_, err = b.p.HandleBatch(t.Context(), []*idem.Message{paying("a1", 5, 8), paying("a1", 6, 7), paying("a2", 7, 8)})
		require.NoError(t, err)
		var values []string
		for _, l := range b.sent.deadLetters() {
			require.Equal(t, string(idem.ClassConflict), headerOf(l, deadletter.HeaderErrorClass))
			values = append(values, string(l.Value))
		}
		require.Len(t, values, 3)
		require.Contains(t, values[0], `"amount":9`)
		require.Contains(t, values[1], `"event_id":"a1","type":"paid","amount":8`)
		require.Contains(t, values[2], `"event_id":"a2","type":"paid","amount":8`)
		mended.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"done a1 7", "done a2 7"}, done(b))
	})
}

// The store remembers which copies had another content. It is written to at most ten times a second
// for it, and a copy that comes again counts once.
func TestConflict_NotedInTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 1, 7)))
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 2, 7)))
		for _, offset := range []int64{3, 4} { // the second one comes at once
			require.NoError(t, b.p.Handle(t.Context(), paying("e1", offset, 8)))
		}
		for range 2 {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, b.p.Handle(t.Context(), paying("e1", 5, 8)))
		}
		noted, err := b.store.Conflicts(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, 10)
		require.NoError(t, err)
		m := paying("e1", 1, 7)
		require.Equal(t, []dedup.Origin{{Topic: m.Topic, Partition: m.Partition, Offset: 3}, {Topic: m.Topic, Partition: m.Partition, Offset: 5}}, noted)
	})
}

// mute is a store that does not note conflicts in time.
type mute struct {
	*spy
	calls int
}

func (s *mute) NoteConflict(ctx context.Context, _ dedup.Key, _ dedup.Origin) error {
	s.calls++
	<-ctx.Done()
	return context.Cause(ctx)
}

// A store that cannot note conflicts changes no outcome, and costs a second in each minute.
func TestConflict_NotNoted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		s := &mute{spy: b.store}
		b.cfg.Store = s
		runs := 0
		b.on(func(context.Context, idem.Event[payload]) error { runs++; return nil })
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 1, 7)))
		began := time.Now()
		for offset := range int64(30) {
			require.NoError(t, b.p.Handle(t.Context(), paying("e1", 2+offset, 8)))
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, s.calls)
		require.Equal(t, 31*time.Second, time.Since(began))
		require.Equal(t, 1, runs)
		time.Sleep(time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), paying("e1", 40, 8)))
		require.Equal(t, 2, s.calls)
	})
}
