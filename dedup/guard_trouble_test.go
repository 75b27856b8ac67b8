package dedup_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// a claim with a lost answer is asked for again under its own token, and does not count as
// the claim of another caller.
func TestDo_AnswerOfTheClaimIsLost_R01(t *testing.T) {
	for lost := 1; lost <= 2; lost++ {
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			d.s.onClaim = first(lost, answerLost)
			began := time.Now()
			r, replayed, err := d.do(d.here, time.Second)
			require.NoError(d, err)
			require.False(d, replayed)
			require.EqualValues(d, 1, r.Receipt)
			require.Less(d, time.Since(began), 2*time.Second)
			d.replays(1)
		})
	}
}

// Rule 32: a claim that may have been granted without an answer is given back. The next claim is
// Fresh.
func TestDo_UnknownClaimIsGivenBack(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = first(3, answerLost)
		_, _, err := d.do(d.here, 0)
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		require.ErrorContains(d, err, thisKey.String())
		require.Zero(d, d.runs.Load())
		_, replayed, err := d.do(d.there, 0, dedup.WaitFor(-1))
		require.NoError(d, err)
		require.False(d, replayed)
	})
}

// when the store is down no function runs, and callers that asked together get the error
// together.
func TestDo_StoreIsDown_R19(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = func(context.Context, func() error) error {
			time.Sleep(time.Second)
			return errDown
		}
		for _, o := range together(100, func(int) (paid, bool, error) { return d.do(d.here, 0) }) {
			require.ErrorIs(d, o.err, dedup.ErrUnavailable)
			require.LessOrEqual(d, o.after, dedup.DefaultStoreTimeout)
		}
		require.EqualValues(d, 2, d.s.claims.Load())
		require.Zero(d, d.runs.Load())
		time.Sleep(time.Second) // the call that was given up is over
		synctest.Wait()
		d.s.onClaim = nil
		_, _, err := d.do(d.here, 0)
		require.NoError(d, err)
	})
}

// An end of the leader's question for a reason of its own is not the answer of the others.
func TestDo_TheLeaderHangsUpWhileHeAsks(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = first(1, func(ctx context.Context, _ func() error) error { return hang(ctx) })
		ctx, cancel := context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		all := together(3, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			if i == 0 {
				return dedup.Do(ctx, d.here, thisKey, d.pay(0))
			}
			return d.do(d.here, 0)
		})
		require.ErrorIs(d, all[0].err, context.DeadlineExceeded)
		require.NoError(d, all[1].err)
		require.NoError(d, all[2].err)
		require.EqualValues(d, 1, d.runs.Load())
	})
}

// A panic of the store reaches one caller, and no other caller waits for that one.
func TestDo_StorePanics(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = first(1, func(context.Context, func() error) error { panic("a bug") })
		require.Panics(d, func() { _, _, _ = d.do(d.here, 0) })
		require.False(d, d.here.Running(thisKey))
		_, _, err := d.do(d.here, 0)
		require.NoError(d, err)
	})
}

// H-18: a result that arrived without an answer is in the store.
func TestDo_AnswerOfTheCompletionIsLost_H18(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onComplete = first(3, answerLost)
		r, _, err := d.do(d.here, 0)
		require.NoError(d, err)
		require.EqualValues(d, 1, r.Receipt)
		d.replays(1)
	})
}

// H-18: the store fails after the effect. The caller gets the result and an error. The function
// never runs again.
func TestDo_ResultIsNotTaken_H18(t *testing.T) {
	for name, way := range map[string]func(context.Context, func() error) error{
		"refused": dropped,
		"hangs":   func(ctx context.Context, _ func() error) error { return hang(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, dedup.GuardConfig{}, func(d *desk) {
				var up atomic.Bool
				d.s.onComplete = func(ctx context.Context, call func() error) error {
					if up.Load() {
						return call()
					}
					return way(ctx, call)
				}
				all := together(3, func(i int) (paid, bool, error) {
					time.Sleep(time.Duration(i) * time.Millisecond)
					return d.do(d.here, 0, dedup.WaitFor(11*time.Second))
				})
				require.ErrorIs(d, all[0].err, dedup.ErrUnknownOutcome)
				require.ErrorIs(d, all[0].err, errOf(name))
				require.EqualValues(d, 1, all[0].Receipt, "it was paid, and the caller knows")
				require.False(d, all[0].replayed)
				require.LessOrEqual(d, all[0].after, 10*time.Second)
				require.ErrorIs(d, all[1].err, dedup.ErrInFlight)
				require.ErrorIs(d, all[2].err, dedup.ErrInFlight)
				up.Store(true)
				d.fails(dedup.ErrInFlight)
				time.Sleep(lease)
				d.fails(dedup.ErrUnknownOutcome)
				time.Sleep(20 * time.Hour)
				d.fails(dedup.ErrUnknownOutcome)
				require.EqualValues(d, 1, d.runs.Load())
			})
		})
	}
}

func errOf(name string) error {
	if name == "hangs" {
		return context.DeadlineExceeded
	}
	return dedup.ErrUnavailable
}

// H-18: when the store comes back within ten seconds, all is well.
func TestDo_ResultIsTakenLater_H18(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		began := time.Now()
		d.s.onComplete = func(_ context.Context, call func() error) error {
			if time.Since(began) < 8*time.Second {
				return errDown
			}
			return call()
		}
		_, _, err := d.do(d.here, 0)
		require.NoError(d, err)
		require.Less(d, d.s.completes.Load(), int64(20), "with pauses")
		d.replays(1)
	})
}

// The release after an error does not arrive. For other callers, the function may have had an
// effect.
func TestDo_ReleaseIsNotTaken(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		declined := errors.New("declined")
		fn := func(context.Context) (paid, error) { return paid{}, declined }
		d.s.onRelease = first(2, answerLost)
		_, _, err := dedup.Do(d.Context(), d.here, thisKey, fn)
		require.Equal(d, declined, err)
		d.s.onRelease = dropped
		began := time.Now()
		_, _, err = dedup.Do(d.Context(), d.here, thisKey, fn)
		require.Equal(d, declined, err, "what happened is told, not what became of the store")
		require.LessOrEqual(d, time.Since(began), 10*time.Second)
		d.s.onRelease = nil
		d.fails(dedup.ErrInFlight)
		time.Sleep(lease)
		d.fails(dedup.ErrUnknownOutcome)
	})
}

// a run that lost its claim gets the error. Its result does not replace the result of
// the next run.
func TestDo_ClaimIsLost_R06(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Rerun: true}, func(d *desk) {
		d.s.onRenew = func() error { return errDown }
		all := together(2, func(i int) (paid, bool, error) {
			if i == 1 {
				time.Sleep(lease)
				return d.do(d.there, time.Minute)
			}
			return dedup.Do(d.Context(), d.here, thisKey, func(ctx context.Context) (paid, error) {
				d.runs.Add(1)
				<-ctx.Done()
				require.ErrorIs(d, context.Cause(ctx), dedup.ErrClaimLost)
				time.Sleep(5 * time.Second)
				return paid{Receipt: 99}, nil
			})
		})
		require.ErrorIs(d, all[0].err, dedup.ErrClaimLost)
		require.NotErrorIs(d, all[0].err, dedup.ErrUnknownOutcome)
		require.ErrorContains(d, all[0].err, thisKey.String())
		require.EqualValues(d, 99, all[0].Receipt)
		require.NoError(d, all[1].err)
		require.EqualValues(d, 2, all[1].Receipt)
		d.replays(2)
	})
}

// tardy lets a call arrive, and its answer come after two seconds.
func tardy(_ context.Context, call func() error) error {
	err := call()
	time.Sleep(2 * time.Second)
	return err
}

// A claim that took longer to get than its lease is not used: the store is asked again.
func TestDo_ClaimTakesLongerThanItsLease(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Lease: time.Second, StoreTimeout: time.Minute}, func(d *desk) {
		d.s.onClaim = first(1, tardy)
		_, replayed, err := dedup.Do(d.Context(), d.here, thisKey, func(ctx context.Context) (paid, error) {
			d.runs.Add(1)
			return paid{Receipt: 1}, ctx.Err()
		})
		require.NoError(d, err)
		require.False(d, replayed)
		require.EqualValues(d, 1, d.runs.Load())
		require.EqualValues(d, 2, d.s.claims.Load())
	})
}

// Another process takes the key over while the answer is on its way: its result is replayed.
func TestDo_ClaimTakesLongerThanItsLeaseAndHasAnHeir(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Lease: time.Second, StoreTimeout: time.Minute, Rerun: true}, func(d *desk) {
		d.s.onClaim = first(1, func(ctx context.Context, call func() error) error {
			err := tardy(ctx, call)
			_, _, there := d.do(d.there, 0)
			require.NoError(d, there)
			return err
		})
		r, replayed, err := d.do(d.here, 0)
		require.NoError(d, err)
		require.True(d, replayed)
		require.EqualValues(d, 1, r.Receipt)
		require.EqualValues(d, 1, d.runs.Load())
	})
}

// A store that always answers too late cannot be used, and is not asked for ever.
func TestDo_ClaimsAlwaysTakeLongerThanTheirLease(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Lease: time.Second, StoreTimeout: time.Minute}, func(d *desk) {
		d.s.onClaim = tardy
		_, _, err := d.do(d.here, 0)
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		require.ErrorContains(d, err, "longer than the lease")
		require.Zero(d, d.runs.Load())
		require.EqualValues(d, 3, d.s.claims.Load())
		_, _, err = d.do(d.there, 0, dedup.WaitFor(-1))
		require.NoError(d, err, "it never ran, and the store knows")
	})
}

// Time passes between Enter and the work, and no renewal succeeds.
func TestEntry_BeginAfterAPause(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Lease: time.Second}, func(d *desk) {
		d.s.onRenew = func() error { return errDown }
		entry, _, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		require.NoError(d, entry.Begin(d.Context()))
		time.Sleep(time.Second)
		require.ErrorIs(d, entry.Begin(d.Context()), dedup.ErrClaimLost)
		require.False(d, d.here.Running(thisKey))
		_, _, err = d.do(d.there, 0, dedup.WaitFor(-1))
		require.NoError(d, err, "it never ran, and the store knows")
	})
}

// The lease counts from when the claim was sent: the answer takes most of it, and no renewal succeeds.
func TestDo_LeaseCountsFromTheRequest(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Lease: 10 * time.Second, StoreTimeout: time.Minute}, func(d *desk) {
		d.s.onRenew = func() error { return errDown }
		d.s.onClaim = func(_ context.Context, call func() error) error {
			err := call()
			time.Sleep(9 * time.Second)
			return err
		}
		began := time.Now()
		_, _, _ = dedup.Do(d.Context(), d.here, thisKey, func(ctx context.Context) (paid, error) {
			select {
			case <-ctx.Done():
				require.ErrorIs(d, context.Cause(ctx), dedup.ErrClaimLost)
			case <-time.After(time.Minute):
			}
			require.Equal(d, 10*time.Second, time.Since(began), "the lease is 10 s and began with the request")
			return paid{}, ctx.Err()
		})
	})
}

// P-24, H-03: another payload under the same key.
func TestDo_Conflict_H03(t *testing.T) {
	mine, other := dedup.SamePayload(dedup.Fingerprint{1}), dedup.SamePayload(dedup.Fingerprint{2})
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		all := together(6, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			switch i {
			case 0:
				return d.do(d.here, time.Second, mine)
			case 1:
				return d.do(d.here, 0, other)
			case 2:
				return d.do(d.there, 0, other, dedup.WaitFor(-1))
			case 3:
				return d.do(d.here, 0, mine)
			}
			return d.do(d.here, 0) // without a fingerprint of its payload
		})
		for i, o := range all {
			if i == 1 || i == 2 {
				require.ErrorIs(d, o.err, dedup.ErrConflict)
				require.Equal(d, time.Duration(i)*time.Millisecond, o.after, "at once")
				continue
			}
			require.NoError(d, o.err)
			require.EqualValues(d, 1, o.Receipt)
		}
		for _, g := range []*dedup.Guard{d.here, d.there} {
			_, _, err := d.do(g, 0, other)
			require.ErrorIs(d, err, dedup.ErrConflict)
			require.ErrorContains(d, err, thisKey.String())
			_, _, err = d.do(g, 0, mine)
			require.NoError(d, err)
		}
	})
}

// P-24: a run without a fingerprint of its payload conflicts with no other run.
func TestDo_NoPayloadNoConflict(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		all := together(5, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			if i == 0 {
				return d.do(d.there, time.Second)
			}
			return d.do(d.here, 0, dedup.SamePayload(dedup.Fingerprint{byte(i)}))
		})
		for _, o := range all {
			require.NoError(d, o.err)
			require.EqualValues(d, 1, o.Receipt)
		}
	})
}

// P-24: the answer to one payload is no answer to another. Callers with the wrong payload, or
// without one, do not change the results of other callers at the same time.
func TestDo_ConflictIsNotShared(t *testing.T) {
	a, b := dedup.Fingerprint{1}, dedup.Fingerprint{2}
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		_, _, err := d.do(d.here, 0, dedup.SamePayload(a))
		require.NoError(d, err)
		d.s.onClaim = func(_ context.Context, call func() error) error {
			time.Sleep(10 * time.Millisecond)
			return call()
		}
		for _, leads := range []dedup.Fingerprint{a, b, {}} {
			prints := []dedup.Fingerprint{leads, a, b, {}, a, b, {}}
			all := together(len(prints), func(i int) (paid, bool, error) {
				time.Sleep(time.Duration(i) * time.Microsecond)
				return d.do(d.here, 0, dedup.SamePayload(prints[i]))
			})
			for i, o := range all {
				if prints[i] == b {
					require.ErrorIs(d, o.err, dedup.ErrConflict)
					continue
				}
				require.NoError(d, o.err)
				require.EqualValues(d, 1, o.Receipt)
			}
		}
	})
}

// A release that returns something else runs once more, once; the older one is served as ever.
func TestDo_SchemaChanges(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		call := func(version uint32) func(i int) (paid, bool, error) {
			return func(i int) (paid, bool, error) {
				g := d.here
				if i%2 == 1 {
					g = d.there
				}
				return d.do(g, time.Second, dedup.Schema(version))
			}
		}
		ran := int64(0)
		receipts := map[uint32]int64{}
		for _, version := range []uint32{1, 2, 3, 2, 1, 0, 1} {
			if receipts[version] == 0 {
				ran++
				receipts[version] = ran
			}
			for _, o := range together(50, call(version)) {
				require.NoError(d, o.err)
				require.Equal(d, receipts[version], o.Receipt, "version %d", version)
			}
			require.Equal(d, ran, d.runs.Load(), "version %d", version)
		}
		mixed := together(100, func(i int) (paid, bool, error) { return call(uint32(i/2) % 4)(i) })
		for i, o := range mixed {
			require.NoError(d, o.err)
			require.Equal(d, receipts[uint32(i/2)%4], o.Receipt)
		}
	})
}

// For a result that cannot be replayed, the call returns an error, and the function never runs
// again.
func TestDo_ResultsThatCannotBeReplayed(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		key := func(id string) dedup.Key { return dedup.Key{Scope: "s", ID: id} }
		text := func(context.Context) (string, error) { d.runs.Add(1); return strings.Repeat("x", 50), nil }
		_, _, err := dedup.Do(d.Context(), d.here, key("text"), text)
		require.NoError(d, err)
		_, replayed, err := dedup.Do(d.Context(), d.here, key("text"), d.pay(0))
		require.ErrorIs(d, err, dedup.ErrResult)
		require.ErrorContains(d, err, key("text").String())
		require.False(d, replayed)

		// H-06: too large for the store.
		d.s.limit = 51 // two quotes more than the text
		r, _, err := dedup.Do(d.Context(), d.here, key("large"), text)
		require.NoError(d, err)
		require.Len(d, r, 50)
		_, _, err = dedup.Do(d.Context(), d.there, key("large"), text)
		require.ErrorIs(d, err, dedup.ErrNoResult)
		d.s.limit = 52
		_, _, err = dedup.Do(d.Context(), d.here, key("fits"), text)
		require.NoError(d, err)
		_, replayed, err = dedup.Do(d.Context(), d.there, key("fits"), text)
		require.NoError(d, err)
		require.True(d, replayed)

		fn := func(context.Context) (func() int, error) { d.runs.Add(1); return func() int { return 42 }, nil }
		call, _, err := dedup.Do(d.Context(), d.here, key("func"), fn)
		require.ErrorIs(d, err, dedup.ErrResult)
		require.NotErrorIs(d, err, dedup.ErrUnknownOutcome)
		require.Equal(d, 42, call())
		_, _, err = dedup.Do(d.Context(), d.here, key("func"), fn)
		require.ErrorIs(d, err, dedup.ErrNoResult)
		require.EqualValues(d, 4, d.runs.Load())

		nothing, replayed, err := dedup.Do(d.Context(), d.here, key("nil"), func(context.Context) (*paid, error) { return nil, nil })
		require.NoError(d, err)
		require.False(d, replayed)
		require.Nil(d, nothing)
		nothing, replayed, err = dedup.Do(d.Context(), d.here, key("nil"), func(context.Context) (*paid, error) { panic("no") })
		require.NoError(d, err)
		require.True(d, replayed)
		require.Nil(d, nothing)

		require.Panics(d, func() {
			_, _, _ = dedup.Do(d.Context(), d.here, key("odd"), func(context.Context) (odd, error) { return odd{}, nil })
		})
		_, _, err = dedup.Do(d.Context(), d.here, key("odd"), d.pay(0))
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		require.False(d, d.here.Running(key("odd")))
	})
}

type odd struct{}

func (odd) MarshalJSON() ([]byte, error) { panic("a bug") }

// A store that returns no answer and no error has not answered.
func TestDo_StoreReturnsNoVerdict(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = func(context.Context, func() error) error { return nil }
		_, _, err := d.do(d.here, 0)
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		require.ErrorContains(d, err, "no verdict")
		require.NotErrorIs(d, err, dedup.ErrInFlight)
		d.s.onClaim = nil
		_, _, err = d.do(d.here, 0)
		require.NoError(d, err)
	})
}
