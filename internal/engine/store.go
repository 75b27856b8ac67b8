package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// storeAccess is a store with what the engine keeps about it.
type storeAccess struct {
	store    dedup.Store
	renewer  *dedup.LeaseRenewer
	counter  dedup.StartCounter // nil if it is none
	inflight inflight
	slots    chan struct{} // a value in it is a transaction; nil: no bound
	slow     atomic.Int32  // claims get StoreTimeout, doubled as often
	health
}

func newStoreAccess(store dedup.Store) *storeAccess {
	access := &storeAccess{store: store, health: health{name: fmt.Sprintf("store %T", store)}}
	access.counter, _ = store.(dedup.StartCounter)
	if limiter, ok := store.(dedup.TxLimiter); ok && limiter.MaxTx() > 0 {
		access.slots = make(chan struct{}, limiter.MaxTx())
	}
	return access
}

// slot waits for the right to begin a transaction, with no connection or claim held (rule 25). release must be called if
// err is nil.
func (s *storeAccess) slot(ctx context.Context, budget *waitBudget) (release func(), err error) {
	if s.slots == nil {
		return func() {}, nil
	}
	if err := budget.acquireSlot(ctx, s.slots, fmt.Errorf("%w: all connections for transactions are in use", idemtype.ErrBusy)); err != nil {
		return nil, err
	}
	return func() { <-s.slots }, nil
}

// claimAll asks until the store answers. of returns the delivery that a request is for. Whatever the error is, there is no answer: nothing runs and nothing is marked
// . The token stays the same, so that a claim whose reply was lost is recognised.
func (p *Processor) claimAll(ctx context.Context, access *storeAccess, budget *waitBudget, token dedup.Token, of func(i int) *task,
	reqs []dedup.Request, answers []dedup.Answer,
) (since time.Time, err error) {
	a := asker{p: p, access: access, token: token, reqs: reqs}
	for try := 1; ; try++ {
		since = time.Now()
		err := a.ask(ctx, answers)
		if err == nil && slices.ContainsFunc(answers, held) && passed(since.Add(p.cfg.Lease)) {
			clear(answers) // another worker may have taken over meanwhile
			err = errLate
		}
		for i := range answers {
			p.observeClaim(ctx, of(i), answers[i].Verdict, since, err)
		}
		p.storeCall(ctx, access, observe.VerbClaim, len(reqs), answers, since, err)
		if err == nil {
			access.up(ctx, p, since)
			return since, nil
		}
		stop := stopCauseOf(ctx) // an error after a stop says nothing about the store
		if stop == nil {
			stop = p.pause(ctx, budget, &access.health, "claim", try, since, err)
		}
		if stop != nil {
			a.drop(ctx)
			return since, stop
		}
	}
}

// errLate says that a claim was granted and that its lease was over when the answer came.
var errLate = fmt.Errorf("%w: the answer to a claim took longer than the lease; a longer Config.Lease helps if that goes on",
	dedup.ErrUnavailable)

func held(a dedup.Answer) bool { return a.Verdict.Held() }

// releaseGhosts gives back claims that may have been granted although no answer came, before the deliveries are left to
// others: they would wait for the lease otherwise, and under DeadLetterUncertain give up an event that never ran (rule 32). If the
// store is down for longer than a stop allows, a claim stays a ghost until its lease ends.
func (p *Processor) releaseGhosts(ctx context.Context, access *storeAccess, token dedup.Token, reqs []dedup.Request) {
	releases := make([]dedup.Release, len(reqs))
	for i := range reqs {
		releases[i] = dedup.Release{
			Claim: dedup.Claim{Key: reqs[i].Key, Token: token}, Outcome: dedup.Unstarted, Retention: reqs[i].Retention,
		}
	}
	p.release(ctx, access, releases)
}

// release works on after a stop, for a moment; a failure leaves the claims to their lease.
func (p *Processor) release(ctx context.Context, access *storeAccess, releases []dedup.Release) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(abandonAfter, p.cfg.Lease))
	defer cancel()
	_ = p.insist(ctx, &waitBudget{left: idemtype.Forever}, &access.health, "release", func() (bool, error) {
		began := time.Now()
		err := access.store.Release(ctx, releases)
		p.storeCall(ctx, access, observe.VerbRelease, len(releases), nil, began, err)
		return errors.Is(err, dedup.ErrClaimLost), err
	})
}

// complete records the end of one event. It reports whether the claim was lost, and tells observers of that.
func (p *Processor) complete(hard context.Context, t *task, c dedup.Completion) (lost bool, err error) {
	c.Claim, c.Retention = t.claim, t.route.Retention
	if c.Dead != "" { // whose dead letter was sent, so that other copies can be told from it (rule 6)
		c.First = t.request.Origin
	}
	gone, err := p.completeAll(hard, t.access, t.budget, []dedup.Completion{c})
	if len(gone) > 0 {
		p.notifyLost(hard, t)
	}
	return len(gone) > 0, err
}

// completeAll records the end of events until the store answers, since an effect that happened must be remembered. It
// returns the indices of claims that were lost. It gives up when hard, the context of work that was begun, has ended, or
// after the longer of a lease and the wait budget of the call.
func (p *Processor) completeAll(hard context.Context, access *storeAccess, of *waitBudget, done []dedup.Completion) (lost []int, err error) {
	budget := waitBudget{left: max(of.left, p.cfg.Lease)}
	for try := 1; ; try++ {
		began := time.Now()
		err := access.complete(context.WithoutCancel(hard), max(abandonAfter, p.cfg.Lease/2), done)
		p.storeCall(hard, access, observe.VerbComplete, len(done), nil, began, err)
		var gone *dedup.LostError
		switch {
		case err == nil:
			access.up(hard, p, began)
			return nil, nil
		case errors.As(err, &gone):
			return gone.Claims, nil
		}
		if stop := p.pause(hard, &budget, &access.health, "complete", try, began, err); stop != nil {
			return nil, fmt.Errorf("event %s took effect, but this could not be recorded: %w", done[0].Key, stop)
		}
	}
}

// complete asks once. The end of one event is joined with those of other lanes, in a call that lasts a lease at most.
func (s *storeAccess) complete(ctx context.Context, limit time.Duration, done []dedup.Completion) error {
	if len(done) == 1 {
		return s.renewer.Complete(ctx, done[0])
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.store.Complete(ctx, done)
}

// probe reports whether the store can be reached, as far as it can say.
func (p *Processor) probe(ctx context.Context, t *task) bool {
	if t.access == nil { // of an event whose handler is not known yet
		return true
	}
	checker, ok := t.access.store.(dedup.Checker)
	return !ok || p.bounded(ctx, 2*time.Second, checker.Ping) == nil
}
