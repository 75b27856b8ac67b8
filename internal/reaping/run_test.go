package reaping

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A run asks for the lease, works scope after scope, and leaves. The order of the calls is the
// order of the work.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tables{scopes: []string{"a", "b"}, starts: []int64{5, 2}, silent: []string{"loop"}}
		s.scope = func(_ context.Context, name string, events, claims func(int64)) error {
			if name == "a" {
				events(3)
				events(0)
				claims(4)
			}
			return nil
		}
		s.stuck = func() (int64, error) { return 7, nil }
		var told []int64
		l := s.newLoop(func(c *Config) { c.Deleted = func(n int64) { told = append(told, n) } })
		result, err := l.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, Result[string]{Events: 3, Claims: 4, Starts: 7, Stuck: 7,
			Scopes: []string{"a", "b"}, Silent: []string{"loop"}}, result)
		require.Equal(t, []int64{3, 4, 5, 2}, told, "batches without rows are not told")
		require.Equal(t, []string{"lease", "ages", "scope a", "scope b", "starts", "starts", "starts",
			"silent", "stuck", "leave"}, s.names())
		require.Empty(t, s.log.String(), "the log is that of Run")
	})
}

// Of two reapers one works. The other one changes no row, and leaves the lease alone.
func TestElsewhereAtTheStart(t *testing.T) {
	s := &tables{scopes: []string{"a"}, lease: func() error { return ErrElsewhere }}
	result, err := s.newLoop().RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, Result[string]{Elsewhere: true, Stuck: -1}, result)
	require.Equal(t, []string{"lease"}, s.names())
}

// A reaper that loses its lease ends its run. It reports the scopes that were too slow before, and
// does not end the lease of the other reaper.
func TestElsewhereInTheMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		scopes []string
		starts []int64
		calls  []string
		slow   bool
	}{
		"in the first scope": {scopes: []string{"lost", "b"},
			calls: []string{"lease", "ages", "scope lost", "lease"}},
		"after a slow scope": {scopes: []string{"slow", "lost", "b"}, slow: true,
			calls: []string{"lease", "ages", "scope slow", "scope lost", "lease"}},
		"after all scopes, one slow": {scopes: []string{"slow"}, starts: []int64{5}, slow: true,
			calls: []string{"lease", "ages", "scope slow", "starts", "lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &tables{scopes: c.scopes, starts: c.starts}
				asked := 0
				s.lease = func() error {
					if asked++; asked > 1 {
						return ErrElsewhere
					}
					return nil
				}
				l := s.newLoop(func(c *Config) { c.Pause = time.Hour }) // longer than the lease
				s.scope = func(ctx context.Context, name string, events, _ func(int64)) error {
					if name == "slow" {
						return errSlow
					}
					events(1)
					return l.Between(ctx)
				}
				result, err := l.RunOnce(t.Context())
				require.True(t, result.Elsewhere)
				require.NotErrorIs(t, err, ErrElsewhere)
				if c.slow {
					require.EqualError(t, err, `scope "slow": no end in time`)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, c.calls, s.names())
			})
		})
	}
}

// A scope that is too slow holds up no other scope, up to a number. A run of too many ends, and so
// does a run with another error. The error names every scope that failed.
func TestSlowScopes(t *testing.T) {
	slow := func(name string) string { return `scope "` + name + `": no end in time` }
	for name, c := range map[string]struct {
		scopes []string
		last   string // the last call before the end of the lease
		err    string
	}{
		"one": {[]string{"s1", "a"}, "stuck", slow("s1")},
		"the maximum": {[]string{"s1", "a", "s2", "s3", "b"}, "stuck",
			slow("s1") + "\n" + slow("s2") + "\n" + slow("s3")},
		"too many": {[]string{"s1", "s2", "s3", "s4", "a"}, "scope s4",
			slow("s1") + "\n" + slow("s2") + "\n" + slow("s3") + "\n" + slow("s4")},
		"another error": {[]string{"s1", "down", "a"}, "scope down",
			slow("s1") + "\n" + `scope "down": the store is down`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &tables{scopes: c.scopes}
			s.scope = func(_ context.Context, name string, _, _ func(int64)) error {
				switch name[0] {
				case 's':
					return errSlow
				case 'd':
					return errDown
				}
				return nil
			}
			_, err := s.newLoop().RunOnce(t.Context())
			require.EqualError(t, err, c.err)
			calls := s.names()
			require.Equal(t, []string{c.last, "leave"}, calls[len(calls)-2:])
		})
	}
}

// The end of the caller's context is not the time limit of a scope.
func TestSlowScopeAtTheEnd(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &tables{scopes: []string{"a", "b"}}
	s.scope = func(context.Context, string, func(int64), func(int64)) error {
		stop()
		return errors.Join(errSlow, ctx.Err())
	}
	_, err := s.newLoop().RunOnce(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"lease", "ages", "scope a", "leave"}, s.names(),
		"the lease ends in spite of the context")
}

// Between two batches is a pause. The lease is renewed when a quarter of it is over.
func TestBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches = 10
		s := &tables{scopes: []string{"a"}}
		l := s.newLoop(func(c *Config) { c.Pause, c.Interval = 10*time.Second, 2*time.Minute })
		s.scope = func(ctx context.Context, _ string, events, _ func(int64)) error {
			for range batches {
				s.called("batch")
				events(1)
				if err := l.Between(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		result, err := l.RunOnce(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, batches, result.Events)
		require.Equal(t, []string{"lease 0s", "ages 0s", "scope a 0s", "batch 0s", "batch 10s",
			"batch 20s", "batch 30s", "batch 40s", "batch 50s", "lease 1m0s", "batch 1m0s",
			"batch 1m10s", "batch 1m20s", "batch 1m30s", "starts 1m40s", "silent 1m40s",
			"stuck 1m40s", "leave 1m40s"}, s.calls)
	})
}

// Without a pause a batch follows the other at once, and the end of the context ends the work.
func TestBetweenWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tables{starts: []int64{1, 1, 1}}
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		l := s.newLoop(func(c *Config) {
			c.Pause = -1
			c.Deleted = func(int64) {
				if n++; n == 2 {
					stop()
				}
			}
		})
		result, err := l.RunOnce(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 2, result.Starts)
		require.Equal(t, []string{"lease 0s", "ages 0s", "starts 0s", "starts 0s", "leave 0s"},
			s.calls)
	})
}

// Starts that all changed meanwhile stay for a later run.
func TestStartsInUse(t *testing.T) {
	s := &tables{starts: []int64{2, 0, 2}}
	result, err := s.newLoop(func(c *Config) { c.Pause = -1 }).RunOnce(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, result.Starts)
	require.Equal(t, []string{"lease", "ages", "starts", "starts", "silent", "stuck", "leave"},
		s.names())
}

// After an error of the lease it is not known whether the reaper has it, so the run ends it.
func TestLeavesAfterAnUnknownEnd(t *testing.T) {
	s := &tables{lease: func() error { return errDown }}
	l := s.newLoop()
	result, err := l.RunOnce(t.Context())
	require.ErrorIs(t, err, errDown)
	require.Equal(t, Result[string]{Stuck: -1}, result)
	require.Equal(t, []string{"lease", "leave"}, s.names())
}

// After a search for stuck claims that took too long, the next one is an hour later. An error of
// the search is an error of the run.
func TestStuckRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tables{stuck: func() (int64, error) { return -1, nil }}
		l := s.newLoop()
		look := func(want int64, asks bool) {
			t.Helper()
			result, err := l.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, result.Stuck)
			calls := s.names()
			require.Equal(t, asks, calls[len(calls)-2] == "stuck")
		}
		look(-1, true)
		s.stuck = func() (int64, error) { return 4, nil }
		look(-1, false)
		time.Sleep(stuckRest - time.Second)
		look(-1, false)
		time.Sleep(time.Second)
		look(4, true)
		s.stuck = func() (int64, error) { return 0, errDown }
		for range 2 { // no rest after an error
			_, err := l.RunOnce(t.Context())
			require.ErrorIs(t, err, errDown)
		}
	})
}

// Concurrent runs of one Loop wait for each other.
func TestConcurrentRuns(t *testing.T) {
	s := &tables{scopes: []string{"a"}}
	var working atomic.Int32
	s.scope = func(context.Context, string, func(int64), func(int64)) error {
		if working.Add(1) != 1 {
			t.Error("two runs at once")
		}
		runtime.Gosched()
		working.Add(-1)
		return nil
	}
	l := s.newLoop()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := l.RunOnce(t.Context()); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	all.Wait()
}
