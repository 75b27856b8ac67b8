package reaping

import (
	"context"
	"errors"
	"time"
)

const (
	// maxSlow bounds the scopes of one run that may take too long.
	maxSlow = 3
	// stuckRest is the pause after a search for stuck claims that took too long.
	stuckRest = time.Hour
)

// Result is the result of one run. The stores convert it to their ReapResult, which has the same
// fields and describes them.
type Result[A any] struct {
	Elsewhere              bool
	Events, Claims, Starts int64
	Stuck                  int64
	Scopes                 []A
	Silent                 []string
}

// ending is how a run has ended.
type ending struct {
	looked bool // the run has looked at all scopes
	slow   bool // the error is that of slow scopes alone
}

func (l *Loop[A]) run(ctx context.Context) (Result[A], ending, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	result := Result[A]{Stuck: -1}
	var end ending
	var slow []error
	err := l.renewLease(ctx)
	if err == nil {
		slow, err = l.reapScopes(ctx, &result)
	}
	if err == nil {
		end.looked = true
		err = l.reapOthers(ctx, &result)
	}
	// from the start, or because this reaper stood still for too long
	if errors.Is(err, ErrElsewhere) {
		result.Elsewhere, err = true, nil
	}
	end.slow = len(slow) > 0 && err == nil
	return result, end, errors.Join(append(slow, err)...)
}

// reapScopes works on one scope after the other. slow are the errors of scopes whose rows cannot be
// deleted in time: such a scope holds up no other scope.
func (l *Loop[A]) reapScopes(ctx context.Context, result *Result[A]) (slow []error, err error) {
	if result.Scopes, err = l.store.Ages(ctx); err != nil {
		return nil, err
	}
	events := func(n int64) { l.count(n, &result.Events) }
	claims := func(n int64) { l.count(n, &result.Claims) }
	for i := range result.Scopes {
		switch err := l.store.Scope(ctx, &result.Scopes[i], events, claims); {
		case err == nil:
		case ctx.Err() == nil && l.store.TooSlow(err) && len(slow) < maxSlow:
			slow = append(slow, err)
		default:
			return slow, err
		}
	}
	return slow, nil
}

// reapOthers is the work that belongs to no scope.
func (l *Loop[A]) reapOthers(ctx context.Context, result *Result[A]) (err error) {
	if err := l.reapStarts(ctx, &result.Starts); err != nil {
		return err
	}
	if result.Silent, err = l.store.Silent(ctx, result.Scopes); err != nil {
		return err
	}
	result.Stuck, err = l.lookForStuck(ctx)
	return err
}

func (l *Loop[A]) reapStarts(ctx context.Context, total *int64) error {
	for {
		n, more, err := l.store.Starts(ctx)
		l.count(n, total)
		if err != nil || !more || n == 0 {
			return err
		}
		if err := l.Between(ctx); err != nil {
			return err
		}
	}
}

// count adds the rows of a batch to total.
func (l *Loop[A]) count(n int64, total *int64) {
	*total += n
	if n > 0 && l.cfg.Deleted != nil {
		l.cfg.Deleted(n)
	}
}

// Between waits between two batches and renews the lease. It is for the store, within its work on
// a scope. An error ends that work.
func (l *Loop[A]) Between(ctx context.Context) error {
	if l.cfg.Pause > 0 {
		timer := time.NewTimer(l.cfg.Pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if time.Since(l.renewed) < l.lease/4 {
		return ctx.Err()
	}
	return l.renewLease(ctx)
}

func (l *Loop[A]) renewLease(ctx context.Context) error {
	began := time.Now()
	l.leased = true // maybe: an error may hide a commit
	err := l.store.Lease(ctx, l.token, l.lease)
	if errors.Is(err, ErrElsewhere) {
		l.leased = false
	}
	l.renewed = began
	return err
}

func (l *Loop[A]) lookForStuck(ctx context.Context) (int64, error) {
	if time.Now().Before(l.noLookAt) {
		return -1, nil
	}
	n, err := l.store.Stuck(ctx)
	if n < 0 {
		l.noLookAt = time.Now().Add(stuckRest)
	}
	return n, err
}
