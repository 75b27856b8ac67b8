package idem

import (
	"context"
	"errors"

	"github.com/idem-go/idem/internal/engine"
	"github.com/idem-go/idem/internal/mark"
)

// ClassifyErrors sets a function that marks the errors of a handler, so that the handler need not.
// classify returns err marked with [Permanent], [NotApplied], [RetryAfter] or [Unavailable], or err
// itself. Package classify has functions for SQL, HTTP and gRPC. The default is no function.
//
// classify gets each error of a handler or of middleware that has no mark: a mark of the handler
// stands. Of a [BatchError], classify gets each named error. A panic is not passed to classify.
//
// If classify panics or returns nil, the original error counts. The function must be safe for
// concurrent use, and quick, because it runs within the time-out of the handler.
// ClassifyErrors(nil) removes the function of a router or a group.
func ClassifyErrors(classify func(error) error) Option {
	return func(s *options) { s.classify = classify }
}

// classified returns call with marked errors, or call itself without a classifier.
func classified(classify func(error) error, call engine.Invocation) engine.Invocation {
	if classify == nil {
		return call
	}
	return func(ctx context.Context, tx any, in []engine.Input) error {
		return markErrors(classify, call(ctx, tx, in))
	}
}

// markErrors marks err, or the named errors of a BatchError, wrapped or not.
func markErrors(classify func(error) error, err error) error {
	if mark.Label(err) != "" {
		return err
	}
	for at := err; at != nil; at = errors.Unwrap(at) {
		named, ok := at.(BatchError) //nolint:errorlint // one in a branch does not name the events
		if !ok {
			continue
		}
		marked := make(BatchError, len(named))
		for i, err := range named {
			marked[i] = markError(classify, err)
		}
		return marked
	}
	return markError(classify, err)
}

func markError(classify func(error) error, err error) (marked error) {
	if err == nil || mark.Label(err) != "" {
		return err
	}
	defer func() {
		if recover() != nil || marked == nil {
			marked = err
		}
	}()
	return classify(err)
}
