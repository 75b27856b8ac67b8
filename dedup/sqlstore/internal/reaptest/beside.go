package reaptest

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// otherScopesBeside: a reaper that runs in a service does not keep a job with other scopes of the
// wall clock from its work.
func otherScopesBeside(t *testing.T, site Site) {
	s := site.store(t)
	record(t, s, "g", caughtUp())
	site.put(t, old{scope: "replay", id: "1", made: 2 * day, expired: day})
	cfg, ran := soonest(), make(chan struct{}, 1)
	cfg.Interval = time.Hour
	cfg.Observe = func(sqlstore.ReapResult, error) { ran <- struct{}{} }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sqlstore.NewReaper(s, cfg).Run(ctx) }()
	<-ran
	again, err := sqlstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.NoError(t, err)
	require.True(t, again.Elsewhere, "the same work")
	job := soonest()
	job.WallClock = []string{"replay"}
	reap(t, s, job)
	require.EqualValues(t, 1, reap(t, s, job).Events)
	stop()
	require.NoError(t, <-done)
}

// slowScope: a scope whose deletion does not end in time holds up no other scope, and the error
// names it.
func slowScope(t *testing.T, site Site) {
	if site.Slow == nil {
		return // the dialect has no such answer to a deletion
	}
	s := site.store(t)
	for _, scope := range []string{"a", "b"} {
		record(t, s, scope, caughtUp())
		site.put(t, old{scope: scope, id: scope, made: 2 * day, expired: day})
	}
	reap(t, s, soonest())
	site.Slow(t)
	result, err := sqlstore.NewReaper(s, soonest()).RunOnce(t.Context())
	require.ErrorContains(t, err, `scope "a"`)
	require.NotContains(t, err.Error(), `scope "b"`)
	require.EqualValues(t, 1, result.Events)
	require.Equal(t, []string{"event/a", "key/a"}, site.left(t))
}
