package dedup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

const (
	claimBatch = 256 // requests in one shared call of Store.Claim, at most
	claimAlone = 64  // a caller with that many requests gains no time from sharing
)

// errGoexit means that the store ended the goroutine of a shared call.
var errGoexit = errors.New("store ended the goroutine of the call")

// Claim asks for claims as [Store.Claim] does, with the lease of k. Requests, answers and errors
// are the same. Concurrent callers share calls to a store that has the ability [CallSharer]. While
// calls are under way, callers with fewer than 64 requests collect in a queue. The next call takes
// up to 256 requests of the queue. A single caller does not wait.
//
// Each caller keeps a token of its own. After an error that may have its cause in the requests of
// another caller, each caller asks again alone, under the same token.
//
// Claim returns when the store does, like Store.Claim. If ctx ends while the requests are in the
// queue, the requests are not sent. A shared call ends after a lease, or after the contexts of all
// its callers.
func (k *LeaseRenewer) Claim(
	ctx context.Context, t Token, reqs []Request, answers []Answer,
) error {
	if k.claims == nil || len(reqs) == 0 || len(reqs) >= claimAlone ||
		CheckRequests(reqs, answers) != nil { // the store returns the error of that check
		return k.store.Claim(ctx, t, k.lease, reqs, answers)
	}
	c := &claimCaller{ctx: ctx, token: t, reqs: reqs, answers: answers}
	switch k.joinClaims(c) {
	case claimDirect:
		return k.claimDirect(c)
	case claimQueued:
		if alone, err := k.waitClaim(c); !alone {
			return err
		}
	case claimNoSender:
	}
	return k.store.Claim(ctx, t, k.lease, reqs, answers)
}

// claimCaller is one caller of Claim.
type claimCaller struct {
	ctx     context.Context //nolint:containedctx // its values travel with the shared call
	token   Token
	reqs    []Request
	answers []Answer

	call *claimCall    // that has the requests; nil in the queue; under claimQueue.mu
	done chan struct{} // closed at the end of the call
	err  error
	// alone: the call failed, perhaps because of another caller's requests, or was never made
	alone    bool
	panicked any
}

// claimCall is one shared call.
type claimCall struct {
	callers []*claimCaller
	waiting int // callers that have not left; under claimQueue.mu
	cancel  context.CancelFunc
}

// claimQueue collects the requests of concurrent callers.
type claimQueue struct {
	senders
	queue []*claimCaller // all of them wait, so callers bound it
}

// claimTurn is how a caller goes on.
type claimTurn int

const (
	claimDirect   claimTurn = iota // the caller is a sender for its own requests
	claimQueued                    // a sender takes the requests
	claimNoSender                  // all senders hang, or the renewer is closed
)

// joinClaims decides how a caller goes on. One that finds an empty queue and a free sender asks in
// its own goroutine.
func (k *LeaseRenewer) joinClaims(c *claimCaller) claimTurn {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.claims
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case k.closed, q.slow == q.running && q.full():
		return claimNoSender
	case len(q.queue) == 0 && q.free():
		q.running++
		return claimDirect
	}
	c.done = make(chan struct{})
	q.queue = append(q.queue, c)
	return claimQueued
}

// claimDirect asks for one caller and lets a sender continue with the callers that came meanwhile.
func (k *LeaseRenewer) claimDirect(c *claimCaller) (err error) {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.claims.mu.Lock()
		defer k.claims.mu.Unlock()
		k.claims.running--
		k.moreClaims()
	}()
	k.watched(&k.claims.senders, func() {
		err = k.store.Claim(c.ctx, c.token, k.lease, c.reqs, c.answers)
	}, k.moreClaims)
	return err
}

// moreClaims starts a sender if the queue needs one. Callers that no sender would take ask alone.
// Both locks are held.
func (k *LeaseRenewer) moreClaims() {
	q := k.claims
	switch {
	case len(q.queue) == 0:
	case q.slow == q.running && (k.closed || q.full()):
		for _, c := range q.queue {
			c.alone = true
			close(c.done)
		}
		q.queue = nil
	case !k.closed && q.free():
		q.running++
		k.group.Go(k.sendClaims)
	}
}

// waitClaim waits for the end of the shared call.
func (k *LeaseRenewer) waitClaim(c *claimCaller) (alone bool, err error) {
	select {
	case <-c.done:
	case <-c.ctx.Done():
		if k.claims.leave(c) {
			return false, c.ctx.Err()
		}
		<-c.done
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	if ended := c.ctx.Err(); c.alone && ended != nil {
		return false, cmp.Or(c.err, ended) // without c.err no call had the requests
	}
	return c.alone, c.err
}

// leave removes a caller from the queue. If the requests of the caller are under way, the caller
// stops waiting for the answer. The last caller that stops waiting cancels the call.
func (q *claimQueue) leave(c *claimCaller) (unsent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.queue, c); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
		return true
	}
	if c.call != nil {
		if c.call.waiting--; c.call.waiting == 0 {
			c.call.cancel()
		}
	}
	return false
}

// sendClaims is a sender. The sender ends when the queue is empty.
func (k *LeaseRenewer) sendClaims() {
	idle := false
	defer func() {
		if !idle { // the store ended this goroutine
			k.mu.Lock()
			defer k.mu.Unlock()
			k.claims.mu.Lock()
			defer k.claims.mu.Unlock()
			k.claims.running--
			k.moreClaims()
		}
	}()
	for {
		ctx, call := k.claims.next(k.lease)
		if call == nil {
			idle = true
			return
		}
		k.watched(&k.claims.senders, func() { k.claimShared(ctx, call) }, k.moreClaims)
	}
}

// next takes the requests of one call off the queue, or ends the sender. A caller with a key that
// the call has already stays for the next call.
func (q *claimQueue) next(lease time.Duration) (context.Context, *claimCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.running--
		return nil, nil
	}
	call := &claimCall{}
	n, keys := 0, make(map[Key]bool, min(len(q.queue), claimBatch))
	q.queue = slices.DeleteFunc(q.queue, func(c *claimCaller) bool {
		if n+len(c.reqs) > claimBatch ||
			slices.ContainsFunc(c.reqs, func(r Request) bool { return keys[r.Key] }) {
			return false
		}
		for i := range c.reqs {
			keys[c.reqs[i].Key] = true
		}
		n += len(c.reqs)
		c.call = call
		call.callers = append(call.callers, c)
		return true
	})
	call.waiting = len(call.callers)
	var ctx context.Context
	ctx, call.cancel = context.WithTimeout(context.WithoutCancel(call.callers[0].ctx), lease)
	return ctx, call
}

// claimShared makes one call and gives each caller its answers.
func (k *LeaseRenewer) claimShared(ctx context.Context, call *claimCall) {
	defer call.cancel()
	err, panicked := errGoexit, any(nil)
	reqs, from := call.requests()
	answers := make([]Answer, len(reqs))
	defer func() {
		panicked = recover()
		for j, f := range from {
			if err == nil && panicked == nil {
				f.caller.answers[f.at] = answers[j]
			}
		}
		for _, c := range call.callers {
			c.err, c.panicked = err, panicked
			c.alone = err != nil && len(call.callers) > 1 && !errors.Is(err, ErrUnavailable)
			close(c.done)
		}
	}()
	err = k.store.Claim(ctx, call.callers[0].token, k.lease, reqs, answers)
}

// claimOrigin is the place of a request in a shared call.
type claimOrigin struct {
	caller *claimCaller
	at     int
}

// requests returns the requests of all callers in the order of keys (P-04), with their tokens.
func (l *claimCall) requests() ([]Request, []claimOrigin) {
	var from []claimOrigin
	for _, c := range l.callers {
		for i := range c.reqs {
			from = append(from, claimOrigin{c, i})
		}
	}
	slices.SortFunc(from, func(a, b claimOrigin) int {
		return a.caller.reqs[a.at].Key.Compare(b.caller.reqs[b.at].Key)
	})
	reqs := make([]Request, len(from))
	for i, f := range from {
		reqs[i] = f.caller.reqs[f.at]
		reqs[i].Token = reqs[i].TokenOr(f.caller.token)
	}
	return reqs, from
}
