package idem_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// keyed is a record of one type and Kafka key. With an empty key the record has no key.
func keyed(typ, id, key string, offset int64) *idem.Message {
	m := message(id, offset)
	m.Value = fmt.Appendf(nil, `{"event_id":%q,"type":%q,"amount":7}`, id, typ)
	m.Key = nil
	if key != "" {
		m.Key = []byte(key)
	}
	return m
}

// series is n records of type "paid", each with an event and a key of its own, from offset 0.
func series(n int) (msgs []*idem.Message) {
	for i := range n {
		msgs = append(msgs, keyed("paid", fmt.Sprintf("e%03d", i), fmt.Sprintf("k%d", i), int64(i)))
	}
	return msgs
}

func ids(events []idem.Event[payload]) (all []string) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

// onBatch registers a batch handler that writes the IDs it gets and then does fn.
func (b *bench) onBatch(fn func(context.Context, []idem.Event[payload]) error, opts ...idem.Option) {
	idem.OnBatch(b.router, "paid", func(ctx context.Context, events []idem.Event[payload]) error {
		b.add("batch %v", ids(events))
		return fn(ctx, events)
	}, opts...)
}

func succeedAll(context.Context, []idem.Event[payload]) error { return nil }

// One round trip claims the waiting events, and one completes them.
func TestBatch_OneClaimForMany(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(succeedAll)
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, 3, settled)
		require.Equal(t, 1, b.store.claims)
		require.Equal(t, []string{"claim: fresh", "batch [e000 e001 e002]", "complete: done", "complete: done", "complete: done"}, b.all())
	})
}

// A run of pure duplicates is settled by one question.
func TestBatch_DuplicatesInBulk(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(64))
		require.NoError(t, err)
		b.store.claims = 0
		var steps []int
		require.NoError(t, p.Settle(t.Context(), series(64), func(n int) { steps = append(steps, n) }))
		require.Equal(t, 1, b.store.claims)
		require.Equal(t, []int{64}, steps)
		require.Equal(t, 64, b.count("run 1"))
	})
}

// Each event of a single handler is completed before the next one runs: a kill repeats at most one.
func TestBatch_SingleHandlersAreCompletedOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		var steps []int
		require.NoError(t, p.Settle(t.Context(), series(3), func(n int) { steps = append(steps, n) }))
		require.Equal(t, []string{"claim: fresh", "run 1", "complete: done", "run 1", "complete: done", "run 1", "complete: done"}, b.all())
		require.Equal(t, []int{1, 2, 3}, steps, "the watermark moves within the batch")
	})
}

// Claims reach ahead for about a second of work, because after a crash claimed events block others
// for a lease.
func TestBatch_ClaimsReachAheadForASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(200 * time.Millisecond); return nil })
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(100))
		require.NoError(t, err)
		require.LessOrEqual(t, slices.Max(b.store.sizes), 16)
		require.Equal(t, 5, b.store.sizes[len(b.store.sizes)-2])
	})
}

// Under at most once an event is claimed just before it runs: one that never ran must not be given
// up.
func TestBatch_AtMostOnceIsClaimedOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 1}, b.store.sizes)
	})
}

// Rule 27: a copy is settled with its leader and never asks the store, even if the leader needed
// several attempts.
func TestBatch_CopiesAreSettledWithTheirLeader_Rule27(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(2, errBoom))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{
			keyed("paid", "e1", "a", 10), keyed("paid", "e2", "a", 11), keyed("paid", "e1", "b", 15), keyed("paid", "e1", "b", 16),
		})
		require.NoError(t, err)
		require.Equal(t, 1, b.count("run 3"), "e1")
		require.Equal(t, 2, b.count("complete: done"))
		require.Equal(t, []int{2, 1, 1, 1}, b.store.sizes, "e1 and e2, e1 twice more, e2")
	})
}

// Rules 6 and 27: a copy of an event that was given up is dead-lettered too, and is not run.
func TestBatch_CopyOfADeadLeader_Rule6(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) })
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{keyed("paid", "e1", "a", 10), keyed("paid", "e1", "a", 15)})
		require.NoError(t, err)
		require.Equal(t, 1, b.count("run 1"))
		require.Equal(t, 1, b.count("dead letter: permanent"))
		require.Equal(t, 1, b.count("dead letter: already-dead"))
	})
}

// Rule 9: the events behind a busy event are given back before the wait for the busy one.
func TestBatch_BusyReleasesWhatLiesBehind_Rule9(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		b.cfg.BusyWait = 100 * time.Millisecond
		p := b.start()
		msgs := series(4)
		other := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e001"}, Retention: time.Hour}
		token := dedup.NewToken()
		var a [1]dedup.Answer
		require.NoError(t, b.store.Store.Claim(t.Context(), token, time.Minute, []dedup.Request{other}, a[:]))
		settled, err := p.HandleBatch(t.Context(), msgs)
		require.ErrorIs(t, err, idem.ErrBusy)
		require.Equal(t, 1, settled)
		require.Equal(t, 2, b.count("release: unstarted"), "e002 and e003")
		require.Equal(t, 1, b.count("run 1"))
	})
}

// Rule 2: an error that names no event leaves all of them in doubt: each meets its policy once, by
// itself.
func TestBatch_UnnamedError_Rule2(t *testing.T) {
	for _, c := range []struct {
		policy  idem.UncertainPolicy
		runs    int
		letters int
	}{{idem.RerunUncertain, 3, 0}, {idem.DeadLetterUncertain, 0, 3}} {
		inBubble(t, func(t *testing.T, b *bench) {
			uncertain := 0
			b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
				if len(events) > 1 {
					return errBoom
				}
				if events[0].Uncertain {
					uncertain++
				}
				return nil
			}, idem.WhenUncertain(c.policy))
			p := b.start()
			_, err := p.HandleBatch(t.Context(), series(3))
			require.NoError(t, err)
			require.Equal(t, 1, b.count("batch [e000 e001 e002]"), "never the whole batch again")
			require.Equal(t, c.runs, uncertain)
			require.Len(t, b.sent.deadLetters(), c.letters)
		})
	}
}

// Events that a BatchError does not name are completed; the named ones meet their policy, each by
// itself.
func TestBatch_NamedErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			failed := idem.BatchError{}
			for i, e := range events {
				switch {
				case e.ID == "e001":
					failed[i] = idem.Permanent(errBoom)
				case e.ID == "e003" && e.Attempt < 3:
					failed[i] = errBoom
				}
			}
			return fmt.Errorf("some failed: %w", failed)
		})
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(5))
		require.NoError(t, err)
		require.Equal(t, 5, settled)
		require.Equal(t, []string{
			"claim: fresh", "batch [e000 e001 e002 e003 e004]", "complete: done", "complete: done", "complete: done",
			"dead letter: permanent", "complete: dead", "release: failed", "claim: fresh", "batch [e003]", "release: failed",
			"claim: fresh", "batch [e003]", "complete: done",
		}, b.all())
	})
}

// An index out of range names no event, so all events are in doubt.
func TestBatch_NamesAnEventThatIsNotThere(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			if len(events) > 1 {
				return idem.BatchError{7: errBoom}
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(2))
		require.NoError(t, err)
		require.Equal(t, 2, b.count("release: unknown"))
		require.Equal(t, 2, b.count("complete: done"))
	})
}

// NotApplied for the whole batch holds for each event, so no event is in doubt.
func TestBatch_NotAppliedToAll(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first := true
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			for _, e := range events {
				require.False(t, e.Uncertain)
			}
			if first {
				first = false
				return idem.NotApplied(errBoom)
			}
			return nil
		}, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 3, b.count("complete: done"))
	})
}

// Rule 11: at most one event of each Kafka key, unless the handler can take more; events without a
// key are no order.
func TestBatch_OneEventOfEachKey_Rule11(t *testing.T) {
	msgs := func() []*idem.Message {
		return []*idem.Message{
			keyed("paid", "e1", "a", 0), keyed("paid", "e2", "b", 1), keyed("paid", "e3", "a", 2), keyed("paid", "e4", "", 3), keyed("paid", "e5", "", 4),
		}
	}
	for _, c := range []struct {
		opts []idem.Option
		want []string
	}{
		{nil, []string{"batch [e1 e2]", "batch [e3 e4 e5]"}},
		{[]idem.Option{idem.SameKey()}, []string{"batch [e1 e2 e3 e4 e5]"}},
		{[]idem.Option{idem.SameKey(), idem.MaxBatch(2)}, []string{"batch [e1 e2]", "batch [e3 e4]", "batch [e5]"}},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.onBatch(succeedAll, c.opts...)
			p := b.start()
			_, err := p.HandleBatch(t.Context(), msgs())
			require.NoError(t, err)
			var batches []string
			for _, l := range b.all() {
				if l[0] == 'b' {
					batches = append(batches, l)
				}
			}
			require.Equal(t, c.want, batches)
		})
	}
}

// A copy has the Kafka key of its original and is not run: it ends no batch.
func TestBatch_CopiesDoNotEndABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(succeedAll)
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{
			keyed("paid", "e1", "a", 0), keyed("paid", "e2", "b", 1), keyed("paid", "e1", "a", 2), keyed("paid", "e3", "c", 3),
		})
		require.NoError(t, err)
		require.Equal(t, 1, b.count("batch [e1 e2 e3]"))
		require.Equal(t, []int{3}, b.store.sizes)
	})
}

// Rule 11: types A and B of one key: A1, B1, A2 stay in this order.
func TestBatch_OrderOfAKeyAcrossHandlers_Rule11(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, typ := range []string{"A", "B"} {
			idem.OnBatch(b.router, typ, func(_ context.Context, events []idem.Event[payload]) error {
				b.add("%s %v", typ, ids(events))
				return nil
			}, idem.SameKey())
		}
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{
			keyed("A", "a1", "k", 0), keyed("B", "b1", "k", 1), keyed("A", "a2", "k", 2), keyed("A", "a3", "other", 3),
		})
		require.NoError(t, err)
		require.Equal(t, []string{
			"claim: fresh", "A [a1]", "complete: done", "claim: fresh", "B [b1]", "complete: done",
			"claim: fresh", "A [a2 a3]", "complete: done", "complete: done",
		}, b.all())
	})
}

// Rule 26: copies in two lanes of one process do not meet in the store. The second copy waits
// without a claim or a connection.
func TestBatch_CopiesInTwoLanes_Rule26(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(time.Second); return nil })
		p := b.start()
		var lanes sync.WaitGroup
		for lane := range int64(4) {
			lanes.Go(func() {
				_, err := p.HandleBatch(t.Context(), []*idem.Message{keyed("paid", "e1", "a", lane), keyed("paid", "e2", "b", 10+lane)})
				require.NoError(t, err)
			})
		}
		lanes.Wait()
		require.Equal(t, 2, b.count("run 1"))
		require.Zero(t, b.count("claim: busy"))
	})
}

// A copy in another lane is bounded by the wait budget of the call, like every wait for others.
func TestBatch_CopyInAnotherLaneWaits_Rule26(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(5 * time.Second); return nil })
		p := b.start()
		var other sync.WaitGroup
		other.Go(func() { require.NoError(t, p.Handle(t.Context(), message("e1", 0))) })
		time.Sleep(time.Millisecond)
		err := p.Handle(t.Context(), message("e1", 1))
		require.ErrorIs(t, err, idem.ErrBusy)
		other.Wait()
		require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
	})
}

// An outage of the store between claim and completion of a batch loses no event and repeats no
// effect.
func TestBatch_CompletionOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(succeedAll)
		b.store.completeErr = times(3, dedup.ErrUnavailable)
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, 1, b.count("batch [e000 e001 e002]"))
		require.Equal(t, 3, b.count("complete: done"))
	})
}

// R-01, rule 32: an answer that was lost is asked for again with the same token, for the whole
// batch.
func TestBatch_LostAnswer_R01(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(succeedAll)
		b.store.claimLate = times(2, dedup.ErrUnavailable)
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, 1, b.count("batch [e000 e001 e002]"))
	})
}

// A stop in the middle: running events are finished, events claimed ahead are given back, and the
// rest comes again.
func TestBatch_StopGivesBackWhatHasNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "e002" {
				stop()
			}
			return nil
		})
		p := b.start()
		settled, err := p.HandleBatch(ctx, series(10))
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Equal(t, 3, settled)
		require.Equal(t, 7, b.count("release: unstarted"))
		_, err = p.HandleBatch(t.Context(), series(10))
		require.NoError(t, err)
		require.Equal(t, 10, b.count("run 1"))
	})
}

// A claim that is lost while its handler runs cancels this handler and no other; the event obeys
// the store.
func TestBatch_LostClaimOfABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		calls := 0
		b.onBatch(func(ctx context.Context, events []idem.Event[payload]) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		b.store.renewErr = func() error { return &dedup.LostError{Claims: []int{1}} }
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.GreaterOrEqual(t, calls, 2)
	})
}

// K-12: events claimed ahead of a long pause do not begin after the pause, since other workers may
// have taken over.
func TestBatch_LeasesThatEndedBeforeTheirRun_K12(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var down atomic.Bool
		down.Store(true)
		b.store.renewErr = func() error {
			if down.Load() {
				return dedup.ErrUnavailable
			}
			return nil
		}
		b.on(func(ctx context.Context, e idem.Event[payload]) error {
			require.NoError(t, ctx.Err())
			if e.ID == "e000" && down.Load() {
				time.Sleep(11 * time.Second) // the lease is 10 s
				down.Store(false)
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []int{3, 1, 1}, b.store.sizes, "what had not begun is claimed again")
	})
}

// A handler that goes on although its claim was lost is left behind; its event, and the partition,
// go on (rule 9).
func TestBatch_HungHandlerWithoutItsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		hang := make(chan struct{})
		var runs atomic.Int32
		b.on(func(context.Context, idem.Event[payload]) error {
			if runs.Add(1) == 1 {
				<-hang
			}
			return nil
		})
		lost := times(1, &dedup.LostError{Claims: []int{0}})
		b.store.renewErr = lost
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(2))
		require.NoError(t, err)
		require.Equal(t, 1, p.Status().Abandoned)
		close(hang)
		synctest.Wait()
		require.Zero(t, p.Status().Abandoned)
	})
}

// Limits hold for runs, and duplicates are free (rule 25).
func TestBatch_RateLimit_Rule25(t *testing.T) {
	for name, register := range map[string]func(*bench){
		"claimed": func(b *bench) { b.on(succeed, idem.RateLimit(10, time.Second)) },
		"at most once": func(b *bench) {
			b.on(succeed, idem.RateLimit(10, time.Second), idem.WhenUncertain(idem.DeadLetterUncertain))
		},
		"batches of one": func(b *bench) { b.onBatch(succeedAll, idem.RateLimit(10, time.Second), idem.MaxBatch(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				register(b)
				p := b.start()
				began := time.Now()
				_, err := p.HandleBatch(t.Context(), series(31))
				require.NoError(t, err)
				require.InDelta(t, 3*time.Second, time.Since(began), float64(200*time.Millisecond))
				began = time.Now()
				_, err = p.HandleBatch(t.Context(), series(31))
				require.NoError(t, err)
				require.Less(t, time.Since(began), 200*time.Millisecond)
			})
		})
	}
}

// Concurrency bounds runs over all lanes.
func TestBatch_Concurrency(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		now, most := 0, 0
		b.on(func(context.Context, idem.Event[payload]) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}, idem.Concurrency(3))
		p := b.start()
		var lanes sync.WaitGroup
		for lane := range 12 {
			lanes.Go(func() {
				_, err := p.HandleBatch(t.Context(), []*idem.Message{message(fmt.Sprintf("e%d", lane), int64(lane)), message(fmt.Sprintf("f%d", lane), int64(100+lane))})
				require.NoError(t, err)
			})
		}
		lanes.Wait()
		require.Equal(t, 3, most)
	})
}

// Rule 8: an event that the store can no longer know meets a declared policy.
func TestBatch_TooOld_Rule8(t *testing.T) {
	tooOld := func(a *dedup.Answer) { *a = dedup.Answer{Verdict: dedup.TooOld} }
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		b.store.claimAnswer = tooOld
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"claim: too-old", "dead letter: too-old"}, b.all())
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.WhenTooOld(idem.StopTooOld))
		b.store.claimAnswer = tooOld
		p := b.start()
		err := p.Handle(t.Context(), message("e1", 0))
		require.ErrorIs(t, err, idem.ErrTooOld)
		var wait *idem.WaitError
		require.NotErrorAs(t, err, &wait, "it stops")
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.WhenTooOld(idem.RunTooOld))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.True(t, b.store.anyAge)
	})
}

// Mistakes in options are found at once.
func TestBatch_WrongOptions(t *testing.T) {
	for _, o := range []idem.Option{idem.MaxBatch(0), idem.MaxBatch(5000), idem.Concurrency(-1), idem.RateLimit(1, 0), idem.RateLimit(-1, time.Second)} {
		b := newBench(t)
		b.onBatch(succeedAll, o)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "must be")
	}
}
