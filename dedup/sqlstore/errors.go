package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
)

var (
	// errAgain means that a row has changed between two statements.
	errAgain = errors.New("the keys kept changing during the call")
	// errUnknown means that a row has a form that this release does not know.
	errUnknown = errors.New("an unknown release wrote the record")
	errLease   = errors.New("lease is not positive")

	errRetention = errors.New("retention must be positive")
)

// refusal is an answer of the store that ends a transaction, and no failure.
type refusal struct{ err error }

func (r refusal) Error() string { return r.err.Error() }
func (r refusal) Unwrap() error { return r.err }

func (s *Store) lostRace(err error) bool {
	if errors.Is(err, errAgain) {
		return true
	}
	c := s.d.Classify(err)
	return c == Again || c == Locked || c == Taken
}

// mayPass reports whether err is a failure that may be over in a moment.
func (s *Store) mayPass(err error) bool {
	if err == nil {
		return false
	}
	c := s.d.Classify(err)
	return c != Refused && c != Setup
}

// failed explains an error of one of the store's own statements. The keys are valid, so the event
// is not the cause, unless the server refuses a value or the caller has left.
func (s *Store) failed(ctx context.Context, verb string, err error) error {
	var answer refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return s.wrong(verb, answer.err)
	case errors.Is(ctx.Err(), context.Canceled):
		if errors.Is(err, context.Canceled) {
			return s.wrong(verb, err)
		}
		return fmt.Errorf("%s: %s: %w (%w)", s.d.Name, verb, context.Canceled, err)
	}
	switch s.d.Classify(err) {
	case Refused:
		return s.wrong(verb, err)
	case Setup:
		return s.wrong(verb, &dedup.SetupError{Problem: "a table, a column or a right is missing",
			Fix: "create the tables of the store as their owner: " + s.d.Tables, Err: err})
	case Unknown, Again, Taken, Locked, Down, Stopped, Ended, Aborted:
	}
	return fmt.Errorf("%s: %s: %w: %w", s.d.Name, verb, dedup.ErrUnavailable, err)
}

// pause waits before another try: longer after each try, by a random time.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Duration(1+rand.IntN(10*try)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
