package engine

import (
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

// userError is an error of a user's function that matches ErrAbandoned. The function has abandoned
// work of its own, and the processor has not. userError matches all other errors that err matches.
type userError struct{ err error }

func (e *userError) Error() string { return e.err.Error() }

func (e *userError) Is(target error) bool {
	return target != idemtype.ErrAbandoned && errors.Is(e.err, target)
}

func (e *userError) As(target any) bool { return errors.As(e.err, target) }

// userErr wraps an error of a user's function that matches ErrAbandoned. Any other error is
// returned unchanged.
func userErr(err error) error {
	if errors.Is(err, idemtype.ErrAbandoned) {
		return &userError{err}
	}
	return err
}
