package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/setupwait"
)

const (
	// checkWait bounds one check of a store, and registerWait one registration.
	checkWait    = 10 * time.Second
	registerWait = 15 * time.Second
	// watchInterval is the time between two looks for another server behind a store.
	watchInterval = time.Minute
)

// setupWatch separates an error of a store's set-up from an outage.
type setupWatch struct {
	limit time.Duration
	since time.Time
}

// over reports whether err ends Run.
func (w *setupWatch) over(err error) bool {
	var setup *dedup.SetupError
	if !errors.As(err, &setup) {
		w.since = time.Time{}
		return false
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	return time.Since(w.since) >= w.limit
}

// wait waits before the store is asked again, at first only briefly while the set-up may just go
// on.
func (w *setupWatch) wait(ctx context.Context, back *Backoff) error {
	if w.since.IsZero() {
		return back.Wait(ctx)
	}
	back.Tries++
	pause, _ := setupwait.Pause(time.Since(w.since), w.limit)
	return Pause(ctx, pause)
}

// StoreStart checks and registers the stores at the start of a runner. Create a StoreStart with
// [NewStoreStart].
type StoreStart struct {
	proc  *idem.Processor
	log   *slog.Logger
	text  func(error) string
	setup time.Duration // how long a store may lack tables or rights
}

// NewStoreStart returns the start of the stores of proc. It needs the defaults of cfg.
func NewStoreStart(cfg Config, proc *idem.Processor) *StoreStart {
	return &StoreStart{proc: proc, log: cfg.Logger, text: cfg.Text, setup: cfg.SetupWait}
}

// Check lets every store check the settings of the server, and waits for a store that is down. An
// unsafe store, or one that is not set up, is an error.
func (s *StoreStart) Check(ctx context.Context) error {
	for _, store := range s.proc.Stores() {
		checker, ok := store.(dedup.Checker)
		if !ok {
			continue
		}
		if err := s.checkOne(ctx, checker, fmt.Sprintf("%T", store)); err != nil {
			return err
		}
	}
	return nil
}

func (s *StoreStart) checkOne(ctx context.Context, checker dedup.Checker, name string) error {
	var back Backoff
	away := storeProblem()
	setup := setupWatch{limit: s.setup}
	for {
		warnings, err := tryCheck(ctx, checker)
		switch {
		case err == nil:
			for _, w := range warnings {
				s.log.Warn("store: "+w, "store", name)
			}
			if back.Tries > 0 {
				s.log.Info("store available again", "store", name)
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case setup.over(err):
			return fmt.Errorf("store %s: %w", name, err)
		case !isOutage(err):
			return fmt.Errorf("store %s must not be used: %w", name, err)
		}
		away.Log(ctx, s.log, s.text(err), "store", name)
		if err := setup.wait(ctx, &back); err != nil {
			return err
		}
	}
}

// storeProblem has the texts for a start that waits for a store.
func storeProblem() setupwait.Problem {
	return setupwait.Problem{
		First: "store unavailable at start, waiting for it",
		Still: "store still unavailable at start, waiting for it",
	}
}

func tryCheck(ctx context.Context, checker dedup.Checker) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	return checker.Check(ctx)
}

// watch logs, until ctx ends, changes behind the stores.
func (s *StoreStart) watch(ctx context.Context) {
	watched := slices.ContainsFunc(s.proc.Stores(), func(store dedup.Store) bool {
		_, ok := store.(dedup.Watcher)
		return ok
	})
	for watched && Pause(ctx, watchInterval) == nil {
		s.look(ctx, checkWait)
	}
}

// look asks each store once for changes. An error is no finding: calls of the store notice an
// outage, and the next look compares with the same state.
func (s *StoreStart) look(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, store := range s.proc.Stores() {
		watcher, ok := store.(dedup.Watcher)
		if !ok {
			continue
		}
		name := fmt.Sprintf("%T", store)
		warnings, err := watcher.Watch(ctx)
		if err != nil {
			s.log.Debug("store cannot be watched", "store", name, "error", s.text(err))
		}
		for _, w := range warnings {
			s.log.Warn("store: "+w, "store", name)
		}
	}
}

func isOutage(err error) bool {
	return errors.Is(err, dedup.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// Registers reports whether a store keeps registrations.
func (s *StoreStart) Registers() bool {
	return slices.ContainsFunc(s.proc.Stores(), func(store dedup.Store) bool {
		_, ok := store.(dedup.Registrar)
		return ok
	})
}

// Register lets the stores compare this consumer's scope and identity functions with those on
// record (rules 7 and 14). It waits for a store that is down. A refusal is an error.
func (s *StoreStart) Register(ctx context.Context, r dedup.Registration) error {
	var back Backoff
	away := storeProblem()
	setup := setupWatch{limit: s.setup}
	for {
		err := s.tryRegister(ctx, r)
		switch {
		case err == nil:
			if back.Tries > 0 {
				s.log.Info("store available again")
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, dedup.ErrIdentityChanged):
			return fmt.Errorf("%w (events of the backlog would be new again: "+
				"go back to the old identity functions, "+
				"or accept that with Config.AcceptNewIdentity%s)", err, onceBy(err))
		case errors.Is(err, dedup.ErrOtherScope):
			return fmt.Errorf(
				"%w (this group has committed nothing, so all of its events would be new again: "+
					"set Config.Scope to a scope named here if the group continues its work, "+
					"or Config.NewScope if it is another consumer%s)", err, onceBy(err))
		case setup.over(err), !isOutage(err):
			return fmt.Errorf("register: %w", err)
		}
		away.Log(ctx, s.log, s.text(err))
		if err := setup.wait(ctx, &back); err != nil {
			return err
		}
	}
}

// onceBy names the command for a refusal, if the refusal has one.
func onceBy(err error) string {
	var refused interface{ Command() string }
	if !errors.As(err, &refused) {
		return ""
	}
	return "; in SQL databases and Redis the record can be written instead, with: " + refused.Command()
}

func (s *StoreStart) tryRegister(ctx context.Context, r dedup.Registration) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	return s.proc.Register(ctx, r)
}
