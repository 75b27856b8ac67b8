package consumer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// retrier decides whether an error ends Run, and waits before the next try if not.
type retrier struct {
	trouble trouble
	explain func(error) error // adds the command that mends an error
	tokens  bool              // logs in with tokens, which are replaced
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
	if end == nil || r.served.Load() && r.passes(err) {
		return nil
	}
	return r.explain(end)
}

// passes reports whether an error that ends a start may pass later. Brokers that do not know a new
// key of the authorization server yet refuse its tokens for a moment. A connection that
// authenticates again too early is in a wrong state (KIP-368), and the next connection is not.
func (r *retrier) passes(err error) bool {
	switch {
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return true
	case isLogin(err):
		return r.tokens
	}
	return isRefused(err)
}
