package sendbudget_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/sendbudget"
)

func TestBudget_Take(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sendbudget.New(10)
		require.NoError(t, b.Take(t.Context(), 11, false), "larger than the budget, and alone")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Take(ctx, 1, false), context.DeadlineExceeded)
		require.Equal(t, 11, b.Used())
		time.AfterFunc(time.Second, func() { b.Give(11) })
		require.NoError(t, b.Take(t.Context(), 4, false))
		require.NoError(t, b.Take(t.Context(), 6, false))
		require.Equal(t, 10, b.Used())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Take(ctx, 1, false), context.DeadlineExceeded, "the budget is used up")
	})
}

func TestBudget_Lock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sendbudget.New(10)
		require.NoError(t, b.Take(t.Context(), 1, false))
		require.ErrorIs(t, b.Lock(t.Context(), time.Second), sendbudget.ErrOthersInFlight)
		require.NoError(t, b.Take(t.Context(), 1, false), "a lock that failed keeps no call out")
		time.AfterFunc(time.Second, func() { b.Give(2) })
		require.NoError(t, b.Lock(t.Context(), time.Minute))
		require.ErrorIs(t, b.Lock(t.Context(), time.Second), sendbudget.ErrOthersInFlight, "one owner")
		require.NoError(t, b.Take(t.Context(), 1, true), "the owner does not wait")
		time.AfterFunc(time.Second, b.Unlock)
		began := time.Now()
		require.NoError(t, b.Take(t.Context(), 1, false))
		require.Equal(t, time.Second, time.Since(began))
	})
}
