package reaping

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/faketime"
	"github.com/stretchr/testify/require"
)

// runs lets a loop run until it has observed a number of results, and returns them. It calls before
// ahead of each run.
func (s *tables) runs(t *testing.T, n int, before func(run int)) (all []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	before(0)
	s.newLoop().Run(ctx, func(result Result[string], err error) {
		all = append(all, fmt.Sprintf("%s elsewhere=%t error=%v", time.Since(began),
			result.Elsewhere, err))
		if len(all) == n {
			stop()
			return
		}
		before(len(all))
	})
	return all
}

// Run makes a run after each interval. It logs the first error of many, the end of the trouble, and
// deletions. It leaves at the end only.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &tables{}
		results := s.runs(t, 5, func(run int) {
			s.lease, s.starts = nil, nil
			switch run {
			case 1, 2:
				s.lease = func() error { return errDown }
			case 4:
				s.starts = []int64{3}
			}
		})
		require.Equal(t, []string{"0s elsewhere=false error=<nil>",
			"1m0s elsewhere=false error=the store is down",
			"2m0s elsewhere=false error=the store is down",
			"3m0s elsewhere=false error=<nil>",
			"4m0.02s elsewhere=false error=<nil>"}, results)
		require.Equal(t, []string{
			`level=WARN msg="reaper cannot work, tries again" error="the store is down"`,
			`level=INFO msg="reaper works again"`,
			`level=INFO msg="expired records deleted" events=0 claims=0 starts=3 stuck=0`}, s.lines())
		calls := s.names()
		require.Equal(t, "leave", calls[len(calls)-1])
		require.NotContains(t, calls[:len(calls)-1], "leave")
	})
}

// Slow scopes are over when a run has looked at all scopes. A run that another reaper ended before
// says nothing about them.
func TestSlowScopesAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &tables{scopes: []string{"a", "b"}}
		slow := true
		var l *Loop[string]
		s.scope = func(ctx context.Context, name string, _, _ func(int64)) error {
			if name == "b" {
				return l.Between(ctx)
			}
			if slow {
				return errSlow
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l = s.newLoop(func(c *Config) { c.Pause = time.Hour })
		elsewhere := func(from int) { // from which call on in the run
			asked := 0
			s.lease = func() error {
				if asked++; asked >= from {
					return ErrElsewhere
				}
				return nil
			}
		}
		var errs []string
		elsewhere(2)
		l.Run(ctx, func(_ Result[string], err error) {
			errs = append(errs, fmt.Sprint(err))
			switch len(errs) {
			case 1:
				elsewhere(1)
			case 2:
				slow = false
				elsewhere(2)
			case 3:
				require.Len(t, s.lines(), 1)
				s.lease = nil
			case 4:
				stop()
			}
		})
		require.Equal(t, []string{`scope "a": no end in time`, "<nil>", "<nil>", "<nil>"}, errs)
		require.Equal(t, []string{`level=WARN msg="reaper cannot work, tries again" ` +
			`error="scope \"a\": no end in time"`, `level=INFO msg="reaper works again"`}, s.lines())
	})
}

// The store answers again when it says that another reaper has the lease. A reaper in reserve logs
// that, too.
func TestStoreAnswersAgainElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &tables{}
		s.runs(t, 2, func(run int) {
			s.lease = func() error { return []error{errDown, ErrElsewhere}[run] }
		})
		require.Equal(t, []string{
			`level=WARN msg="reaper cannot work, tries again" error="the store is down"`,
			`level=INFO msg="reaper works again"`}, s.lines())
	})
}

// The end of the context ends a run without a line in the log, and without an observed result. The
// lease ends.
func TestRunEnds(t *testing.T) {
	for name, until := range map[string]time.Duration{
		"between two runs": 90 * time.Second, "in a run": 10 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer faketime.Bound(t.Name())()
				s := &tables{scopes: []string{"a"}}
				s.scope = func(ctx context.Context, _ string, _, _ func(int64)) error {
					select {
					case <-time.After(time.Minute):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				ctx, stop := context.WithTimeout(t.Context(), until)
				defer stop()
				began, observed := time.Now(), 0
				s.newLoop().Run(ctx, func(Result[string], error) { observed++ })
				require.Equal(t, until, time.Since(began))
				require.Equal(t, int(until/time.Minute), observed)
				require.Empty(t, s.log.String())
				calls := s.names()
				require.Equal(t, "leave", calls[len(calls)-1])
			})
		})
	}
}

// Each silent scope is logged once, up to a number of scopes.
func TestSilentScopesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &tables{}
		s.runs(t, 4, func(run int) {
			switch run {
			case 0, 1:
				s.silent = []string{"b", "a"}
			case 2:
				s.silent = nil
				for i := range 2 * maxSilent {
					s.silent = append(s.silent, fmt.Sprint(i))
				}
			}
		})
		lines := s.lines()
		require.Len(t, lines, maxSilent)
		const text = `level=WARN msg="scope records no progress, its rows are never deleted: ` +
			`see docs/embedding.md for loops of your own, or list a scope without a consumer in ` +
			`ReaperConfig.WallClock" scope=`
		require.Equal(t, []string{text + "b", text + "a", text + "0"}, lines[:3])
		require.Equal(t, text+"97", lines[maxSilent-1])
	})
}

func TestConfig(t *testing.T) {
	texts := func(c *Config) (all []string) {
		for _, err := range c.Mistakes() {
			all = append(all, err.Error())
		}
		return all
	}
	require.Empty(t, texts(&Config{Pause: -1, Batch: 10_000}))
	require.Equal(t, []string{"ReaperConfig.Batch is out of range"}, texts(&Config{Batch: 10_001}))
	require.Equal(t, []string{"ReaperConfig.Interval is out of range",
		"ReaperConfig.Grace is out of range", "ReaperConfig.DeadLetterRetention is out of range",
		"ReaperConfig.Batch is out of range"},
		texts(&Config{Interval: -1, Grace: -1, DeadLetterRetention: -1, Batch: -1}))
	var c Config
	c.SetDefaults()
	require.NotNil(t, c.Logger)
	c.Logger = nil
	require.Equal(t, Config{Interval: time.Minute, Batch: 1000, Pause: 20 * time.Millisecond,
		Grace: time.Minute, DeadLetterRetention: 30 * 24 * time.Hour}, c)
	c.Pause = -1
	c.SetDefaults()
	require.EqualValues(t, -1, c.Pause)
}

// A lease that could not be ended is ended by the next run that leaves.
func TestLeavesAgain(t *testing.T) {
	t.Parallel()
	s := &tables{leave: func() error { return errDown }}
	l := s.newLoop()
	_, err := l.RunOnce(t.Context())
	require.NoError(t, err)
	s.leave, s.calls = nil, nil
	l.leave(t.Context())
	l.leave(t.Context())
	require.Equal(t, []string{"leave"}, s.names())
}
