package runner

import (
	"context"
	"sync/atomic"
)

// Retrier decides whether an error ends a runner, and waits before the next try if not. Create a
// Retrier with [NewRetrier]. Safe for concurrent use.
type Retrier struct {
	trouble
	explain func(error) error // adds the command that mends an error
	served  atomic.Bool       // a session has begun
}

// NewRetrier returns a Retrier that names the client so in log lines. explain adds the remedy to an
// error about missing rights, and returns all other errors unchanged. NewRetrier needs the defaults
// of cfg.
func NewRetrier(
	cfg Config, client string, classify Classify, explain func(error) error,
) *Retrier {
	return &Retrier{
		trouble: trouble{
			log: cfg.Logger, text: cfg.Text, client: client, classify: classify,
			away: consumeProblem(),
		},
		explain: explain,
	}
}

// Wait waits before the next try, unless err is fatal or ctx has ended.
func (r *Retrier) Wait(ctx context.Context, back *Backoff, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.Fatal(err); err != nil {
		return err
	}
	r.begin(r.explain(err))
	return back.waitAfter(ctx, err)
}

// Begin logs that the group cannot be consumed now, for a client that tries again by itself.
func (r *Retrier) Begin(err error) { r.begin(r.explain(err)) }

// Fatal returns the error to end the runner with, else nil. Missing rights and a stale login end a
// start. Later they are waited for, like other parts that fail later.
func (r *Retrier) Fatal(err error) error {
	if err == nil {
		return nil
	}
	class := r.classify(err)
	end := fatal(err, class)
	passes := denied(err, class) && class != BadLogin || class == StaleLogin
	if end == nil || passes && r.served.Load() {
		return nil
	}
	return r.explain(end)
}

// Serving notes that a session has begun, and logs that the group can be consumed again.
func (r *Retrier) Serving() {
	r.served.Store(true)
	r.Over()
}
