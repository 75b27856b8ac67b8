package consumer

import (
	"context"
	"sync/atomic"
)

// retrier decides whether an error ends Run, and waits before the next try if not.
type retrier struct {
	trouble trouble
	explain func(error) error // adds the command that mends an error
	served  atomic.Bool       // a session has begun
}

// wait waits before the next try, unless err is fatal or ctx has ended.
func (r *retrier) wait(ctx context.Context, back *backoff, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.fatal(err); err != nil {
		return err
	}
	r.trouble.begin(r.explain(err))
	return back.wait(ctx)
}

// fatal returns the error to end Run with, else nil. Missing rights end a start. Rights that are
// withdrawn later are waited for, like other parts that fail later.
func (r *retrier) fatal(err error) error {
	end := fatal(err)
	if end == nil || isRefused(err) && !isLogin(err) && r.served.Load() {
		return nil
	}
	return r.explain(end)
}
