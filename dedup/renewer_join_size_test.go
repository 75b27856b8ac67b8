package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/faketime"
	"github.com/stretchr/testify/require"
)

// narrow is a store whose calls of Complete take a while and are refused by their size.
type narrow struct {
	dedup.Store
	all, each int // bytes of the results of a call, and of one result
	err       error
	mu        sync.Mutex
	largest   int // bytes of a call, under mu
}

func (s *narrow) Complete(ctx context.Context, done []dedup.Completion) error {
	time.Sleep(5 * time.Millisecond)
	sum := 0
	for _, d := range done {
		sum += len(d.Result.Data)
		if len(d.Result.Data) > s.each {
			return s.err
		}
	}
	s.mu.Lock()
	s.largest = max(s.largest, sum)
	s.mu.Unlock()
	if sum > s.all {
		return s.err
	}
	return s.Store.Complete(ctx, done)
}

func atNarrow(t *testing.T, s *narrow, test func(t *testing.T, g *dedup.Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s.Store = memstore.New()
		g := dedup.NewGuard(s, dedup.GuardConfig{})
		defer g.Close()
		test(t, g)
	})
}

func TestDo_LargeResultsOfManyCallers(t *testing.T) {
	store := &narrow{all: 16 << 20, each: 16 << 20, err: errors.New("packet too large")}
	atNarrow(t, store, func(t *testing.T, g *dedup.Guard) {
		text := strings.Repeat("x", 128<<10)
		for _, o := range together(250, func(i int) (paid, bool, error) {
			key := dedup.Key{Scope: "large", ID: fmt.Sprint(i)}
			_, replayed, err := dedup.Do(t.Context(), g, key, func(context.Context) (string, error) { return text, nil })
			return paid{}, replayed, err
		}) {
			require.NoError(t, o.err)
			require.Less(t, o.after, time.Second)
		}
		require.LessOrEqual(t, store.largest, 1<<20, "bytes of one call")
	})
}

// A result that the store refuses fails no other caller, whatever the error says.
func TestDo_RefusedResultOfAnotherCaller(t *testing.T) {
	for _, refusal := range []error{errors.New("result too large"), errDown} {
		store := &narrow{all: 1 << 30, each: 100 << 10, err: refusal}
		atNarrow(t, store, func(t *testing.T, g *dedup.Guard) {
			all := together(21, func(i int) (paid, bool, error) {
				key := dedup.Key{Scope: "mixed", ID: fmt.Sprint(i)}
				if i > 0 {
					return dedup.Do(t.Context(), g, key, func(context.Context) (paid, error) { return paid{}, nil })
				}
				entry, _, err := g.Enter(t.Context(), dedup.Call{Key: key})
				if err != nil {
					return paid{}, false, err
				}
				large := dedup.Result{Schema: 1, Data: make([]byte, 101<<10)}
				return paid{}, false, entry.Complete(t.Context(), large)
			})
			require.ErrorIs(t, all[0].err, dedup.ErrUnknownOutcome)
			for _, o := range all[1:] {
				require.NoError(t, o.err)
			}
		})
	}
}

// One completion alone may be larger than a shared call.
func TestLeaseRenewerCompletesTheLargestAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		var sizes []int
		r.s.completing(func(_ context.Context, done []dedup.Completion) error {
			time.Sleep(50 * time.Millisecond)
			sizes = append(sizes, len(done))
			return nil
		})
		errs := make(chan error, 5)
		for i, size := range []int{0, 10, 2 << 20, 10, 3 << 20} {
			c, _, stop := r.claim(fmt.Sprint(i))
			defer stop()
			done := completion(c)
			done.Result.Data = make([]byte, size)
			go func() { errs <- r.k.Complete(r.Context(), done) }()
			synctest.Wait()
		}
		for range 5 {
			require.NoError(r, <-errs)
		}
		require.Equal(r, []int{1, 2, 1, 1}, sizes)
	})
}

// A call that the store refused is repeated for each caller. In between the claims stay kept.
func TestLeaseRenewerCompletesAloneAfterARefusal(t *testing.T) {
	inBubble(t, func(r *rig) {
		refused := errors.New("result too large")
		r.s.completing(func(_ context.Context, done []dedup.Completion) error {
			time.Sleep(50 * time.Millisecond)
			for _, d := range done {
				if d.Key.ID == "large" {
					return refused
				}
			}
			return nil
		})
		ids := []string{"first", "large", "a", "b"}
		held, errs := make([]context.Context, len(ids)), make([]chan error, len(ids))
		for i, id := range ids {
			c, h, stop := r.claim(id)
			defer stop()
			held[i], errs[i] = h, make(chan error, 1) //nolint:fatcontext // side by side
			go func() { errs[i] <- r.k.Complete(r.Context(), completion(c)) }()
			synctest.Wait()
		}
		for i, id := range ids {
			want := dedup.Done
			err := <-errs[i]
			if id == "large" {
				require.ErrorIs(r, err, refused)
				want = dedup.Busy
			} else {
				require.NoError(r, err)
			}
			require.Equal(r, want, r.verdict(id))
		}
		require.EqualValues(r, 2+3, r.s.completes.Load())
		time.Sleep(2 * lease)
		for _, h := range held {
			require.NoError(r, h.Err())
		}
	})
}
