package main

import (
	"errors"
	"fmt"
)

// The exit codes separate the result of a command from the failure.
const (
	exitOK      = 0
	exitFound   = 1 // a bad result: findings of the doctor, an unknown event, a refused question
	exitUsage   = 2 // flags and arguments
	exitFailure = 3 // it could not be done: a service away, a right missing
)

// exitError ends the command with a code. Its error is nil if the text was printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func found(format string, args ...any) error {
	return &exitError{exitFound, fmt.Errorf(format, args...)}
}

// isNotKnown reports whether err means that no store knows the event.
func isNotKnown(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == exitFound
}
