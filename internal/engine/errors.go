package engine

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/idem-go/idem/idemtype"
)

// panicked returns the error for a panic of a handler. A nil value means that the handler ended its
// goroutine.
func panicked(value any) error {
	stack := debug.Stack()
	return &idemtype.PanicError{Value: value, Stack: stack[:min(len(stack), 4<<10)]}
}

// callError is the error of one call of a transaction.
type callError struct {
	call int
	err  error
}

func (e *callError) Error() string { return e.err.Error() }

func (e *callError) Unwrap() error { return e.err }

// guard turns a panic of a user's function that reads a message into an error. Such a function runs
// before the store knows the event, so the crash guard could not stop a loop of crashes (K-23).
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
		err = userErr(err)
	}()
	return fn()
}

// userError is an error of a user's function about work of its own: it matches ErrAbandoned, or has
// a WaitError. The processor has not abandoned work, and need not wait. userError matches all other
// errors that err matches.
type userError struct{ err error }

func (e *userError) Error() string { return e.err.Error() }

func (e *userError) Is(target error) bool {
	return target != idemtype.ErrAbandoned && errors.Is(e.err, target)
}

func (e *userError) As(target any) bool {
	_, wait := target.(**idemtype.WaitError)
	return !wait && errors.As(e.err, target)
}

// userErr wraps an error of a user's function that matches ErrAbandoned or has a WaitError. Any
// other error is returned unchanged.
func userErr(err error) error {
	var wait *idemtype.WaitError
	if errors.Is(err, idemtype.ErrAbandoned) || errors.As(err, &wait) {
		return &userError{err}
	}
	return err
}

// runningError is the error of a call whose context has not ended. The error matches neither
// ErrStopping nor ErrPartitionLost.
type runningError struct{ err error }

func (e *runningError) Error() string { return e.err.Error() }

func (e *runningError) Is(target error) bool {
	return target != idemtype.ErrStopping && target != idemtype.ErrPartitionLost &&
		errors.Is(e.err, target)
}

func (e *runningError) As(target any) bool { return errors.As(e.err, target) }

// unlessStopped returns err. Before the end of ctx, err matches no stop: a handler or a producer
// may have returned the stop of a consumer of its own.
func unlessStopped(ctx context.Context, err error) error {
	stop := errors.Is(err, idemtype.ErrStopping) || errors.Is(err, idemtype.ErrPartitionLost)
	if stop && ctx.Err() == nil {
		return &runningError{err}
	}
	return err
}
