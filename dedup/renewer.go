package dedup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// DefaultLease is the lease of a [LeaseRenewer] that was made without one.
const DefaultLease = 30 * time.Second

// ErrLeaseRenewerClosed is the cause of cancelled contexts after [LeaseRenewer.Close], which
// ends the renewal of their claims.
var ErrLeaseRenewerClosed = errors.New("lease renewer closed")

// LeaseRenewer renews claims for many goroutines. All leases of one store are renewed in batches,
// and concurrent claims and completions share calls. The context of a lost claim is cancelled. Make
// one for each store with [NewLeaseRenewer]. A LeaseRenewer is safe for concurrent use.
//
// A lease is renewed after a third of its time, and again every twelfth after an error. A call
// that takes longer than a sixth of the lease is given up. A claim is lost when the lease is
// over without a successful renewal, and not before. The lease counts from the time just before
// the request was sent. The later of the monotonic and the wall clock counts: a machine that was
// suspended must not trust leases that ended meanwhile.
//
// To a renewal, a completed claim looks lost. If a completion of the claim has no answer, the
// completion decides: the renewer repeats it every twelfth of the lease. Until the store has
// answered, the claim is not lost, also after the end of the lease.
//
// A [*PartError] is a failure of the claims that it names, any other error one of all claims of the
// call. Those claims are renewed in up to eight calls at the same time. So also without a PartError,
// one claim that cannot be renewed is soon alone in its call, and the others keep their leases.
//
// One goroutine renews, another one runs for each call of a renewal, and others send claims and
// completions. The goroutines exist only while claims are kept and for one lease after the last.
// [LeaseRenewer.Close] waits for all.
type LeaseRenewer struct {
	store Store
	lease time.Duration

	mu      sync.Mutex
	kept    map[keptID]*kept
	wakeAt  time.Time // when the renewals goroutine will look again; valid while it runs
	running bool      // the renewals goroutine runs; changed under mu, so that there is only one
	closed  bool
	wake    chan struct{} // the renewals goroutine must look sooner than planned
	quit    chan struct{} // closed by Close
	group   sync.WaitGroup

	joiner joiner
	claims *claimQueue // nil if calls of Claim cannot be shared
}

// keptID: a key may be kept under two tokens, after this process took the claim over from itself.
type keptID struct {
	key   Key
	token Token
}

// kept is one claim that is renewed. Its fields are guarded by LeaseRenewer.mu.
type kept struct {
	claim      Claim
	cancel     context.CancelCauseFunc
	since      time.Time   // just before the last successful request: the lease counts from here
	retryAt    time.Time   // not to be renewed before this, after an error
	suspect    bool        // the last renewal of this claim failed
	completing int         // completions of this claim that are queued or under way
	unanswered *Completion // the last one that may have arrived without an answer; nil: none
	denied     bool        // the store answered the last renewal: not held
	lost       bool
}

// doubted reports whether the store no longer holds a claim, and a completion may be the reason. No
// lease runs then. LeaseRenewer.mu is held.
func (e *kept) doubted() bool {
	return e.denied && (e.completing > 0 || e.unanswered != nil)
}

// lose cancels the context of a claim that is lost. LeaseRenewer.mu is held.
func (e *kept) lose() {
	e.lost = true
	e.cancel(ErrClaimLost)
}

// NewLeaseRenewer returns a LeaseRenewer of claims in s. All claims must have been granted with
// this lease. Zero or less: [DefaultLease].
func NewLeaseRenewer(s Store, lease time.Duration) *LeaseRenewer {
	if lease <= 0 {
		lease = DefaultLease
	}
	k := &LeaseRenewer{
		store: s, lease: lease, kept: make(map[keptID]*kept),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	k.joiner.atOnce = 1
	if sharer, ok := s.(CallSharer); ok {
		k.joiner.atOnce = max(1, sharer.SharedCalls())
		k.claims = &claimQueue{senders: senders{atOnce: k.joiner.atOnce}}
	}
	return k
}

// Lease returns the lease that claims must be granted with.
func (k *LeaseRenewer) Lease() time.Duration { return k.lease }

// Keep renews c until stop is called. The argument since is the time just before the request for c
// was sent. The context held is ctx, but is cancelled too when c is lost. Then [context.Cause]
// matches [ErrClaimLost], and the event must not be completed. If the lease is over already, held
// is cancelled at once.
//
// The end of ctx does not end the renewal, since the work may need time to stop. Call stop as soon
// as no work runs under the claim, or the work is abandoned. The function stop cancels held, costs
// little, does not wait, and may be called more than once. A renewal under way may still arrive and
// adds one lease at most.
//
// Do not keep a claim a second time before stop was called.
func (k *LeaseRenewer) Keep(ctx context.Context, c Claim, since time.Time) (
	held context.Context, stop func()) {
	all := k.KeepAll(ctx, []Claim{c}, since)
	return all.ctx, all.StopAll
}

// KeepAll is [LeaseRenewer.Keep] for claims that share their work, such as a handler of many
// events. The loss of one claim cancels the context of all.
func (k *LeaseRenewer) KeepAll(ctx context.Context, claims []Claim, since time.Time) *HeldClaims {
	all := &HeldClaims{renewer: k, claims: make([]kept, len(claims))}
	all.ctx, all.cancel = context.WithCancelCause(ctx)
	now := time.Now()
	if since.After(now) { // a mistake must not make the lease longer
		since = now
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range claims {
		e := &all.claims[i]
		*e = kept{claim: c, cancel: all.cancel, since: since}
		switch {
		case k.closed:
			all.cancel(ErrLeaseRenewerClosed)
		case passed(k.deadline(e), now):
			e.lose()
		default:
			k.kept[keptID{c.Key, c.Token}] = e
			k.runBy(k.due(e))
		}
	}
	return all
}

// HeldClaims are claims that a [LeaseRenewer] renews together.
type HeldClaims struct {
	renewer *LeaseRenewer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	claims  []kept
}

// Context returns the held context of [LeaseRenewer.Keep].
func (s *HeldClaims) Context() context.Context { return s.ctx }

// Alive reports whether all claims are still held as far as the clocks show. Call it before planned
// work begins: after a pause of the process the renewer may not have run yet.
func (s *HeldClaims) Alive() bool {
	if s.ctx.Err() != nil {
		return false
	}
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	now := time.Now()
	for i := range s.claims {
		if passed(s.renewer.deadline(&s.claims[i]), now) {
			return false
		}
	}
	return true
}

// Lost reports whether claim i was lost while kept, by the index in the call of KeepAll. Either
// the lease was over, or the store has granted the key to another worker. The other claims are
// not lost.
func (s *HeldClaims) Lost(i int) bool {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.claims[i].lost
}

// Stop ends the renewal of claim i, by the index in the call of KeepAll. Stop may be called more
// than once.
func (s *HeldClaims) Stop(i int) {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	s.stop(i)
}

// StopAll ends the renewal of all claims and cancels the context. StopAll may be called more than
// once.
func (s *HeldClaims) StopAll() {
	s.renewer.mu.Lock()
	for i := range s.claims {
		s.stop(i)
	}
	s.renewer.mu.Unlock()
	s.cancel(context.Canceled)
}

func (s *HeldClaims) stop(i int) {
	e := &s.claims[i]
	id := keptID{e.claim.Key, e.claim.Token}
	if s.renewer.kept[id] == e {
		delete(s.renewer.kept, id)
	}
}

// Close stops the renewals and cancels the contexts of all claims that are still kept, with the
// cause [ErrLeaseRenewerClosed]. Close waits for renewals and shared calls under way, for the
// latter at most a lease each. Claims kept afterwards are cancelled at once. Claim and Complete go
// on working. Close may be called more than once.
func (k *LeaseRenewer) Close() {
	k.mu.Lock()
	if !k.closed {
		k.closed = true
		close(k.quit)
	}
	for id, e := range k.kept {
		delete(k.kept, id)
		e.cancel(ErrLeaseRenewerClosed)
	}
	k.mu.Unlock()
	k.group.Wait() // no goroutine is added after closed was set under mu
}

// passed reports whether t has passed by one of the two clocks (rule 49, R-18). Round strips the
// monotonic one.
func passed(t, now time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

func (k *LeaseRenewer) deadline(e *kept) time.Time { return e.since.Add(k.lease) }

func (k *LeaseRenewer) due(e *kept) time.Time {
	due := e.since.Add(k.lease / 3)
	if e.retryAt.After(due) {
		return e.retryAt
	}
	return due
}

// runBy makes sure, under mu, that the renewals goroutine runs and looks at the claims at t or
// sooner. No wake-up is lost. That goroutine writes wakeAt, and decides to exit, under the same
// lock under which it looked at the claims.
func (k *LeaseRenewer) runBy(t time.Time) {
	if !k.running {
		k.running = true
		k.wakeAt = t
		k.group.Go(k.renewals)
		return
	}
	if t.Before(k.wakeAt) {
		select {
		case k.wake <- struct{}{}:
		default: // a wake-up is pending
		}
	}
}

// renewals renews claims until a lease has gone by without a kept claim. Each call to the store
// has another goroutine, so that claims are lost at the deadline even if the store hangs.
func (k *LeaseRenewer) renewals() {
	ended := make(chan renewal, 1+renewPieces)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	underway := 0
	idle := time.Now()
	for {
		batches, wait, exit := k.look(&idle, underway > 0)
		if exit {
			return
		}
		if underway += len(batches); len(batches) > 0 {
			for _, batch := range batches {
				k.group.Go(func() { ended <- k.renew(ctx, batch) })
			}
			continue // look again for the next time to wake
		}
		timer.Reset(wait)
		select {
		case r := <-ended:
			underway--
			k.note(ctx, r)
		case <-timer.C:
		case <-k.wake:
		case <-k.quit:
			cancel()
			for range underway {
				<-ended
			}
			return
		}
	}
}

// look drops the claims with an ended lease, and returns either batches to renew or the time to
// wait. If exit is true, no claim was kept for a lease.
func (k *LeaseRenewer) look(idle *time.Time, underway bool) (
	batches [][]*kept, wait time.Duration, exit bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if len(k.kept) > 0 || underway {
		*idle = now
	}
	next := now.Add(k.lease / 12) // the wall clock has no timer: look at it now and then (rule 49)
	if len(k.kept) == 0 {
		next = idle.Add(k.lease)
		if !underway && !now.Before(next) {
			k.running = false // under mu: the next KeepAll starts another goroutine
			return nil, 0, true
		}
	}
	ready := false
	for id, e := range k.kept {
		if !e.doubted() {
			d := k.deadline(e)
			if passed(d, now) {
				delete(k.kept, id)
				e.lose()
				continue
			}
			next = earlier(next, d)
		}
		if due := k.due(e); !due.After(now) {
			ready = true
		} else {
			next = earlier(next, due)
		}
	}
	if ready && !underway {
		return pieces(k.nextBatch(now)), 0, false
	}
	k.wakeAt = next
	return nil, max(next.Sub(now), time.Millisecond), false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// nextBatch returns the claims to renew now, under mu. Claims that will soon be due go
// along with those that are, so that the calls are few however the claims are spread over time. A
// key that is kept twice waits for the next batch.
func (k *LeaseRenewer) nextBatch(now time.Time) []*kept {
	var batch []*kept
	soon := now.Add(k.lease / 12)
	for _, e := range k.kept {
		if !e.retryAt.After(now) && !k.due(e).After(soon) {
			batch = append(batch, e)
		}
	}
	if len(batch) > renewBatch { // the oldest first
		slices.SortFunc(batch, func(a, b *kept) int { return a.since.Compare(b.since) })
		batch = batch[:renewBatch]
	}
	slices.SortFunc(batch, func(a, b *kept) int { // P-04
		return a.claim.Key.Compare(b.claim.Key)
	})
	return slices.CompactFunc(batch, func(a, b *kept) bool { return a.claim.Key == b.claim.Key })
}
