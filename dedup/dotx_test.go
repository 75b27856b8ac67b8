package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

// books is a database in memory: a transaction's lines are written when it commits.
type books struct {
	dedup.Store
	mu      sync.Mutex
	rows    map[dedup.Key]dedup.Completion
	locked  map[dedup.Key]bool
	lines   []string
	open    int                       // transactions
	most    int                       // of them at once
	claims  int                       // calls of ClaimTx
	commits func(commit func()) error // nil: as it should be
	down    func(claim int) bool
}

func newBooks() *books {
	return &books{Store: memstore.New(), rows: map[dedup.Key]dedup.Completion{}, locked: map[dedup.Key]bool{}}
}

type page struct{ lines []string }

var _ dedup.TxStore[*page] = (*books)(nil)

func (b *books) begin(req dedup.Request) (a dedup.Answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims++
	done, known := b.rows[req.Key]
	switch {
	case b.down != nil && b.down(b.claims):
		return a, errDown
	case known && done.Fingerprint != req.Fingerprint && req.Fingerprint != (dedup.Fingerprint{}):
		a.Verdict = dedup.Conflict
	case known:
		a.Verdict, a.Result = dedup.Done, done.Result
	case b.locked[req.Key]:
		a.Verdict = dedup.Busy
	default:
		a.Verdict, a.Fence = dedup.Fresh, 1
		b.locked[req.Key] = true
		b.open++
		b.most = max(b.most, b.open)
	}
	return a, nil
}

func (b *books) ClaimTx(_ context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*page) ([]dedup.Completion, error)) (err error) {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	if answers[0], err = b.begin(reqs[0]); err != nil || answers[0].Verdict != dedup.Fresh {
		return err
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.locked, reqs[0].Key)
		b.open--
	}()
	var p page
	done, err := fn(&p)
	if err != nil {
		return err
	}
	commit := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rows[reqs[0].Key] = done[0]
		b.lines = append(b.lines, p.lines...)
	}
	if b.commits != nil {
		return b.commits(commit)
	}
	commit()
	return nil
}

var errCut = fmt.Errorf("%w: %w: connection reset while committing", dedup.ErrUnavailable, dedup.ErrUnknownCommit)

// atBooks runs test in a bubble, with the guards of two processes.
func atBooks(t *testing.T, test func(t *testing.T, b *books, here, there *dedup.Guard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBooks()
		here, there := dedup.NewGuard(b, dedup.GuardConfig{}), dedup.NewGuard(b, dedup.GuardConfig{})
		defer here.Close()
		defer there.Close()
		test(t, b, here, there)
	})
}

// booked is a result with something that is not kept.
type booked struct {
	Line string
	Note string `json:"-"`
}

func book(line string, takes time.Duration) func(context.Context, *page) (booked, error) {
	return func(_ context.Context, p *page) (booked, error) {
		time.Sleep(takes)
		p.lines = append(p.lines, line)
		return booked{Line: line, Note: "mine"}, nil
	}
}

// Rule 20, H-04: of many callers in two processes one holds a transaction, and the others wait without.
func TestDoTx_OnceAndNobodyWaitsWithATransaction(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
		all := together(200, func(i int) (paid, bool, error) {
			g := here
			if i%2 == 1 {
				g = there
			}
			r, replayed, err := dedup.DoTx(t.Context(), g, thisKey, time.Minute, book("one", 1200*time.Millisecond))
			require.Equal(t, "one", r.Line)
			require.Equal(t, replayed, r.Note == "")
			return paid{}, replayed, err
		})
		ran := 0
		for _, o := range all {
			require.NoError(t, o.err)
			if !o.replayed {
				ran++
			}
		}
		require.Equal(t, 1, ran)
		require.Equal(t, []string{"one"}, b.lines)
		require.Equal(t, 1, b.most)
		require.LessOrEqual(t, b.claims, 6)
	})
}

func TestDoTx_ErrorRollsBack(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
		declined := errors.New("declined")
		r, _, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, func(_ context.Context, p *page) (booked, error) {
			p.lines = append(p.lines, "never")
			return booked{Line: "never"}, declined
		})
		require.Equal(t, declined, err)
		require.Zero(t, r, "what was rolled back is no result")
		_, _, err = dedup.DoTx(t.Context(), here, thisKey, time.Minute, func(context.Context, *page) (func(), error) {
			return func() {}, nil
		})
		require.ErrorIs(t, err, dedup.ErrResult)
		require.Panics(t, func() {
			_, _, _ = dedup.DoTx(t.Context(), here, thisKey, time.Minute, func(context.Context, *page) (int, error) { panic("odd") })
		})
		require.False(t, here.Running(thisKey))
		r, replayed, err := dedup.DoTx(t.Context(), there, thisKey, time.Minute, book("one", 0))
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, "one", r.Line)
		require.Equal(t, []string{"one"}, b.lines)
	})
}

// P-11: the connection breaks during COMMIT, and the next claim finds the outcome.
func TestDoTx_UnknownCommit_P11(t *testing.T) {
	for _, happened := range []bool{true, false} {
		t.Run(fmt.Sprintf("happened=%v", happened), func(t *testing.T) {
			atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
				cuts := 0
				b.commits = func(commit func()) error {
					if cuts++; cuts > 1 || happened {
						commit()
					}
					if cuts == 1 {
						return errCut
					}
					return nil
				}
				r, replayed, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("one", 0))
				require.NoError(t, err)
				require.Equal(t, happened, replayed)
				require.Equal(t, happened, r.Note == "", "what is replayed is what was kept, and no more")
				require.Equal(t, []string{"one"}, b.lines)
				_, replayed, err = dedup.DoTx(t.Context(), there, thisKey, time.Minute, book("two", 0))
				require.NoError(t, err)
				require.True(t, replayed)
			})
		})
	}
}

// P-11: the store stays away after that, or the lost session still holds the key. No error claims
// that the commit did not happen.
func TestDoTx_UnknownCommitStaysUnknown_P11(t *testing.T) {
	for name, ledger := range map[string]func(b *books) dedup.Store{
		"down": func(b *books) dedup.Store {
			b.down = func(claim int) bool { return claim > 1 }
			return b
		},
		"held": func(b *books) dedup.Store { return &stillHeld{books: b} },
	} {
		t.Run(name, func(t *testing.T) {
			atBooks(t, func(t *testing.T, b *books, here, _ *dedup.Guard) {
				g := dedup.NewGuard(ledger(b), dedup.GuardConfig{})
				defer g.Close()
				b.commits = func(commit func()) error { commit(); return errCut }
				r, _, err := dedup.DoTx(t.Context(), g, thisKey, time.Minute, book("one", 0))
				require.ErrorIs(t, err, dedup.ErrUnknownCommit)
				require.ErrorIs(t, err, dedup.ErrUnavailable)
				require.Zero(t, r)
				b.down, b.commits = nil, nil
				r, replayed, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("two", 0))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "one", r.Line)
				require.Equal(t, []string{"one"}, b.lines)
			})
		})
	}
}

// stillHeld answers Busy from the second claim on, for a minute, as for a session without its
// client.
type stillHeld struct {
	*books
	since time.Time
}

func (s *stillHeld) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*page) ([]dedup.Completion, error)) error {
	if s.since.IsZero() {
		s.since = time.Now()
		return s.books.ClaimTx(ctx, limit, reqs, answers, fn)
	}
	if time.Since(s.since) < time.Minute {
		answers[0] = dedup.Answer{Verdict: dedup.Busy}
		return nil
	}
	return s.books.ClaimTx(ctx, limit, reqs, answers, fn)
}

// P-11: a commit that did not happen leaves no doubt about the calls after it.
func TestDoTx_DoubtEnds_P11(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, here, _ *dedup.Guard) {
		b.commits = func(func()) error { return errCut }
		runs, declined := 0, errors.New("declined")
		_, _, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, func(context.Context, *page) (booked, error) {
			if runs++; runs > 1 {
				return booked{}, declined
			}
			return booked{}, nil
		})
		require.Equal(t, declined, err)
		require.Equal(t, 2, runs)
		require.Empty(t, b.rows)
	})
}

func TestEnterTx_Answers(t *testing.T) {
	atBooks(t, func(t *testing.T, _ *books, here, there *dedup.Guard) {
		want := dedup.Result{Schema: 4, Data: []byte("kept")}
		for i, g := range []*dedup.Guard{here, here, there} {
			a, err := dedup.EnterTx(t.Context(), g, dedup.Call{Key: thisKey}, time.Minute, func(p *page) (dedup.Result, error) {
				p.lines = append(p.lines, "one")
				require.True(t, g.Running(thisKey))
				return want, nil
			})
			require.NoError(t, err)
			require.Equal(t, want, a.Result)
			require.Equal(t, i == 0, a.Verdict == dedup.Fresh)
			require.Equal(t, i > 0, a.Verdict == dedup.Done)
			require.False(t, g.Running(thisKey))
		}
		_, err := dedup.EnterTx(t.Context(), here, dedup.Call{}, time.Minute, func(*page) (r dedup.Result, err error) { return })
		require.ErrorIs(t, err, dedup.ErrKey)
	})
}

// P-11: of an error that follows, the caller's own included, the doubt is not lost.
func TestDoTx_CallerHangsUpInDoubt_P11(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, _, _ *dedup.Guard) {
		b.commits = func(commit func()) error { commit(); return errCut }
		g := dedup.NewGuard(&stillHeld{books: b}, dedup.GuardConfig{})
		defer g.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := dedup.DoTx(ctx, g, thisKey, time.Minute, book("one", 0))
		require.ErrorIs(t, err, dedup.ErrUnknownCommit)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDoTx_ConflictAndSchema(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, here, there *dedup.Guard) {
		mine, other := dedup.SamePayload(dedup.Fingerprint{1}), dedup.SamePayload(dedup.Fingerprint{2})
		all := together(3, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			opt := mine
			if i == 1 {
				opt = other
			}
			_, replayed, err := dedup.DoTx(t.Context(), here, thisKey, time.Minute, book("one", time.Second), opt)
			return paid{}, replayed, err
		})
		require.NoError(t, all[0].err)
		require.ErrorIs(t, all[1].err, dedup.ErrConflict)
		require.Equal(t, time.Millisecond, all[1].after)
		require.NoError(t, all[2].err)
		_, _, err := dedup.DoTx(t.Context(), there, thisKey, time.Minute, book("two", 0), other)
		require.ErrorIs(t, err, dedup.ErrConflict)
		for range 3 {
			r, _, err := dedup.DoTx(t.Context(), there, thisKey, time.Minute, book("two", 0), dedup.Schema(2))
			require.NoError(t, err)
			require.Equal(t, "two", r.Line)
		}
		require.Equal(t, []string{"one", "two"}, b.lines)
	})
}

func TestDoTx_WrongStore(t *testing.T) {
	g := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer g.Close()
	_, _, err := dedup.DoTx(t.Context(), g, thisKey, time.Minute, book("one", 0))
	require.ErrorContains(t, err, "*memstore.Store has no transactions of the type *dedup_test.page")
}
