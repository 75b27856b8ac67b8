package dedup_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// enter takes the key here.
func (d *desk) enter() *dedup.Entry {
	d.Helper()
	e, a, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey})
	require.NoError(d, err)
	require.Equal(d, dedup.Fresh, a.Verdict)
	return e
}

// H-18: the store does not take a result early. The claim is renewed, and the entry ends later.
func TestEntry_TryCompleteIsNotTaken_H18(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		e := d.enter()
		d.s.onComplete = dropped
		require.ErrorIs(d, e.TryComplete(d.Context(), dedup.Result{}), dedup.ErrUnknownOutcome)
		time.Sleep(3 * lease)
		require.NoError(d, e.Context().Err())
		require.NoError(d, e.Begin(d.Context()))
		_, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey, Wait: -1})
		require.NoError(d, err)
		require.Equal(d, dedup.Busy, a.Verdict)

		d.s.onComplete = nil
		want := dedup.Result{Schema: 9, Data: []byte("kept")}
		require.NoError(d, e.Complete(d.Context(), want))
		_, a, err = d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		require.Equal(d, want, a.Result)
	})
}

// completing lets all later calls of Complete go this way; nil: to the store.
func (d *desk) completing() (set func(way func(context.Context, func() error) error)) {
	var now atomic.Pointer[func(context.Context, func() error) error]
	d.s.onComplete = func(ctx context.Context, call func() error) error {
		return through(ctx, *now.Load(), call)
	}
	return func(way func(context.Context, func() error) error) { now.Store(&way) }
}

// H-18: the store has taken an early result, and its answers are lost. A renewal finds the key done.
// That is no loss, and a repeated completion decides.
func TestEntry_AnswerOfTryCompleteIsLost_H18(t *testing.T) {
	for name, way := range map[string]func(context.Context, func() error) error{
		"refused": answerLost,
		"hangs":   func(ctx context.Context, call func() error) error { _ = call(); return hang(ctx) },
	} {
		for _, lasts := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, lasts %v", name, lasts), func(t *testing.T) {
				atDesk(t, dedup.GuardConfig{Lease: 6 * time.Second}, func(d *desk) {
					want := dedup.Result{Schema: 9, Data: []byte("kept")}
					e, complete := d.enter(), d.completing()
					complete(way)
					require.ErrorIs(d, e.TryComplete(d.Context(), want), dedup.ErrUnknownOutcome)
					require.NoError(d, e.Context().Err())
					time.Sleep(lasts)
					require.NoError(d, e.Context().Err())
					complete(nil)
					time.Sleep(10 * time.Second)
					before := d.s.completes.Load()
					time.Sleep(time.Minute)
					require.Equal(d, before, d.s.completes.Load(), "a decision is final")
					require.NoError(d, e.Context().Err())
					require.NoError(d, e.Complete(d.Context(), want))
					_, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
					require.NoError(d, err)
					require.Equal(d, want, a.Result)
				})
			})
		}
	}
}

// an early result does not arrive, and the store gives the key to another process. The
// repeated completion finds that, and the context of the entry ends.
func TestEntry_TryCompleteIsNotTakenAndTheKeyIsLost_R06(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		e, complete := d.enter(), d.completing()
		complete(dropped)
		require.ErrorIs(d, e.TryComplete(d.Context(), dedup.Result{}), dedup.ErrUnknownOutcome)
		require.NoError(d, d.mem.Release(d.Context(), []dedup.Release{
			{Claim: e.Claim(), Outcome: dedup.Failed, Retention: time.Hour},
		}))
		heir, _, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		time.Sleep(lease)
		require.NoError(d, e.Context().Err(), "a renewal alone decides nothing")
		complete(nil)
		time.Sleep(lease / 6)
		require.ErrorIs(d, context.Cause(e.Context()), dedup.ErrClaimLost)
		require.ErrorIs(d, e.Complete(d.Context(), dedup.Result{}), dedup.ErrClaimLost)
		require.NoError(d, heir.Complete(d.Context(), dedup.Result{}))
	})
}

// A result that is taken early is the end of the entry, and followers get the result.
func TestEntry_TryCompleteIsTaken(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		e := d.enter()
		want := dedup.Result{Schema: 9, Data: []byte("kept")}
		all := together(2, func(i int) (paid, bool, error) {
			if i == 0 {
				time.Sleep(time.Second)
				return paid{}, false, e.TryComplete(d.Context(), want)
			}
			_, a, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey})
			require.Equal(d, want, a.Result)
			return paid{}, true, err
		})
		require.NoError(d, all[0].err)
		require.NoError(d, all[1].err)
		require.ErrorIs(d, context.Cause(e.Context()), context.Canceled)
		require.False(d, d.here.Running(thisKey))
		require.ErrorContains(d, e.TryComplete(d.Context(), want), "ended already")
		require.ErrorContains(d, e.Release(d.Context(), dedup.Failed), "ended already")
		require.EqualValues(d, 1, d.s.claims.Load(), "the follower did not ask the store")
	})
}

// another process has the key. The context of the entry ends, and its result is not kept.
func TestEntry_TryCompleteAfterATakeOver_R06(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onRenew = func() error { return errDown }
		e := d.enter()
		<-e.Context().Done()
		heir, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		require.Equal(d, dedup.Uncertain, a.Verdict)
		require.ErrorIs(d, e.TryComplete(d.Context(), dedup.Result{}), dedup.ErrClaimLost)
		require.ErrorIs(d, context.Cause(e.Context()), dedup.ErrClaimLost)
		require.ErrorIs(d, e.Release(d.Context(), dedup.Unknown), dedup.ErrClaimLost)
		require.NoError(d, heir.Complete(d.Context(), dedup.Result{}))
	})
}

// G-13: a result that is stored early is sealed.
func TestEntry_TryCompleteSeals_G13(t *testing.T) {
	keys := dedup.GuardConfig{Keyring: keyring(t, "one", map[string][]byte{"one": make([]byte, 32)})}
	atDesk(t, keys, func(d *desk) {
		want := dedup.Result{Schema: 9, Data: []byte("kept")}
		require.NoError(d, d.enter().TryComplete(d.Context(), want))
		_, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		require.Equal(d, want, a.Result)
		plain := dedup.NewGuard(d.mem, dedup.GuardConfig{})
		defer plain.Close()
		_, _, err = plain.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.ErrorIs(d, err, dedup.ErrSealed)
	})
}

// The hung handler's key is taken away at the time at which the handler ends. One of the two writes
// the end, while the store is down for a moment, and the other one waits for it.
func TestEntry_EndsTogether(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		e := d.enter()
		d.s.onComplete, d.s.onRelease = dropped, dropped
		all := together(2, func(i int) (paid, bool, error) {
			if i == 0 {
				return paid{}, false, e.Release(d.Context(), dedup.Unknown)
			}
			time.Sleep(time.Second)
			return paid{}, false, e.Complete(d.Context(), dedup.Result{})
		})
		require.ErrorIs(d, all[0].err, dedup.ErrUnknownOutcome)
		require.ErrorContains(d, all[1].err, "ended already")
	})
}
