// Package mark marks errors of handlers: Permanent, NotApplied, RetryAfter, Unavailable. The public
// functions are those of package idem.
package mark

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is the kind of a mark.
type Kind uint8

// The kinds, as the functions of package idem.
const (
	Permanent Kind = iota
	NotApplied
	RetryAfter
	Unavailable
)

var names = [...]string{"permanent", "not applied", "retry after", "unavailable"}

// Error is an error with a mark. Marks of several kinds may be nested or joined; each kind is
// found separately.
type Error struct {
	Kind  Kind
	After time.Duration // of RetryAfter
	Err   error
}

// New marks err. New(kind, after, nil) is nil.
func New(kind Kind, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, After: after, Err: err}
}

// Error returns the mark and the text of the error.
func (e *Error) Error() string {
	if e.Kind == RetryAfter {
		return fmt.Sprintf("%s %s: %v", names[e.Kind], e.After, e.Err)
	}
	return names[e.Kind] + ": " + e.Err.Error()
}

// Unwrap returns the error without the mark.
func (e *Error) Unwrap() error { return e.Err }

// query is the target of errors.As, which looks through all branches of a tree. No error has
// this type, so errors.As calls the As methods of the marks.
type query struct {
	kind  Kind
	found *Error
}

func (query) Error() string { return "mark" }

// As lets errors.As find the marks of one kind.
func (e *Error) As(target any) bool {
	wanted, ok := target.(*query)
	if ok = ok && wanted.kind == e.Kind; ok {
		wanted.found = e
	}
	return ok
}

// Find returns the first mark of that kind in the tree of err: the outermost one of the first
// branch that has one.
func Find(err error, kind Kind) (*Error, bool) {
	if err == nil {
		return nil, false
	}
	wanted := query{kind: kind}
	ok := errors.As(err, &wanted)
	return wanted.found, ok
}

// Has reports whether the tree of err has a mark of that kind.
func Has(err error, kind Kind) bool {
	_, ok := Find(err, kind)
	return ok
}

// Label returns the outermost mark in the tree of err, such as "not_applied". Empty without a mark.
func Label(err error) string {
	var m *Error
	if !errors.As(err, &m) {
		return ""
	}
	return strings.ReplaceAll(names[m.Kind], " ", "_")
}
