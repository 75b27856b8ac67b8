// Package classify has functions for the option ClassifyErrors of package idem. They mark the
// errors of databases, HTTP services and gRPC services, so that handlers need not.
//
//	router := idem.NewRouter(idem.ClassifyErrors(classify.First(classify.SQL, classify.GRPC)))
//
// Only errors with a sure meaning get a mark. All others stay unmarked: they are transient, and the
// retry policy limits the attempts. In particular an error gets no mark after a wrong password, or
// if a table is not migrated yet. A mark would dead-letter every event at once.
//
// A mark Unavailable makes the events of the handler wait, because every event needs the
// dependency. Do not use these functions for a handler that calls the endpoints of many customers,
// since one endpoint that is down would hold up the others.
//
// All functions return nil for nil, keep the error in the tree, and are safe for concurrent use.
// The package imports the standard library only.
package classify

import "github.com/idem-go/idem/internal/mark"

// First returns a function that asks fs in their order, and returns the first marked result. If no
// function marks an error, the error is returned unchanged.
func First(fs ...func(error) error) func(error) error {
	return func(err error) error {
		for _, f := range fs {
			if marked := f(err); mark.Label(marked) != "" {
				return marked
			}
		}
		return err
	}
}

// anyOf reports whether an error of the tree of err fits.
func anyOf(err error, fits func(error) bool) bool {
	for err != nil {
		if fits(err) {
			return true
		}
		switch e := err.(type) { //nolint:errorlint // this walks the tree
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				if anyOf(branch, fits) {
					return true
				}
			}
			return false
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return false
		}
	}
	return false
}
