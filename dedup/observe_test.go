package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// watched has the events of the observer of a test.
type watched struct{ events []dedup.DoEvent }

func (w *watched) observe(_ context.Context, e dedup.DoEvent) { w.events = append(w.events, e) }

// only returns the one event since the last call.
func (w *watched) only(t *testing.T) dedup.DoEvent {
	t.Helper()
	require.Len(t, w.events, 1)
	e := w.events[0]
	w.events = nil
	return e
}

// Every call is reported once, with its outcome and the times of the wait and of the run.
func TestObserve_Do(t *testing.T) {
	declined := errors.New("declined")
	do := func(d *desk, g *dedup.Guard, fn func(context.Context) (paid, error), opts ...dedup.DoOption) error {
		_, _, err := dedup.Do(d.Context(), g, thisKey, fn, opts...)
		return err
	}
	fails := func(err error) func(context.Context) (paid, error) {
		return func(context.Context) (paid, error) { return paid{}, err }
	}
	for want, c := range map[dedup.DoOutcome]func(d *desk, w *watched) error{
		dedup.DoRan:    func(d *desk, _ *watched) error { return do(d, d.here, d.pay(time.Second)) },
		dedup.DoFailed: func(d *desk, _ *watched) error { return do(d, d.here, fails(declined)) },
		dedup.DoReplayed: func(d *desk, _ *watched) error {
			require.NoError(d, do(d, d.there, d.pay(0)))
			return do(d, d.here, d.pay(0))
		},
		dedup.DoInFlight: func(d *desk, _ *watched) error {
			go func() { _ = do(d, d.there, d.pay(time.Minute)) }()
			synctest.Wait()
			return do(d, d.here, d.pay(0))
		},
		dedup.DoConflict: func(d *desk, _ *watched) error {
			require.NoError(d, do(d, d.there, d.pay(0), dedup.SamePayload(dedup.Fingerprint{1})))
			return do(d, d.here, d.pay(0), dedup.SamePayload(dedup.Fingerprint{2}))
		},
		dedup.DoGivenUp: func(d *desk, _ *watched) error {
			require.Error(d, do(d, d.there, fails(dedup.ErrUnknownOutcome)))
			require.NoError(d, d.mem.Discard(d.Context(), thisKey, time.Hour, "refunded"))
			return do(d, d.here, d.pay(0))
		},
		dedup.DoNoResult: func(d *desk, _ *watched) error {
			_, _, err := dedup.Do(d.Context(), d.there, thisKey, func(context.Context) (string, error) { return "text", nil })
			require.NoError(d, err)
			return do(d, d.here, d.pay(0))
		},
		dedup.DoUnknown: func(d *desk, _ *watched) error {
			return do(d, d.here, fails(fmt.Errorf("cut: %w", dedup.ErrUnknownOutcome)))
		},
		dedup.DoLost: func(d *desk, _ *watched) error {
			d.s.onComplete = func(context.Context, func() error) error { return dedup.ErrClaimLost }
			return do(d, d.here, d.pay(0))
		},
		dedup.DoError: func(d *desk, _ *watched) error {
			d.s.onClaim = dropped
			return do(d, d.here, d.pay(0))
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			var w watched
			atDesk(t, dedup.GuardConfig{}, func(d *desk) {
				d.here.Close()
				d.here = dedup.NewGuard(d.s, dedup.GuardConfig{Observe: w.observe})
				defer d.here.Close()
				began := time.Now()
				err := c(d, &w)
				e := w.only(d.T)
				require.Equal(d, want, e.Outcome)
				require.Equal(d, thisKey, e.Key)
				require.Equal(d, err, e.Err)
				require.False(d, e.Tx)
				require.LessOrEqual(d, e.Waited+e.Ran, e.Took)
				switch want {
				case dedup.DoRan:
					require.Equal(d, []time.Duration{0, time.Second, time.Second}, []time.Duration{e.Waited, e.Ran, e.Took})
				case dedup.DoInFlight:
					require.Equal(d, []time.Duration{dedup.DefaultWait, 0, dedup.DefaultWait}, []time.Duration{e.Waited, e.Ran, e.Took})
					time.Sleep(time.Minute) // until the other has ended
				default:
					require.Equal(d, time.Since(began), e.Took)
				}
			})
		})
	}
}

// The error of the caller does not decide the outcome alone. After an error because of the end of
// the context, the outcome is unknown. An error of the function may match an error of Do, and stays
// the function's. A result that cannot be kept belongs to a run that had its effect.
func TestObserve_Do_TheFunctionsOwnWord(t *testing.T) {
	var w watched
	atDesk(t, dedup.GuardConfig{Observe: w.observe}, func(d *desk) {
		ctx, cancel := context.WithCancel(d.Context())
		_, _, err := dedup.Do(ctx, d.here, thisKey, func(ctx context.Context) (paid, error) {
			cancel()
			return paid{}, ctx.Err()
		})
		require.ErrorIs(d, err, context.Canceled)
		require.Equal(d, dedup.DoUnknown, w.only(d.T).Outcome)

		_, _, err = dedup.Do(d.Context(), d.here, thisKey, d.pay(0))
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		e := w.only(d.T)
		require.Equal(d, dedup.DoUnknown, e.Outcome)
		require.Zero(d, e.Ran, "of the earlier run")

		other := dedup.Key{Scope: "pay", ID: "other"}
		_, _, err = dedup.Do(d.Context(), d.here, other, func(context.Context) (paid, error) {
			return paid{}, fmt.Errorf("inner: %w", dedup.ErrConflict)
		})
		require.ErrorIs(d, err, dedup.ErrConflict)
		require.Equal(d, dedup.DoFailed, w.only(d.T).Outcome)

		_, _, err = dedup.Do(d.Context(), d.here, other, func(context.Context) (func(), error) { return func() {}, nil })
		require.ErrorIs(d, err, dedup.ErrResult)
		require.Equal(d, dedup.DoRan, w.only(d.T).Outcome)
	})
}

// A call that does not return is reported too.
func TestObserve_Do_PanicAndGoexit(t *testing.T) {
	var w watched
	atDesk(t, dedup.GuardConfig{Observe: w.observe}, func(d *desk) {
		key := func(id string) dedup.Key { return dedup.Key{Scope: "s", ID: id} }
		require.Panics(d, func() {
			_, _, _ = dedup.Do(d.Context(), d.here, key("panic"), func(context.Context) (int, error) {
				time.Sleep(time.Second)
				panic("no")
			})
		})
		e := w.only(d.T)
		require.Equal(d, dedup.DoPanicked, e.Outcome)
		require.Equal(d, time.Second, e.Ran)
		require.NoError(d, e.Err)
		go func() {
			_, _, _ = dedup.Do(d.Context(), d.here, key("exit"), func(context.Context) (int, error) {
				runtime.Goexit()
				return 0, nil
			})
		}()
		synctest.Wait()
		require.Equal(d, dedup.DoPanicked, w.only(d.T).Outcome)
		require.Panics(d, func() {
			_, _, _ = dedup.Do(d.Context(), d.here, key("odd"), func(context.Context) (odd, error) { return odd{}, nil })
		})
		require.Equal(d, dedup.DoUnknown, w.only(d.T).Outcome, "it ran to its end")
		d.s.onClaim = func(context.Context, func() error) error { panic("store") }
		require.Panics(d, func() { _, _, _ = d.do(d.here, 0) })
		require.Equal(d, dedup.DoError, w.only(d.T).Outcome)
	})
}

// In a transaction every failure is rolled back. After a commit with an unknown outcome, the next
// call asks again.
func TestObserve_DoTx(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, _, _ *dedup.Guard) {
		var w watched
		here := dedup.NewGuard(b, dedup.GuardConfig{Observe: w.observe})
		defer here.Close()
		do := func(id string, fn func(context.Context, *page) (booked, error)) error {
			_, _, err := dedup.DoTx(t.Context(), here, dedup.Key{Scope: "books", ID: id}, time.Minute, fn)
			return err
		}
		told := func(want dedup.DoOutcome, err error) {
			t.Helper()
			e := w.only(t)
			require.Equal(t, want, e.Outcome)
			require.Equal(t, err, e.Err)
			require.True(t, e.Tx)
		}
		fails := func(want dedup.DoOutcome, err error) {
			t.Helper()
			require.Error(t, err)
			told(want, err)
		}

		require.NoError(t, do("a", book("a", time.Second)))
		require.Equal(t, time.Second, w.events[0].Ran)
		told(dedup.DoRan, nil)
		require.NoError(t, do("a", book("a", 0)))
		told(dedup.DoReplayed, nil)
		fails(dedup.DoFailed, do("b", func(context.Context, *page) (booked, error) { return booked{}, errors.New("declined") }))
		_, _, err := dedup.DoTx(t.Context(), here, dedup.Key{Scope: "books", ID: "f"}, time.Minute,
			func(context.Context, *page) (func(), error) { return func() {}, nil })
		require.ErrorIs(t, err, dedup.ErrResult)
		told(dedup.DoFailed, err)
		require.Panics(t, func() { _ = do("c", func(context.Context, *page) (booked, error) { panic("no") }) })
		told(dedup.DoPanicked, nil)

		b.commits = func(func()) error { return errCut }
		err = do("d", book("d", 0))
		require.ErrorIs(t, err, dedup.ErrUnknownCommit)
		told(dedup.DoUnknown, err)
		b.commits, b.down = nil, func(int) bool { return true }
		fails(dedup.DoError, do("d", book("d", 0)))
	})
}
