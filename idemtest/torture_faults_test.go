package idemtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// A handler with a branch for recovery that a second crash breaks: the refund happens twice.
func TestTorture_SecondCrash(t *testing.T) {
	refunds := func(clears bool) func(*idem.Router, *shop) {
		return func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				if e.Uncertain {
					if err := s.Call(ctx, "refund", func() {
						if s.booked[e.ID] {
							s.balance -= e.Data.Amount
							s.booked[e.ID] = !clears
						}
					}); err != nil {
						return err
					}
				}
				return s.Call(ctx, "charge", func() {
					if !s.booked[e.ID] || e.Uncertain && !clears {
						s.balance += e.Data.Amount
						s.booked[e.ID] = true
					}
				})
			})
		}
	}
	text, broken := searched(t, refunds(false), Pairs(300))
	require.True(t, broken)
	require.Regexp(t, "worker 1 .*  <- ", text)
	require.Regexp(t, "worker 2 .*  <- ", text)
	require.Contains(t, text, "without faults: only a run with a fault makes this call;")
	_, broken = searched(t, refunds(true), Pairs(300))
	require.False(t, broken)
}

// runs returns a function that runs a schedule over records with handlers.
func runs(t *testing.T, handlers func(*idem.Router, *shop), opts ...TortureOption) func(string) outcomeOf {
	t.Helper()
	s := newSearch("Torture", append([]TortureOption{twoPayments()}, opts...))
	run := runner(t, s, newShop, func(t *testing.T, w *shop, open opener) job {
		return newRecordsJob(t, s.records, open, func(r *idem.Router) { handlers(r, w) })
	}, (*shop).state)
	return func(text string) outcomeOf {
		plan, err := parseSchedule(text)
		require.NoError(t, err)
		out := run(plan)
		require.NoError(t, out.err)
		return out
	}
}

// mailing sends a mail with a key for each payment.
func mailing(r *idem.Router, s *shop) {
	idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
		return s.send(ctx, e.ID, e.IdempotencyKey())
	})
}

// The points go on in each process that takes over, and all faults happen there.
func TestPlay_PointsAfterADeath(t *testing.T) {
	run := runs(t, mailing)
	clean, dead := run(""), run("1:die")
	require.Greater(t, len(dead.points), len(clean.points))
	calls := 0
	for i, p := range dead.points {
		for _, f := range faultsAt(p, dead.parts) {
			if i == 0 || p.call && f != fail {
				continue
			}
			out := run(fmt.Sprintf("1:die %d:%s", i+1, f))
			require.Contains(t, story(out.trace), "  <- ")
			require.Equal(t, clean.state, out.state)
			require.Equal(t, 2, faultsIn(out), "%d:%s", i+1, f)
			calls++
		}
	}
	require.Greater(t, calls, 20)
	three := run("1:die 2:die 4:freeze")
	require.Contains(t, story(three.trace), "worker 3 goes on\n")
	require.Equal(t, 3, faultsIn(three))
	require.Equal(t, clean.state, three.state)
}

// faultsIn counts the faults in a story.
func faultsIn(out outcomeOf) (n int) {
	for _, one := range out.trace {
		n += strings.Count(one.line, "  <- ")
	}
	return n
}

// A call without the context of its process is one of the process with numbered points.
func TestFaults_ProcessWithoutContext(t *testing.T) {
	out := runs(t, func(r *idem.Router, s *shop) {
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			return s.send(context.Background(), e.ID, e.IdempotencyKey())
		})
	})("1:die")
	require.Contains(t, story(out.trace), "worker 2 calls: send mail\n")
	require.NotContains(t, story(out.trace), "worker 1 calls")
}

// Both faults of each pair happen.
func TestSearch_PairsAreReached(t *testing.T) {
	run := runs(t, mailing)
	clean := run("")
	var ran []single
	for _, plan := range singles(clean.points, clean.parts) {
		ran = append(ran, single{plan[0], run(plan.String()).points})
	}
	s := newSearch("Torture", []TortureOption{Seed(3), Pairs(80)})
	pairs := s.pairsOf(ran, clean.parts)
	require.Equal(t, pairs, s.pairsOf(ran, clean.parts), "a seed draws the same pairs")
	require.Greater(t, len(pairs), 60)
	longer := false
	for _, plan := range pairs {
		out := run(plan.String())
		require.NoError(t, plan.reached(out.points, out.parts))
		require.Equal(t, 2, faultsIn(out), plan)
		longer = longer || plan[1].point > len(clean.points)
	}
	require.True(t, longer)
}

// A pause is longer than the longest lease, and callers wait for its end.
func TestTortureDo_LongLease(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Minute, time.Hour} {
		if lease < time.Hour { // more leases are more polls
			TortureDo(t, newShop, charged(fixed, derived), (*shop).state,
				Guard(dedup.GuardConfig{Lease: lease, Rerun: true}), Seed(1), Pairs(5))
		}
		text, broken := SearchDo(t, newShop, charged(fixed, noKey), (*shop).state,
			Guard(dedup.GuardConfig{Lease: lease, Rerun: true}), Only("4:freeze"))
		require.True(t, broken)
		require.Contains(t, text, `had its effect 2 times`)
		// Two pauses, each of two leases.
		_, broken = SearchDo(t, newShop, charged(fixed, derived), (*shop).state,
			Guard(dedup.GuardConfig{Lease: lease, Rerun: true}), Only("3:freeze 5:freeze"))
		require.False(t, broken)
	}
}

func TestTortureDo_LeaseIsTooLong(t *testing.T) {
	said := failing(t, func() {
		TortureDo(t, newShop, charged(fixed, derived), (*shop).state,
			Guard(dedup.GuardConfig{Lease: 2 * time.Hour, Rerun: true}))
	})
	require.Contains(t, said, "the test has a lease of 2h0m0s, and Torture can wait for 1h0m0s at most: "+
		"configure a shorter lease in the test")
}

// The guards of a search have the Observe of the test. A report has no code for it.
func TestTortureDo_Observe(t *testing.T) {
	calls := 0
	text, broken := SearchDo(t, newShop, charged(fixed, noKey), (*shop).state, Guard(dedup.GuardConfig{
		Rerun: true, Observe: func(context.Context, dedup.DoEvent) { calls++ },
	}), Only("4:die"))
	require.True(t, broken)
	require.Contains(t, text, "\t// Guard: add the Observe of the test\n")
	require.Contains(t, text, "idemtest.Guard(dedup.GuardConfig{Rerun: true}),")
	require.Positive(t, calls)
}

// The process that takes over is at other records than the dead one was.
func TestPlay_OtherPartsAfterADeath(t *testing.T) {
	run := runs(t, mailing)
	sent := 1 + slices.IndexFunc(run("4:die").points[4:], func(p point) bool { return p.what == "calls: send mail" })
	require.Positive(t, sent)
	out := run(fmt.Sprintf("4:die %d:others", 4+sent))
	require.Contains(t, story(out.trace), "worker 2 calls: send mail  <- another worker handles the other partitions\n")
	require.Contains(t, story(out.trace), "worker 3 claims p-1: busy")
	require.NotContains(t, story(out.trace), "worker 3 claims p-2")
}

// A schedule has the same points each time, so that its pairs and a repetition are what they say.
func TestPlay_SamePoints(t *testing.T) {
	run := runs(t, mailing)
	clean := run("")
	for _, plan := range singles(clean.points, clean.parts) {
		first := run(plan.String()).points
		for range 5 {
			require.Equal(t, first, run(plan.String()).points, plan)
		}
	}
	// The claim took too long. The processor then asked again, and the store released the late one.
	require.Equal(t, clean.points[:2], run("2:freeze").points)
}

// All goroutines of a process stand still.
func TestProcess_StandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newFaults(schedule{{1, freeze}}), 1, true)
		p.move = func() { time.Sleep(time.Minute) }
		go func() { _ = p.reach("claims", false) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, p.reach("calls", true))
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// A server that stands still gives no answer, although its time-outs end.
func TestTortureHTTP_NoAnswerOfAStillProcess(t *testing.T) {
	s := newSearch("TortureHTTP", nil)
	plan, err := parseSchedule("5:freeze")
	require.NoError(t, err)
	out := runner(t, s, newShop, func(_ *testing.T, w *shop, open opener) job {
		return newCallsJob(func(p *process) client {
			h, stop := served(true, forwarded, sent)(open(p), w)
			return client{stop: stop, call: func() reply { return send(h, order().WithContext(p.ctx)) }}
		})
	}, (*shop).state)(plan)
	text := story(out.trace)
	still, goes := strings.Index(text, "worker 1 records the completion, before  <- "), strings.Index(text, "worker 1 goes on")
	require.Positive(t, still, text)
	require.Greater(t, goes, still, text)
	require.NotContains(t, text[still:goes], "worker 1 answers")
}
