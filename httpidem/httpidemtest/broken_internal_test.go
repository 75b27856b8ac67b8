package httpidemtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// recorder notes the failure of a case instead of failing the test.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	failure string
	skipped bool
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Skip(...any) {
	r.skipped = true
	runtime.Goexit()
}

// verdictOf runs one case against a store and returns its failure, or "".
func verdictOf(
	t *testing.T, name string, of func(*memstore.Store) dedup.Store,
) (failure string) {
	all := allCases()
	i := slices.IndexFunc(all, func(c testCase) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "no case %q", name)
	synctest.Test(t, func(t *testing.T) {
		h := Harness{NewStore: func(testing.TB) dedup.Store { return of(memstore.New()) }}
		r, ended, v := &recorder{TB: t}, make(chan struct{}), underClaims(h.ready(t))
		go func() {
			defer close(ended)
			all[i].run(newKit(r, v))
		}()
		<-ended
		require.False(t, r.skipped, "%q was skipped", name)
		failure = r.failure
	})
	return failure
}

// narrow is a store that refuses results of more than takes bytes.
type narrow struct {
	*memstore.Store
	takes int
}

func (n *narrow) Complete(ctx context.Context, done []dedup.Completion) error {
	for _, c := range done {
		if len(c.Result.Data) > n.takes {
			return errors.New("value too long for the column")
		}
	}
	return n.Store.Complete(ctx, done)
}

// limited is a narrow store that declares a limit.
type limited struct {
	narrow
	declared int
}

func (l *limited) MaxResult() int { return l.declared }

// cuts is a store that keeps the first 64 KiB of a result.
type cuts struct{ *memstore.Store }

func (s *cuts) Complete(ctx context.Context, done []dedup.Completion) error {
	done = slices.Clone(done)
	for i, c := range done {
		done[i].Result.Data = c.Result.Data[:min(len(c.Result.Data), 64<<10)]
	}
	return s.Store.Complete(ctx, done)
}

// keepsRecords is a store in which Forget removes nothing.
type keepsRecords struct{ *memstore.Store }

func (*keepsRecords) Forget(context.Context, dedup.Key) error { return nil }

// refusesForget is a store in which an unknown outcome counts as a live claim.
type refusesForget struct{ *memstore.Store }

func (*refusesForget) Forget(context.Context, dedup.Key) error { return dedup.ErrHeld }

// Each case refutes the store that breaks its promise, and only the promise is broken.
func TestBrokenStoresFail(t *testing.T) {
	const largest, unknown = "the largest answers that are stored",
		"a forgotten key of an unknown outcome (rule 19)"
	sound := func(s *memstore.Store) dedup.Store { return s }
	soundLimit := func(s *memstore.Store) dedup.Store {
		return &limited{narrow{s, 384 << 10}, 384 << 10}
	}
	for _, c := range []struct {
		name          string
		broken, sound func(*memstore.Store) dedup.Store
		test          string
	}{
		{"refuses results above 64 KiB", func(s *memstore.Store) dedup.Store {
			return &narrow{s, 64 << 10}
		}, sound, largest},
		{"refuses what its limit allows", func(s *memstore.Store) dedup.Store {
			return &limited{narrow{s, 256 << 10}, 384 << 10}
		}, soundLimit, largest},
		{"cuts results", func(s *memstore.Store) dedup.Store { return &cuts{s} }, sound, largest},
		{"Forget removes nothing", func(s *memstore.Store) dedup.Store {
			return &keepsRecords{s}
		}, sound, unknown},
		{"Forget refuses an unknown outcome", func(s *memstore.Store) dedup.Store {
			return &refusesForget{s}
		}, sound, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			failure := verdictOf(t, c.test, c.broken)
			require.NotEmpty(t, failure, "no case refutes the store")
			t.Log(failure)
			require.Empty(t, verdictOf(t, c.test, c.sound), "a sound store passes")
		})
	}
}
