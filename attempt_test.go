package idem_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/faketime"
)

var errBoom = errors.New("boom")

// inBubble runs a test in fake time and closes the processor at its end. A goroutine that is left
// fails the test.
func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		b := newBench(t)
		defer func() { // also if f fails
			if b.p != nil {
				require.NoError(t, b.p.Close())
			}
		}()
		f(t, b)
	})
}

func TestProcessor_Idempotent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		for offset := range int64(3) {
			require.NoError(t, p.Handle(t.Context(), message("e1", offset)))
		}
		require.Equal(t, []string{"claim: fresh", "run 1", "complete: done", "claim: done", "claim: done"}, b.all())
	})
}

// A detector that marks before the handler loses the event if the handler fails (T-02).
func TestProcessor_FailedEventIsRunAgainAndReleasedWhileItWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(2, errBoom))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{
			"claim: fresh", "run 1", "release: failed", "claim: fresh", "run 2", "release: failed", "claim: fresh", "run 3", "complete: done",
		}, b.all())
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestProcessor_OutcomesOfAClaimedHandler(t *testing.T) {
	goexit := func(context.Context, idem.Event[payload]) error { runtime.Goexit(); return nil }
	panics := func(context.Context, idem.Event[payload]) error { panic(errBoom) }
	nilPanic := func(context.Context, idem.Event[payload]) error { panic(nil) } //nolint:govet // tested here (K-23)
	hangs := func(ctx context.Context, _ idem.Event[payload]) error { <-ctx.Done(); return ctx.Err() }
	fails := func(err error) func(context.Context, idem.Event[payload]) error {
		return func(context.Context, idem.Event[payload]) error { return err }
	}
	for _, c := range []struct {
		name       string
		fn         func(context.Context, idem.Event[payload]) error
		policy     idem.UncertainPolicy
		runs       int
		class      idem.Class
		takesLong  bool
		wantDelays bool
	}{
		{"error, rerun", fails(errBoom), idem.RerunUncertain, 5, idem.ClassFailed, false, true},
		{"error, dead letter (rule 5)", fails(errBoom), idem.DeadLetterUncertain, 1, idem.ClassFailed, false, false},
		{"permanent, rerun", fails(idem.Permanent(errBoom)), idem.RerunUncertain, 1, idem.ClassPermanent, false, false},
		{"permanent, dead letter", fails(idem.Permanent(errBoom)), idem.DeadLetterUncertain, 1, idem.ClassPermanent, false, false},
		{"not applied, rerun", fails(idem.NotApplied(errBoom)), idem.RerunUncertain, 5, idem.ClassFailed, false, true},
		{"not applied, dead letter", fails(idem.NotApplied(errBoom)), idem.DeadLetterUncertain, 5, idem.ClassFailed, false, true},
		{"panic, rerun (K-23)", panics, idem.RerunUncertain, 5, idem.ClassPanic, false, true},
		{"panic, dead letter (rule 5)", panics, idem.DeadLetterUncertain, 1, idem.ClassPanic, false, false},
		{"panic(nil)", nilPanic, idem.RerunUncertain, 5, idem.ClassPanic, false, true},
		{"Goexit (K-23)", goexit, idem.RerunUncertain, 5, idem.ClassPanic, false, true},
		{"time-out, rerun", hangs, idem.RerunUncertain, 3, idem.ClassTimeout, true, true},
		{"time-out, dead letter (rule 5)", hangs, idem.DeadLetterUncertain, 1, idem.ClassTimeout, true, false},
		{"retry after too long (rule 42)", fails(idem.RetryAfter(time.Hour, errBoom)), idem.RerunUncertain, 1, idem.ClassRetryAfter, false, false},
		{"unavailable, dead letter", fails(idem.Unavailable(errBoom)), idem.DeadLetterUncertain, 1, idem.ClassFailed, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(c.fn, idem.WhenUncertain(c.policy), idem.Timeout(4*time.Second))
				p := b.start()
				began := time.Now()
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				runs := 0
				for _, l := range b.all() {
					if strings.HasPrefix(l, "run ") {
						runs++
					}
				}
				require.Equal(t, c.runs, runs, "runs: %v", b.all())
				require.Len(t, b.sent.deadLetters(), 1)
				require.Equal(t, string(c.class), headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
				require.Less(t, time.Since(began), 15*time.Second)
				// The order that loses no event: the dead letter is acknowledged, then the death is
				// recorded (rule 6).
				lines := b.all()
				require.Equal(t, []string{"dead letter: " + string(c.class), "complete: dead"}, lines[len(lines)-2:])
				// The same record again is a duplicate, not another dead letter; a copy elsewhere
				// is never dropped (rule 6 d).
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				require.Len(t, b.sent.deadLetters(), 1)
				require.NoError(t, p.Handle(t.Context(), message("e1", 9)))
				require.Len(t, b.sent.deadLetters(), 2)
				require.Equal(t, string(idem.ClassAlreadyDead), headerOf(b.sent.deadLetters()[1], deadletter.HeaderErrorClass))
			})
		})
	}
}

func TestProcessor_RetriesInPlaceAreBoundedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1000, errBoom), idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit}))
		p := b.start()
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.LessOrEqual(t, time.Since(began), 5*time.Second, "InPlace")
		require.Equal(t, 1, b.count("dead letter: failed"))
	})
}

func TestProcessor_RetryAfterIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, idem.RetryAfter(3*time.Second, errBoom)))
		p := b.start()
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
		require.Equal(t, 1, b.count("complete: done"))
	})
}

// Attempts survive in the store: a policy that is spent over two deliveries is spent.
func TestProcessor_AttemptsAreCountedAcrossDeliveries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.sent.fail = func(*idem.Message) error { return errBoom }
		b.cfg.BusyWait = time.Millisecond
		b.on(failing(100, errBoom), idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		p := b.start()
		require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable, "the dead letter cannot be sent (T-01)")
		require.Equal(t, 0, b.count("complete: dead"))
		require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable)
		require.Equal(t, 1, b.count("run 1"))
		require.Equal(t, 1, b.count("run 2"))
		require.Equal(t, 0, b.count("run 3"), "the policy is spent: only the dead letter is tried again")
		b.sent.fail = nil
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("complete: dead"))
	})
}

// T-01: the offset must not move while the dead letter is not acknowledged; the log says it once.
func TestProcessor_DeadLetterIsSentUntilAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		n := 0
		b.sent.fail = func(*idem.Message) error {
			if n++; n <= 20 {
				return errBoom
			}
			return nil
		}
		b.on(failing(1, idem.Permanent(errBoom)))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"claim: fresh", "run 1", "dead letter: permanent", "complete: dead"}, b.all())
		require.Equal(t, 1, strings.Count(b.log.String(), "producer unavailable, pausing"))
		require.Equal(t, 1, strings.Count(b.log.String(), "producer is back"))
	})
}

func TestProcessor_WithoutProducerItStops(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Producer = nil
		b.on(failing(1, idem.Permanent(errBoom)))
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), []*idem.Message{message("e1", 0), message("e2", 1)})
		require.ErrorIs(t, err, idem.ErrNoProducer)
		require.ErrorIs(t, err, errBoom)
		require.Zero(t, settled)
		require.Equal(t, 1, b.count("release: failed"), "the claim is not left to its lease")
	})
}

// R-19, T-03: no answer means no run, no mark, no dead letter; the log says it once.
func TestProcessor_StoreOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.claimErr = times(30, dedup.ErrUnavailable)
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"))
		require.Equal(t, 1, strings.Count(b.log.String(), "is back"))
	})
}

// The answer to a call from before an outage does not mean that the store is back. A server that is
// shut down lets some of its work finish. The first answer to a call that began after the error
// does, however soon.
func TestProcessor_AnswerToAnOldCallIsNoReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		slow := make(chan struct{})
		var calls atomic.Int32
		b.store.claimErr = func() error {
			switch calls.Add(1) {
			case 1: // in flight when the other one fails
				<-slow
				return nil
			case 2:
				return dedup.ErrUnavailable
			}
			return nil
		}
		var away atomic.Bool
		b.store.completeErr = func() error {
			if away.Load() {
				return dedup.ErrUnavailable
			}
			return nil
		}
		b.on(succeed)
		p := b.start()
		old := make(chan error, 1)
		go func() { old <- p.Handle(t.Context(), message("e1", 0)) }()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		failing := make(chan error, 1)
		go func() { failing <- p.Handle(t.Context(), message("e2", 1)) }()
		synctest.Wait()
		require.NotEmpty(t, p.Status().Down)
		away.Store(true) // only the claim is answered
		close(slow)
		synctest.Wait()
		require.NotEmpty(t, p.Status().Down, "the answer was to a call from before")
		away.Store(false)
		require.NoError(t, <-old)
		require.NoError(t, <-failing)
		require.Empty(t, p.Status().Down)
		require.Equal(t, 1, strings.Count(b.log.String(), "is back"), b.log.String())
	})
}

func TestProcessor_StoreOutageEndsTheCallOfAForeignLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 0 // the default, 1 s
		b.store.claimErr = times(1000, dedup.ErrUnavailable)
		b.on(succeed)
		p := b.start()
		began := time.Now()
		err := p.Handle(t.Context(), message("e1", 0))
		var wait *idem.WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.Positive(t, wait.After)
		require.InDelta(t, time.Second, time.Since(began), float64(100*time.Millisecond))
		require.Equal(t, []string{"store *idem_test.spy"}, p.Status().Down)
		require.Equal(t, 1, b.count("release: unstarted"), "a claim that may have been granted is given back (rule 32)")
	})
}

// the claim was granted and the answer lost. Taking the repeat for a duplicate would lose the
// event.
func TestProcessor_LostReplyOfAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.claimLate = times(3, dedup.ErrUnavailable)
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Equal(t, 1, b.count("complete: done"))
	})
}

// Rule 32: after a lost reply the delivery is given up because of a stop; the next owner must not
// wait for a lease.
func TestProcessor_GhostClaimIsReleasedAtAStop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancelCause(t.Context())
		b.store.claimLate = func() error { cancel(idem.ErrStopping); return dedup.ErrUnavailable }
		b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		require.ErrorIs(t, p.Handle(ctx, message("e1", 0)), idem.ErrStopping)
		b.store.claimLate = nil
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"claim: fresh", "release: unstarted", "claim: fresh", "run 1", "complete: done"}, b.all())
		require.Less(t, time.Since(began), time.Second)
	})
}

// R-03, rule 9: another holder's live claim is waited for and never marked.
func TestProcessor_BusyIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		claimAs(t, b, "e1", 10*time.Second) // a holder that dies
		b.on(succeed)
		p := b.start()
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Equal(t, 1, b.count("run 1"))
		require.Equal(t, 1, b.count("claim: uncertain"))
		require.Greater(t, time.Since(began), 9*time.Second)
		require.Less(t, time.Since(began), 12*time.Second)
	})
}

func TestProcessor_BusyEndsTheCallOfAForeignLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 0
		claimAs(t, b, "e1", time.Hour)
		b.on(succeed)
		p := b.start()
		began := time.Now()
		settled, err := p.HandleBatch(t.Context(), []*idem.Message{message("e0", 4), message("e1", 5), message("e2", 6)})
		require.ErrorIs(t, err, idem.ErrBusy)
		require.Equal(t, 1, settled)
		require.InDelta(t, time.Second, time.Since(began), float64(100*time.Millisecond), "per call, not per message")
	})
}

func TestProcessor_BusyForLongIsReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		claimAs(t, b, "e1", 3*time.Minute)
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Equal(t, 1, strings.Count(b.log.String(), "held elsewhere for long"))
	})
}

// claimAs claims an event for a worker that makes no further call.
func claimAs(t *testing.T, b *bench, id string, lease time.Duration) dedup.Token {
	t.Helper()
	tok := dedup.NewToken()
	var a [1]dedup.Answer
	req := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: id}, Retention: time.Hour, Origin: dedup.Origin{Topic: "elsewhere"}}
	require.NoError(t, b.store.Store.Claim(t.Context(), tok, lease, []dedup.Request{req}, a[:]))
	require.Equal(t, dedup.Fresh, a[0].Verdict)
	return tok
}

// Rule 5: at most once. An event that may have run is left to a person.
func TestProcessor_UncertainIsDeadLetteredUnderDeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		claimAs(t, b, "e1", time.Second)
		b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Equal(t, 0, b.count("run 1"))
		require.Equal(t, 1, b.count("dead letter: uncertain"))
		require.Equal(t, 1, b.count("complete: dead"))
	})
}

// Rule 18: an event is the cause if its holders keep dying.
func TestProcessor_CrashLoopIsDeadLettered(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var crashed []uint32
		b.store.claimAnswer = func(a *dedup.Answer) { crashed = append(crashed, a.Takeovers) }
		b.on(succeed)
		p := b.start()
		for range 4 {
			var a [1]dedup.Answer
			req := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, Retention: time.Hour}
			require.NoError(t, b.store.Store.Claim(t.Context(), dedup.NewToken(), time.Second, []dedup.Request{req}, a[:]))
			time.Sleep(2 * time.Second)
		}
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Equal(t, []uint32{4}, crashed)
		require.Equal(t, 1, b.count("dead letter: crash-loop"))
		require.Equal(t, 0, b.count("run 1"))
	})
}

// the lease is renewed while the handler runs.
func TestProcessor_SlowHandlerKeepsItsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(ctx context.Context, _ idem.Event[payload]) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}, idem.Timeout(2*time.Minute))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"claim: fresh", "run 1", "complete: done"}, b.all())
	})
}

// A claim that is lost at Complete: not marked, not released; claimed again, and the answer obeyed.
func TestProcessor_ClaimLostAtComplete(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		stolen := false
		b.store.completeErr = func() error {
			if !stolen {
				stolen = true
				return dedup.Lost([]int{0})
			}
			return nil
		}
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, "claim: busy", b.all()[3], "claimed again: %v", b.all())
		require.Equal(t, 0, b.count("release: failed"))
		require.Equal(t, 1, b.count("complete: done"))
	})
}

// The effect has happened: recording it is tried until the store is back, under the lease that is
// renewed meanwhile.
func TestProcessor_CompleteOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.completeErr = times(40, dedup.ErrUnavailable)
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Equal(t, 1, b.count("complete: done"))
	})
}

// A store that answers with a verdict of a later release gives no answer (rule 35).
func TestProcessor_UnknownVerdictIsNoAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 0
		b.store.claimAnswer = func(a *dedup.Answer) { a.Verdict = 77 }
		b.on(succeed)
		p := b.start()
		require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable)
		require.Equal(t, 0, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestProcessor_VerdictsThatAreNeverRun(t *testing.T) {
	for _, c := range []struct {
		verdict dedup.Verdict
		letter  idem.Class
	}{{dedup.Done, ""}, {dedup.Rescheduled, ""}, {dedup.Conflict, ""}, {dedup.TooOld, idem.ClassTooOld}} {
		t.Run(c.verdict.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.store.claimAnswer = func(a *dedup.Answer) {
					if a.Verdict = c.verdict; c.verdict == dedup.Conflict {
						a.Known = dedup.Done
					}
				}
				b.on(succeed)
				p := b.start()
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				require.Equal(t, 0, b.count("run 1"))
				if c.letter == "" {
					require.Empty(t, b.sent.deadLetters())
				} else {
					require.Equal(t, 1, b.count("dead letter: "+string(c.letter)))
				}
			})
		})
	}
}

// T-01: a broker that refuses a dead letter for its time must not stop the partition: the
// dead letter goes with the present time.
func TestProcessor_DeadLetterRefusedForItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.sent.fail = func(m *idem.Message) error {
			if !m.Time.IsZero() {
				return idem.ErrRefused
			}
			return nil
		}
		b.on(failing(1, idem.Permanent(errBoom)))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, "2026-01-02T03:04:05.000Z", headerOf(b.sent.deadLetters()[0], deadletter.HeaderTime))
	})
}

// K-23: a panic before the store knows of the event is met at every restart if it kills the
// process.
func TestProcessor_PanicWhileDecoding(t *testing.T) {
	boom := func(*idem.Message) (string, error) { panic("boom") }
	for name, opt := range map[string]idem.Option{
		"decode": idem.Decode(func(*idem.Message, any) error { panic("boom") }),
		"ID":     idem.ID(idem.FromFunc("test", boom)), "tenant": idem.Tenant(idem.FromFunc("test", boom)), "type": idem.Type(idem.FromFunc("test", boom)),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(succeed, opt)
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
				require.Len(t, b.sent.deadLetters(), 1)
				require.Contains(t, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError), "panicked: boom")
			})
		})
	}
}

func TestProcessor_NilMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		require.ErrorContains(t, b.start().Handle(t.Context(), nil), "message is nil")
	})
}

// The tables are dropped while the processor runs. The event waits, and is neither lost nor
// dead-lettered. The log repeats the remedy once a minute.
func TestProcessor_StoreNotSetUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		missing := &dedup.SetupError{Problem: "tables are missing", Fix: "run `idem migrate up`"}
		began := time.Now()
		b.store.claimErr = func() error {
			switch d := time.Since(began); {
			case d < time.Minute:
				return dedup.ErrUnavailable
			case d < 6*time.Minute+30*time.Second:
				return missing
			}
			return nil
		}
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"), "the outage came first")
		require.Equal(t, 6, strings.Count(b.log.String(), "is still not set up, pausing"), b.log.String())
		require.Equal(t, 6, strings.Count(b.log.String(), "tables are missing: run `idem migrate up`"))
		require.Equal(t, 1, strings.Count(b.log.String(), "is back"))
	})
}
