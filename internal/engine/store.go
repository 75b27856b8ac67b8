package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	slow     atomic.Int32  // how often the timeout is doubled
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
	if len(s.report.obs.StoreCall) == 0 {
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
	for _, o := range s.report.obs.StoreCall {
		o.ObserveStoreCall(ctx, e)
	}
}

// errLate means that a claim was granted, and that its lease had ended before the answer came.
var errLate = fmt.Errorf("%w: the answer to a claim took longer than the lease; "+
	"a longer Config.Lease helps if that goes on", dedup.ErrUnavailable)

// claimAll asks until the store answers. After an error there is no answer: no handler runs and no
// offset is marked. The token stays the same, so that the store recognizes a claim after a
// lost reply.
//
// answered is called after every answer, and may be nil. leave is called after an error, and may be
// nil. If leave returns true, claimAll returns errWithoutStore.
func (s *storeAccess) claimAll(
	ctx context.Context, budget *waitBudget, token dedup.Token, reqs []dedup.Request,
	answers []dedup.Answer, answered func(since time.Time, err error),
	leave func(since time.Time, err error) bool,
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
			kind := callAsk
			if slices.ContainsFunc(answers, isHeld) {
				kind = callChange
			}
			s.succeeded(ctx, since, kind)
			return since, nil
		}
		stop := stopCauseOf(ctx) // after a stop, an error is no sign of an outage
		if stop == nil && leave != nil && leave(since, err) {
			return since, errWithoutStore
		}
		if stop == nil {
			stop = s.pause(ctx, budget, callAsk, "claim", try, since, err)
		}
		if stop != nil {
			a.drop(ctx)
			return since, stop
		}
	}
}

func isHeld(a dedup.Answer) bool { return a.Verdict.Held() }

// releaseGhosts releases claims that the store may have granted without an answer, before other
// workers get the events. Otherwise the events would wait for the lease. Under DeadLetterUncertain,
// an event that never ran would be given up (rule 32). If the store is down for longer than a stop
// allows, such a claim lasts until the lease ends.
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

// release releases claims. The calls go on for a moment after a stop. After a failure the claims
// last until their leases end.
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

// completeAll records the end of events. The call is repeated until the store answers, because an
// effect that happened must be remembered. lost has the indices of lost claims. completeAll gives
// up when hard ends, or after the longer of a lease and the wait budget of the call.
func (s *storeAccess) completeAll(
	hard context.Context, of *waitBudget, done []dedup.Completion,
) (lost []int, err error) {
	budget := waitBudget{left: max(of.left, s.lease)}
	for try := 1; ; try++ {
		began := time.Now()
		err := s.complete(context.WithoutCancel(hard), max(abandonAfter, s.lease/2), done)
		s.called(hard, observe.VerbComplete, len(done), nil, began, err)
		if err == nil {
			s.up(hard, began)
			return nil, nil
		}
		var gone *dedup.LostError // below the return: the variable is an allocation
		if errors.As(err, &gone) {
			return gone.Claims, nil
		}
		if stop := s.pause(hard, &budget, callChange, "complete", try, began, err); stop != nil {
			return nil, fmt.Errorf("event %s took effect, but this could not be recorded: %w",
				done[0].Key, stop)
		}
	}
}

// complete calls the store once. The completion of a single event shares its call with completions
// of other lanes. Such a call takes a lease at most.
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

// repeat repeats a change of the store until it succeeds.
func (s *storeAccess) repeat(
	ctx context.Context, budget *waitBudget, what string, fn func(context.Context) error,
) error {
	return s.insist(ctx, budget, what, func() (bool, error) {
		return false, within(context.WithoutCancel(ctx), txSlack, fn)
	})
}

// repeatLook repeats a look at the store until it succeeds.
func (s *storeAccess) repeatLook(
	ctx context.Context, budget *waitBudget, what string, fn func(context.Context) error,
) error {
	return s.insistOn(ctx, budget, callLook, what, func() (bool, error) {
		return false, within(context.WithoutCancel(ctx), txSlack, fn)
	})
}

// reachable reports whether the store answers a ping. A store without pings counts as reachable.
// The same holds if the store of the event is not known yet.
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

// maxUnanswered limits the abandoned calls of one claim. At the limit the claim waits for one of
// them.
const maxUnanswered = 2

// errUnanswered means that a call was abandoned.
var errUnanswered = fmt.Errorf("%w: no answer in time", dedup.ErrUnavailable)

// asker asks for one claim, under one token, until the store answers. Some clients of databases
// ignore the end of a context. A call that does not return in time goes on in its goroutine. The
// asker then asks again on another connection.
type asker struct {
	access *storeAccess
	token  dedup.Token
	reqs   []dedup.Request

	mu        sync.Mutex
	abandoned int // calls that were given up and have not returned
	// not nil if the claim is not wanted any longer; closed when no call is left
	dropped chan struct{}
}

// ask asks once.
func (a *asker) ask(ctx context.Context, answers []dedup.Answer) error {
	a.mu.Lock()
	full := a.abandoned >= maxUnanswered
	a.mu.Unlock()
	if full {
		return errUnanswered
	}
	slow := a.access.slow.Load()
	began, limit := time.Now(), min(a.access.timeout<<slow, max(a.access.timeout, a.access.lease))
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got := make([]dedup.Answer, len(answers)) // not shared: an abandoned call may still write
	err := a.call(
		bounded,
		func() error { return a.access.renewer.Claim(bounded, a.token, a.reqs, got) },
	)
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil && limit < a.access.lease:
		// A slow store must not be asked in vain forever.
		a.access.slow.CompareAndSwap(slow, slow+1)
	case err == nil && time.Since(began) < a.access.timeout/2:
		a.access.slow.Store(0)
	}
	if err == nil && slices.ContainsFunc(got, func(a dedup.Answer) bool { return a.Verdict == 0 }) {
		err = errors.New("store returned no verdict")
	}
	if err == nil {
		copy(answers, got)
	}
	return err
}

type claimResult struct {
	err      error
	panicked any
}

// call runs fn and returns when fn returns or ctx ends. A panic of fn goes on in the caller.
func (a *asker) call(ctx context.Context, fn func() error) error {
	done := make(chan claimResult, 1)
	var over, left bool // guarded by a.mu
	go func() {
		r := claimResult{err: errUnanswered} // if fn ends its goroutine
		defer func() {
			r.panicked = recover()
			a.mu.Lock()
			over = true
			gone := left
			a.mu.Unlock()
			if gone {
				a.late()
			} else {
				done <- r
			}
		}()
		r.err = fn()
	}()
	select {
	case r := <-done:
		return r.result()
	case <-ctx.Done():
	}
	a.mu.Lock()
	if over {
		a.mu.Unlock()
		r := <-done
		return r.result()
	}
	left = true
	a.abandoned++
	a.access.given.add()
	a.mu.Unlock()
	return fmt.Errorf("%w: %w", errUnanswered, context.Cause(ctx))
}

func (r claimResult) result() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// late handles the return of an abandoned call. A claim that is no longer wanted is released.
func (a *asker) late() {
	defer a.access.given.done()
	a.mu.Lock()
	a.abandoned--
	dropped := a.dropped
	last := dropped != nil && a.abandoned == 0
	a.mu.Unlock()
	if dropped == nil {
		return
	}
	a.access.releaseGhosts(context.Background(), a.token, a.reqs)
	if last {
		close(dropped)
	}
}

// drop releases the claim now, and again after each abandoned call returns.
func (a *asker) drop(ctx context.Context) {
	a.mu.Lock()
	a.dropped = make(chan struct{})
	left := a.abandoned
	a.mu.Unlock()
	if left > 0 {
		timer := time.NewTimer(abandonAfter)
		defer timer.Stop()
		select {
		case <-a.dropped: // each call has released the claim
			return
		case <-timer.C:
		}
	}
	a.access.releaseGhosts(ctx, a.token, a.reqs)
}

// unanswered counts calls that were given up and have not returned.
type unanswered struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is zero; nil while n is zero
}

func (u *unanswered) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n++; u.n == 1 {
		u.none = make(chan struct{})
	}
}

func (u *unanswered) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		close(u.none)
		u.none = nil
	}
}

// wait waits for abandoned calls, for at most d, and returns the number that is left.
func (u *unanswered) wait(d time.Duration) int {
	u.mu.Lock()
	none := u.none
	u.mu.Unlock()
	if none == nil {
		return 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}
