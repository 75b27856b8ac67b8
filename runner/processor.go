package runner

import (
	"errors"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// newProcessor returns the processor of a runner, with these observers instead of those of cfg. The
// error lists the mistakes of the handlers, or names a store that loses all records with the
// process.
func newProcessor(
	cfg Config, r *idem.Router, observers []observe.Observer,
) (*idem.Processor, error) {
	proc, err := idem.NewProcessor(r, idem.Config{
		Store: cfg.Store, Scope: cfg.Scope, Group: cfg.Group, Lease: cfg.Lease,
		StoreTimeout: cfg.StoreTimeout,
		BusyWait:     idem.Forever, Grace: cfg.Grace, Producer: cfg.Producer,
		DeadLetterTopic: cfg.DeadLetterTopic,
		Observers:       observers, Logger: cfg.Logger, ErrorText: cfg.ErrorText, Shadow: cfg.Shadow,
	})
	if err != nil {
		return nil, err
	}
	if err := CheckVolatile(proc.Stores()); err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	return proc, nil
}

// CheckVolatile refuses stores that lose all records with the process, unless that was declared as
// wanted (rule 31). Offsets are committed, so events that the store forgot are not delivered again,
// and events that are delivered again are new.
func CheckVolatile(stores []dedup.Store) error {
	var problems []error
	for _, s := range stores {
		if v, ok := s.(dedup.Volatiler); ok {
			if err := v.Volatile(); err != nil {
				problems = append(problems, fmt.Errorf("store %T: %w", s, err))
			}
		}
	}
	return errors.Join(problems...)
}
