package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// The record of the key expires before that of a later version, and the version runs once.
func TestDo_VersionOutlivesTheKey(t *testing.T) {
	for _, order := range [][2]uint32{{1, 2}, {2, 1}, {2, 3}, {0, 1}} {
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			before, after := dedup.Schema(order[0]), dedup.Schema(order[1])
			_, _, err := d.do(d.here, 0, before)
			require.NoError(d, err)
			time.Sleep(23 * time.Hour)
			r, replayed, err := d.do(d.here, 0, after)
			require.NoError(d, err)
			require.False(d, replayed)
			require.EqualValues(d, 2, r.Receipt)
			time.Sleep(time.Hour + 1)
			for _, g := range []*dedup.Guard{d.here, d.there} {
				r, replayed, err = d.do(g, 0, after)
				require.NoError(d, err)
				require.True(d, replayed)
				require.EqualValues(d, 2, r.Receipt)
			}
			require.EqualValues(d, 2, d.runs.Load())
		})
	}
}

// Calls at the same time, some from before the end of the key's record and some after it.
func TestDo_VersionRunsWhileTheKeyExpires(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		_, _, err := d.do(d.here, 0)
		require.NoError(d, err)
		time.Sleep(24*time.Hour - time.Second)
		all := together(40, func(i int) (paid, bool, error) {
			g := d.here
			if i%2 == 1 {
				g = d.there
			}
			time.Sleep(time.Duration(i/2) * 100 * time.Millisecond)
			return d.do(g, 1500*time.Millisecond, dedup.Schema(2))
		})
		for _, o := range all {
			require.NoError(d, o.err)
			require.EqualValues(d, 2, o.Receipt)
		}
		require.EqualValues(d, 2, d.runs.Load())
	})
}

// A run of the version that goes on, or ended in doubt, when the record of the key expires.
func TestDo_VersionInDoubtOutlivesTheKey(t *testing.T) {
	unsure := func(context.Context) (paid, error) { return paid{}, dedup.ErrUnknownOutcome }
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		_, _, err := d.do(d.here, 0)
		require.NoError(d, err)
		time.Sleep(23 * time.Hour)
		running := make(chan error, 1)
		go func() {
			_, _, err := d.do(d.here, 2*time.Hour, dedup.Schema(2))
			running <- err
		}()
		_, _, err = dedup.Do(d.Context(), d.here, thisKey, unsure, dedup.Schema(3))
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		time.Sleep(time.Hour + 1)
		for _, g := range []*dedup.Guard{d.here, d.there} {
			_, _, err = d.do(g, 0, dedup.Schema(2))
			require.ErrorIs(d, err, dedup.ErrInFlight)
			_, _, err = d.do(g, 0, dedup.Schema(3))
			require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		}
		require.NoError(d, <-running)
		require.EqualValues(d, 2, d.runs.Load())
	})
}

// A run holds the key for all versions: its end without a result counts for all of them.
func TestDo_VersionsShareTheKey(t *testing.T) {
	unsure := func(context.Context) (paid, error) { return paid{}, dedup.ErrUnknownOutcome }
	for _, order := range [][2]uint32{{1, 2}, {2, 1}, {2, 3}} {
		before, after := dedup.Schema(order[0]), dedup.Schema(order[1])
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			go func() { _, _, _ = d.do(d.here, time.Minute, before) }()
			synctest.Wait()
			_, _, err := d.do(d.there, 0, after)
			require.ErrorIs(d, err, dedup.ErrInFlight)
			require.True(d, d.here.Running(thisKey))
			time.Sleep(time.Minute)
			require.EqualValues(d, 1, d.runs.Load())
			_, _, err = d.do(d.there, 0, after)
			require.NoError(d, err)
			require.EqualValues(d, 2, d.runs.Load())
		})
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			_, _, err := dedup.Do(d.Context(), d.here, thisKey, unsure, before)
			require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
			_, _, err = d.do(d.there, 0, after)
			require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
			require.Zero(d, d.runs.Load())
		})
	}
	declined := errors.New("declined")
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		for range 2 {
			_, _, err := dedup.Do(d.Context(), d.here, thisKey,
				func(context.Context) (paid, error) { return paid{}, declined }, dedup.Schema(2))
			require.ErrorIs(d, err, declined)
		}
		_, _, err := d.do(d.there, 0)
		require.NoError(d, err)
		require.False(d, d.here.Running(thisKey))
	})
}

// A call that the key refuses leaves nothing under the key of its version.
func TestDo_RefusedVersionLeavesNothing(t *testing.T) {
	mine := dedup.SamePayload(dedup.Keyed([]byte("0123456789abcdef"), []byte("7")))
	other := dedup.SamePayload(dedup.Keyed([]byte("0123456789abcdef"), []byte("8")))
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		_, _, err := d.do(d.here, 0, mine)
		require.NoError(d, err)
		_, _, err = d.do(d.there, 0, other, dedup.Schema(2))
		require.ErrorIs(d, err, dedup.ErrConflict)
		r, _, err := d.do(d.there, 0, mine, dedup.Schema(2))
		require.NoError(d, err)
		require.EqualValues(d, 2, r.Receipt)
		_, _, err = d.do(d.there, 0, other, dedup.Schema(2))
		require.ErrorIs(d, err, dedup.ErrConflict)

		d.s.onClaim = func(_ context.Context, call func() error) error { // only the first key of a call
			d.s.onClaim = dropped
			return call()
		}
		_, _, err = d.do(d.here, 0, dedup.Schema(3))
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		d.s.onClaim = nil
		_, _, err = d.do(d.there, 0, dedup.Schema(3))
		require.NoError(d, err)
		require.EqualValues(d, 3, d.runs.Load())
		_, _, err = dedup.Do(d.Context(), d.here, dedup.Key{}, d.pay(0), dedup.Schema(2))
		require.ErrorIs(d, err, dedup.ErrKey)
	})
}

// The result of a version that is kept under the key itself, as by [dedup.Guard.Enter].
func TestDo_VersionUnderTheKey(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		entry, _, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.NoError(d, err)
		kept := dedup.Result{Schema: 2, Data: []byte(`{"Receipt":7}`)}
		require.NoError(d, entry.Complete(d.Context(), kept))
		for range 2 {
			r, replayed, err := d.do(d.here, 0, dedup.Schema(2))
			require.NoError(d, err)
			require.True(d, replayed)
			require.EqualValues(d, 7, r.Receipt)
		}
		require.Zero(d, d.runs.Load())
	})
}

// Calls without a version take no more round trips, and replays of a version take one.
func TestDo_TripsOfVersions(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		trips := func() int64 {
			return d.s.claims.Swap(0) + d.s.completes.Swap(0) + d.s.releases.Swap(0)
		}
		for i, want := range []int64{2, 1} {
			_, _, err := d.do(d.here, 0)
			require.NoError(d, err)
			require.Equal(d, want, trips(), i)
		}
		for i, want := range []int64{3, 1} { // the key of the version, the key, the result
			_, _, err := d.do(d.here, 0, dedup.Schema(2))
			require.NoError(d, err)
			require.Equal(d, want, trips(), i)
		}
		for i, want := range []int64{4, 1} { // and the release of the key
			_, _, err := dedup.Do(d.Context(), d.here, dedup.Key{ID: "new"}, d.pay(0), dedup.Schema(2))
			require.NoError(d, err)
			require.Equal(d, want, trips(), i)
		}
	})
}

func TestDoTx_VersionOutlivesTheKey(t *testing.T) {
	for _, order := range [][2]uint32{{1, 2}, {2, 1}, {2, 3}} {
		atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
			before, after := dedup.Schema(order[0]), dedup.Schema(order[1])
			_, _, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("one", 0), before)
			require.NoError(t, err)
			first := make([]dedup.Key, 0, 1)
			for key := range b.rows {
				first = append(first, key)
			}
			_, _, err = dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("two", 0), after)
			require.NoError(t, err)
			for _, key := range first {
				delete(b.rows, key) // forgotten, as after its retention
			}
			for _, g := range []*dedup.Guard{here, there} {
				r, replayed, err := dedup.DoTx(t.Context(), g, thisKey, time.Minute, book("three", 0), after)
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "two", r.Line)
			}
			require.Equal(t, []string{"one", "two"}, b.lines)
		})
	}
}

// The result of a version that is kept under the key itself, as by [dedup.EnterTx].
func TestDoTx_VersionUnderTheKey(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
		kept := dedup.Result{Schema: 2, Data: []byte(`{"Line":"kept"}`)}
		_, err := dedup.EnterTx(t.Context(), there, dedup.Call{Key: thisKey}, time.Minute,
			func(*page) (dedup.Result, error) { return kept, nil })
		require.NoError(t, err)
		r, replayed, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("two", 0), dedup.Schema(2))
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "kept", r.Line)
		require.Empty(t, b.lines)
	})
}
