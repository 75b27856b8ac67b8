package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errPasses = errors.New("passes")

func passing(err error) bool { return errors.Is(err, errPasses) }

// TestCommitTurn_Direct_K03: a direct commit waits briefly for the commit in flight, and then ends
// it. The commit is tried again after the direct one, with the marks of that time.
func TestCommitTurn_Direct_K03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := NewCommitTurn()
		var order []string
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			done <- turn.Commit(func(ctx context.Context) error {
				if len(order) > 0 {
					order = append(order, "commit")
					return nil
				}
				order = append(order, "hangs")
				<-ctx.Done()
				return ctx.Err()
			}, passing)
		}()
		synctest.Wait()
		require.NoError(t, turn.Directly(t.Context(), func() error {
			require.Equal(t, directPatience, time.Since(began))
			time.Sleep(time.Second)
			order = append(order, "direct")
			return nil
		}))
		require.NoError(t, <-done)
		require.Equal(t, []string{"hangs", "direct", "commit"}, order)
		require.Equal(t, directPatience+time.Second, time.Since(began))
	})
}

// TestCommitTurn_GivesWay_K03: a commit that waits lets each direct commit go first, and is made
// after the last one.
func TestCommitTurn_GivesWay_K03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := NewCommitTurn()
		var order []string
		direct := func() error {
			time.Sleep(time.Second)
			order = append(order, "direct")
			return nil
		}
		done := make(chan error, 3)
		go func() { done <- turn.Directly(t.Context(), direct) }()
		synctest.Wait()
		go func() {
			done <- turn.Commit(func(context.Context) error {
				order = append(order, "commit")
				return nil
			}, passing)
		}()
		synctest.Wait()
		go func() { done <- turn.Directly(t.Context(), direct) }()
		for range 3 {
			require.NoError(t, <-done)
		}
		require.Equal(t, []string{"direct", "direct", "commit"}, order)
	})
}

// TestCommitTurn_Bounds: a commit is tried again after errors that pass, and each wait has an end.
func TestCommitTurn_Bounds(t *testing.T) {
	for name, c := range map[string]struct {
		try   func(context.Context) error
		held  bool // by a direct commit
		tries int
		took  time.Duration
		want  error
	}{
		"succeeds":   {try: func(context.Context) error { return nil }, tries: 1},
		"stays":      {try: func(context.Context) error { return errTest }, tries: 1, want: errTest},
		"passes":     {try: soonPasses, tries: 16, took: commitTime, want: errPasses},
		"no answer":  {try: hang, tries: 1, took: commitTime, want: context.DeadlineExceeded},
		"direct one": {try: hang, held: true, took: commitTime, want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turn, tries := NewCommitTurn(), 0
				if c.held {
					go func() {
						_ = turn.Directly(t.Context(), func() error {
							return hang(t.Context())
						})
					}()
					synctest.Wait()
				}
				began := time.Now()
				err := turn.Commit(func(ctx context.Context) error {
					tries++
					return c.try(ctx)
				}, passing)
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.tries, tries)
				require.Equal(t, c.took, time.Since(began))
			})
		})
	}
}

// TestCommitTurn_Beside: the wait of a single commit and of a direct one ends with the context.
func TestCommitTurn_Beside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := NewCommitTurn()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := turn.Directly(t.Context(), func() error {
			never := func(context.Context) error { panic("the turn is held") }
			require.ErrorIs(t, turn.Beside(ctx, never), context.DeadlineExceeded)
			return turn.Directly(ctx, func() error { panic("the turn is held") })
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, turn.Beside(t.Context(), func(context.Context) error { return errTest }), errTest)
	})
}

// soonPasses takes a little, so that no try begins in the moment of the end.
func soonPasses(context.Context) error {
	time.Sleep(time.Millisecond)
	return errPasses
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
