package main

import (
	"errors"
	"fmt"
	"slices"
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

// severity are the exit codes from the mildest to the worst. With exitUsage no action began.
var severity = []int{exitOK, exitUsage, exitFound, exitFailure}

// codeOf returns the exit code of an error: other, if the error has none. Of joined errors it is the
// worst code, so that a failure beside a bad result is a failure.
func codeOf(err error, other int) (code int, joined bool) {
	switch e := err.(type) { //nolint:errorlint // looks at each error of the tree
	case *exitError:
		return e.code, false
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			c, _ := codeOf(one, other)
			if slices.Index(severity, c) > slices.Index(severity, code) {
				code = c
			}
		}
		return code, true
	}
	if inner := errors.Unwrap(err); inner != nil {
		return codeOf(inner, other)
	}
	return other, false
}

// isNotKnown reports whether err means that no store knows the event.
func isNotKnown(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == exitFound
}
