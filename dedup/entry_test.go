package dedup_test

import (
	"context"
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
