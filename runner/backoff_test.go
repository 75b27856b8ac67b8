package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBackoff_Lengths_K18_K42: pauses double from 0.5 s to 10 s. Each is random, between half of
// its limit and the whole, so that members which restart together do not return together.
func TestBackoff_Lengths_K18_K42(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 20 {
			var b Backoff
			for _, ms := range []int64{500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000} {
				limit := time.Duration(ms) * time.Millisecond
				began := time.Now()
				require.NoError(t, b.Wait(t.Context()))
				took := time.Since(began)
				require.GreaterOrEqual(t, took, limit/2)
				require.LessOrEqual(t, took, limit)
				seen[took] = true
			}
		}
		require.Greater(t, len(seen), 100, "drawn at random")
	})
}

// TestBackoff_Unreachable_R19: pauses after a refused connection stay below 3 s, so that work
// resumes within ten seconds. All other errors wait as long as any.
func TestBackoff_Unreachable_R19(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err      error
		min, max time.Duration
	}{
		"refused":            {refused, maxUnreachable / 2, maxUnreachable},
		"refused, in a list": {fmt.Errorf("%w: %w", errTest, refused), maxUnreachable / 2, maxUnreachable},
		"cut":                {&net.OpError{Op: "read", Err: io.EOF}, maxBackoff / 2, maxBackoff},
		"another":            {errTest, maxBackoff / 2, maxBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Backoff{Tries: 20}
				began := time.Now()
				require.NoError(t, b.waitAfter(t.Context(), c.err))
				require.GreaterOrEqual(t, time.Since(began), c.min)
				require.LessOrEqual(t, time.Since(began), c.max)
			})
		})
	}
}

func TestBackoff_K18(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	var b Backoff
	for range 100 {
		require.ErrorIs(t, b.Wait(ctx), errTest)
	}
	require.Equal(t, 100, b.Tries)
}

var errTest = errors.New("test")
