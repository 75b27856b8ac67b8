package consumer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// setupWait is how long a runner waits for the tables of a store.
const setupWait = 3 * time.Second

// TestRun_StoreNotSetUp: a store without its tables ends Run within seconds, as a missing topic
// does, with the words of the store. Tables that are created in the meantime are found, and a
// server that is down is waited for.
func TestRun_StoreNotSetUp(t *testing.T) {
	missing := fmt.Errorf("store: check: %w", &dedup.SetupError{Problem: "tables are missing", Fix: "run `idem migrate up`"})
	run := func(answers ...error) (took time.Duration, err error) {
		synctest.Test(t, func(t *testing.T) {
			cfg := good()
			cfg.Store = &checked{Store: forever(), answers: append(answers, errTest)} // errTest ends Run
			c, errNew := New(cfg, routed(nothing))
			require.NoError(t, errNew)
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			began := time.Now()
			err = c.Run(ctx)
			took = time.Since(began)
		})
		return took, err
	}
	took, err := run(slices.Repeat([]error{missing}, 10_000)...)
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorContains(t, err, "tables are missing: run `idem migrate up`")
	require.GreaterOrEqual(t, took, setupWait)
	require.Less(t, took, setupWait+time.Second)

	took, err = run(missing, missing, missing)
	require.ErrorIs(t, err, errTest, "somebody has made the tables")
	require.Less(t, took, setupWait)

	took, err = run(slices.Repeat([]error{dedup.ErrUnavailable}, 100)...)
	require.ErrorIs(t, err, errTest)
	require.Greater(t, took, 5*time.Minute, "it is waited for")
}
