package dynamostore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Rule 8: one caller in ten minutes asks for a known birth, and each caller for an unknown one.
func TestOneCallerAsksForAKnownBirth_Rule8(t *testing.T) {
	var b births
	now, born := time.Now(), time.UnixMilli(7)
	asks := func(scope string, want time.Time, wantAsk bool) {
		t.Helper()
		known, ask := b.of(scope, now)
		require.Equal(t, want, known)
		require.Equal(t, wantAsk, ask)
	}
	asks("a", time.Time{}, true)
	asks("a", time.Time{}, true)
	b.remember("a", born, now)
	asks("a", born, false)
	now = now.Add(birthAge)
	asks("a", born, true)
	asks("a", born, false)
	b.askAgain("a")
	asks("a", born, true)
	asks("a", born, false)
	b.askAgain("b")
	asks("b", time.Time{}, true)
}

func TestBirthWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 500*time.Millisecond, birthWait(t.Context()))
		for limit, want := range map[time.Duration]time.Duration{
			time.Minute: 500 * time.Millisecond, time.Second: 500 * time.Millisecond, 300 * time.Millisecond: 150 * time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			require.Equal(t, want, birthWait(ctx))
			cancel()
		}
	})
}
