package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// storeAccess is a store with the state that the engine keeps about it. Its methods repeat a call
// until the store answers.
type storeAccess struct {
	store    dedup.Store
	renewer  *dedup.LeaseRenewer
	counter  dedup.StartCounter // nil if the store counts no starts
	inflight inflight
	slots    chan struct{} // one value per open transaction; nil: no limit
	lease    time.Duration
	timeout  time.Duration // of a claim, Config.StoreTimeout
	slow     atomic.Int32  // the timeout is doubled that often
	given    *unanswered   // abandoned calls of all stores
	health
}

func newStoreAccess(store dedup.Store, cfg *Config, r *reporter, given *unanswered) *storeAccess {
	s := &storeAccess{
		store: store, lease: cfg.Lease, timeout: cfg.StoreTimeout, given: given,
		health: health{name: fmt.Sprintf("store %T", store), report: r},
	}
	s.counter, _ = store.(dedup.StartCounter)
	if limiter, ok := store.(dedup.TxLimiter); ok && limiter.MaxTx() > 0 {
		s.slots = make(chan struct{}, limiter.MaxTx())
	}
	return s
}

// typeName returns the type of the store.
func (s *storeAccess) typeName() string { return strings.TrimPrefix(s.name, "store ") }

// slot waits for the right to begin a transaction, with no connection or claim held (rule 25). If
// err is nil, release must be called.
func (s *storeAccess) slot(ctx context.Context, budget *waitBudget) (release func(), err error) {
	if s.slots == nil {
		return func() {}, nil
	}
	reason := fmt.Errorf("%w: all connections for transactions are in use", idemtype.ErrBusy)
	if err := budget.acquireSlot(ctx, s.slots, reason); err != nil {
		return nil, err
	}
	return func() { <-s.slots }, nil
}

// called reports a call of the store to observers. answers is nil for a call without answers.
func (s *storeAccess) called(
	ctx context.Context, verb observe.StoreVerb, keys int, answers []dedup.Answer,
	began time.Time, err error,
) {
	if len(s.report.obs.storeCall) == 0 {
		return
	}
	e := observe.StoreCallEvent{
		Group: s.report.group, Store: s.typeName(), Verb: verb, Keys: keys, Took: time.Since(began),
	}
	if !errors.Is(err, dedup.ErrClaimLost) {
		e.Err = err
	}
	if err == nil {
		e.Count(answers)
	}
	for _, o := range s.report.obs.storeCall {
		o.ObserveStoreCall(ctx, e)
	}
}

// errLate means that a claim was granted and that the lease had ended before the answer came.
var errLate = fmt.Errorf("%w: the answer to a claim took longer than the lease; "+
	"a longer Config.Lease helps if that goes on", dedup.ErrUnavailable)

// claimAll asks until the store answers. After an error there is no answer: no handler runs and no
// offset is marked. The token stays the same, so that the store recognizes a claim whose
// reply was lost. answered, which may be nil, is called after every answer.
func (s *storeAccess) claimAll(
	ctx context.Context, budget *waitBudget, token dedup.Token, reqs []dedup.Request,
	answers []dedup.Answer, answered func(since time.Time, err error),
) (since time.Time, err error) {
	a := asker{access: s, token: token, reqs: reqs}
	for try := 1; ; try++ {
		since = time.Now()
		err := a.ask(ctx, answers)
		if err == nil && slices.ContainsFunc(answers, isHeld) && passed(since.Add(s.lease)) {
			clear(answers) // another worker may have taken over meanwhile
			err = errLate
		}
		if answered != nil {
			answered(since, err)
		}
		s.called(ctx, observe.VerbClaim, len(reqs), answers, since, err)
		if err == nil {
			s.up(ctx, since)
			return since, nil
		}
		stop := stopCauseOf(ctx) // after a stop, an error is no sign of an outage
		if stop == nil {
			stop = s.pause(ctx, budget, "claim", try, since, err)
		}
		if stop != nil {
			a.drop(ctx)
			return since, stop
		}
	}
}

func isHeld(a dedup.Answer) bool { return a.Verdict.Held() }

// releaseGhosts releases claims that the store may have granted without an answer, before other
// workers get the events. Otherwise the events would wait for the lease, and under
// DeadLetterUncertain an event that never ran would be given up (rule 32). If the store is down for
// longer than a stop allows, such a claim lasts until the lease ends.
func (s *storeAccess) releaseGhosts(
	ctx context.Context, token dedup.Token, reqs []dedup.Request,
) {
	releases := make([]dedup.Release, len(reqs))
	for i := range reqs {
		releases[i] = dedup.Release{
			Claim:   dedup.Claim{Key: reqs[i].Key, Token: token},
			Outcome: dedup.Unstarted, Retention: reqs[i].Retention,
		}
	}
	s.release(ctx, releases)
}

// release gives claims back, also for a moment after a stop. After a failure the claims last until
// their leases end.
func (s *storeAccess) release(ctx context.Context, releases []dedup.Release) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(abandonAfter, s.lease))
	defer cancel()
	_ = s.insist(ctx, &waitBudget{left: idemtype.Forever}, "release", func() (bool, error) {
		began := time.Now()
		err := s.store.Release(ctx, releases)
		s.called(ctx, observe.VerbRelease, len(releases), nil, began, err)
		return errors.Is(err, dedup.ErrClaimLost), err
	})
}

// completeAll records the end of events until the store answers, because an effect that happened
// must be remembered. completeAll returns the indices of claims that were lost. It gives up when
// hard ends, or after the longer of a lease and the wait budget of the call.
func (s *storeAccess) completeAll(
	hard context.Context, of *waitBudget, done []dedup.Completion,
) (lost []int, err error) {
	budget := waitBudget{left: max(of.left, s.lease)}
	for try := 1; ; try++ {
		began := time.Now()
		err := s.complete(context.WithoutCancel(hard), max(abandonAfter, s.lease/2), done)
		s.called(hard, observe.VerbComplete, len(done), nil, began, err)
		var gone *dedup.LostError
		switch {
		case err == nil:
			s.up(hard, began)
			return nil, nil
		case errors.As(err, &gone):
			return gone.Claims, nil
		}
		if stop := s.pause(hard, &budget, "complete", try, began, err); stop != nil {
			return nil, fmt.Errorf("event %s took effect, but this could not be recorded: %w",
				done[0].Key, stop)
		}
	}
}

// complete asks once. The end of one event shares the call with those of other lanes. Such a call
// takes a lease at most.
func (s *storeAccess) complete(
	ctx context.Context, limit time.Duration, done []dedup.Completion,
) error {
	if len(done) == 1 {
		return s.renewer.Complete(ctx, done[0])
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.store.Complete(ctx, done)
}

// change repeats a change of the store until it succeeds.
func (s *storeAccess) repeat(
	ctx context.Context, budget *waitBudget, what string, fn func(context.Context) error,
) error {
	return s.insist(ctx, budget, what, func() (bool, error) {
		return false, within(context.WithoutCancel(ctx), txSlack, fn)
	})
}

// reachable reports whether the store answers a ping. A store without pings, and an event whose
// store is not known yet, count as reachable.
func (s *storeAccess) reachable(ctx context.Context) bool {
	if s == nil {
		return true
	}
	checker, ok := s.store.(dedup.Checker)
	return !ok || within(ctx, 2*time.Second, checker.Ping) == nil
}

// look returns the method that reads the state of events, or nil. tx chooses the one for
// transactional handlers.
func (s *storeAccess) look(
	tx bool,
) func(context.Context, []dedup.Request, []dedup.Answer) error {
	if tx {
		if looker, ok := s.store.(dedup.TxLooker); ok {
			return looker.LookTx
		}
		return nil
	}
	if looker, ok := s.store.(dedup.Looker); ok {
		return looker.Look
	}
	return nil
}
