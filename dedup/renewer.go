package dedup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultLease is the lease of a [LeaseRenewer] that was made without one.
	DefaultLease = 30 * time.Second

	renewBatch    = 512 // claims in one call of Store.Renew
	completeBatch = 256 // completions in one call of Store.Complete
)

// ErrLeaseRenewerClosed is the cause of contexts whose claims nobody renews any longer because of [LeaseRenewer.Close].
var ErrLeaseRenewerClosed = errors.New("lease renewer closed")

// LeaseRenewer holds claims for many goroutines: it renews all leases of one store in batches, joins their completions into
// few calls, and cancels the context of a claim that was lost. Make it with [NewLeaseRenewer]; one for each store is enough.
// It is safe for concurrent use.
//
// A lease is renewed when a third of it is over, and again every twelfth after an error. A call that takes
// longer than a sixth of the lease is given up. An error is not the end: the claim is lost when its lease is over
// without a renewal having succeeded, and not before. The lease counts from before the request for it was sent,
// by the monotonic or the wall clock, whichever is further on: a machine that was suspended must not believe in leases
// that ended meanwhile (rule 49, R-18).
//
// One goroutine renews, and a second one while a call is under way. Both exist only while claims are kept and for one
// lease after the last. A third one sends completions while there are any. [LeaseRenewer.Close] waits for all.
type LeaseRenewer struct {
	store Store
	lease time.Duration

	mu      sync.Mutex
	kept    map[keptID]*kept
	wakeAt  time.Time // when the renewer will look again; meaningful while it runs
	running bool      // the renewer; changed under mu only, so that there is never a second one
	closed  bool
	wake    chan struct{} // the renewer must look sooner than it planned
	quit    chan struct{} // closed by Close
	group   sync.WaitGroup

	join joiner
}

// keptID: a key may be kept under two tokens, if this process took it over from itself.
type keptID struct {
	key   Key
	token Token
}

// kept is one claim that is held. Its fields are guarded by LeaseRenewer.mu.
type kept struct {
	claim      Claim
	cancel     context.CancelCauseFunc
	since      time.Time // before the last request that succeeded was sent: where the lease counts from
	retry      time.Time // not to be renewed before this, after an error
	completing int       // completions of this claim that are queued or under way
	lost       bool
}

// lose tells whoever holds the claim that it is lost. LeaseRenewer.mu is held.
func (e *kept) lose() {
	e.lost = true
	e.cancel(ErrClaimLost)
}

// NewLeaseRenewer returns a LeaseRenewer of claims in s. All its claims must have been granted with this lease; zero, or less,
// means [DefaultLease].
func NewLeaseRenewer(s Store, lease time.Duration) *LeaseRenewer {
	if lease <= 0 {
		lease = DefaultLease
	}
	return &LeaseRenewer{
		store: s, lease: lease, kept: make(map[keptID]*kept),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
}

// Lease is the lease that claims must be granted with, and are renewed with.
func (k *LeaseRenewer) Lease() time.Duration { return k.lease }

// Keep renews c until stop is called. since is the time just before the request for c was sent. held is ctx, but also
// cancelled when c is lost: [context.Cause] then matches [ErrClaimLost], and nothing may be marked. It is cancelled at
// once if the lease is over already.
//
// A cancelled ctx does not end the renewal, since what it told to stop may need time to stop. Call stop as soon as
// nothing runs under the claim any longer, or what runs is abandoned (rule 9): it cancels held, costs little, does not
// wait, and may be called more than once. A renewal that is on its way at that moment may still arrive; it adds one
// lease at most. A claim that is kept must not be kept a second time before stop was called.
func (k *LeaseRenewer) Keep(ctx context.Context, c Claim, since time.Time) (held context.Context, stop func()) {
	all := k.KeepAll(ctx, []Claim{c}, since)
	return all.ctx, all.StopAll
}

// KeepAll is [LeaseRenewer.Keep] for claims under which one thing runs, such as a handler that takes many events: the loss of
// one of them cancels the context of all.
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
		case over(k.deadline(e), now):
			e.lose()
		default:
			k.kept[keptID{c.Key, c.Token}] = e
			k.renewer(k.due(e))
		}
	}
	return all
}

// HeldClaims are claims that a [LeaseRenewer] renews for one user.
type HeldClaims struct {
	renewer *LeaseRenewer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	claims  []kept
}

// Context is the held context of [LeaseRenewer.Keep].
func (s *HeldClaims) Context() context.Context { return s.ctx }

// Alive reports whether all claims are still held as far as the clocks can say. A process that wakes after it was paused
// asks before it begins what it had planned: its renewer may not have run yet.
func (s *HeldClaims) Alive() bool {
	if s.ctx.Err() != nil {
		return false
	}
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	now := time.Now()
	for i := range s.claims {
		if over(s.renewer.deadline(&s.claims[i]), now) {
			return false
		}
	}
	return true
}

// Lost reports whether claim i, by its index in the call of KeepAll, was lost while it was kept: its lease was over, or the store said
// that it is somebody else's. The others of a call are not lost with it.
func (s *HeldClaims) Lost(i int) bool {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	return s.claims[i].lost
}

// Stop ends the renewal of one claim, by its index in the call of KeepAll. It may be called more than once.
func (s *HeldClaims) Stop(i int) {
	s.renewer.mu.Lock()
	defer s.renewer.mu.Unlock()
	s.stop(i)
}

// StopAll ends the renewal of all claims and cancels the context. It may be called more than once.
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

// Close stops renewing, cancels the contexts of all claims that are still kept (their cause is [ErrLeaseRenewerClosed]) and
// waits for renewals and completions that are under way, the latter for at most a lease each. Claims kept afterwards
// are cancelled at once; Complete goes on working. Close may be called more than once.
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
	k.group.Wait() // nothing is added after closed was set under mu
}

// over reports whether t has passed by one of the two clocks. Round strips the monotonic one.
func over(t, now time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

func (k *LeaseRenewer) deadline(e *kept) time.Time { return e.since.Add(k.lease) }

func (k *LeaseRenewer) due(e *kept) time.Time {
	due := e.since.Add(k.lease / 3)
	if e.retry.After(due) {
		return e.retry
	}
	return due
}

// renewer makes sure, under mu, that a renewer runs and looks at the claims at t or sooner. It cannot be missed: the
// renewer writes wakeAt, and decides to exit, under the same lock in which it looked at the claims.
func (k *LeaseRenewer) renewer(t time.Time) {
	if !k.running {
		k.running = true
		k.wakeAt = t
		k.group.Go(k.renewals)
		return
	}
	if t.Before(k.wakeAt) {
		select {
		case k.wake <- struct{}{}:
		default: // it was told already
		}
	}
}

// flight is one call of Renew.
type flight struct {
	batch []*kept
	sent  time.Time
	err   error
}

// renewals is the renewer. The call to the store has a goroutine of its own, so that a store which hangs keeps nobody
// from being told at his deadline that his claim is lost.
func (k *LeaseRenewer) renewals() {
	landed := make(chan flight, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	flying := false
	idle := time.Now()
	for {
		batch, wait, exit := k.look(&idle, flying)
		if exit {
			return
		}
		if len(batch) > 0 {
			flying = true
			k.group.Go(func() { landed <- k.renew(ctx, batch) })
			continue // look again for the next time to wake
		}
		timer.Reset(wait)
		select {
		case f := <-landed:
			flying = false
			k.land(f)
		case <-timer.C:
		case <-k.wake:
		case <-k.quit:
			cancel()
			if flying {
				<-landed
			}
			return
		}
	}
}

// look drops the claims whose lease is over, and returns either a batch to renew or how long to wait. It says exit when
// nothing was kept for a lease.
func (k *LeaseRenewer) look(idle *time.Time, flying bool) (batch []*kept, wait time.Duration, exit bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if len(k.kept) > 0 || flying {
		*idle = now
	}
	next := now.Add(k.lease / 12) // the wall clock has no timer: look at it now and then (rule 49)
	if len(k.kept) == 0 {
		next = idle.Add(k.lease)
		if !flying && !now.Before(next) {
			k.running = false // under mu: whoever keeps a claim from now on starts another renewer
			return nil, 0, true
		}
	}
	ripe := false
	for id, e := range k.kept {
		d := k.deadline(e)
		if over(d, now) {
			delete(k.kept, id)
			e.lose()
			continue
		}
		next = earlier(next, d)
		if due := k.due(e); !due.After(now) {
			ripe = true
		} else {
			next = earlier(next, due)
		}
	}
	if ripe && !flying {
		return k.ripe(now), 0, false
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

// ripe returns the claims to renew in one call, under mu. Those that will soon be due go along with those that are, so
// that however the claims are spread over time, the calls are few. A key that is kept twice waits for the next call.
func (k *LeaseRenewer) ripe(now time.Time) []*kept {
	var batch []*kept
	soon := now.Add(k.lease / 12)
	for _, e := range k.kept {
		if !e.retry.After(now) && !k.due(e).After(soon) {
			batch = append(batch, e)
		}
	}
	if len(batch) > renewBatch { // the oldest first
		slices.SortFunc(batch, func(a, b *kept) int { return a.since.Compare(b.since) })
		batch = batch[:renewBatch]
	}
	slices.SortFunc(batch, func(a, b *kept) int { return a.claim.Key.Compare(b.claim.Key) }) // P-04
	return slices.CompactFunc(batch, func(a, b *kept) bool { return a.claim.Key == b.claim.Key })
}

// renew calls the store. It gives up early enough for three more attempts within the lease.
func (k *LeaseRenewer) renew(ctx context.Context, batch []*kept) flight {
	claims := make([]Claim, len(batch))
	for i, e := range batch { // claim never changes: no lock
		claims[i] = e.claim
	}
	ctx, cancel := context.WithTimeout(ctx, k.lease/6)
	defer cancel()
	sent := time.Now()
	return flight{batch: batch, sent: sent, err: k.store.Renew(ctx, k.lease, claims)}
}

// land writes down what a call of Renew said. Meanwhile any claim of it may have been stopped, completed, or have
// passed its deadline: then it is no longer in kept and the answer is nobody's. One that is being completed may look
// lost only because the completion arrived first; what the completion says counts, and the next renewal asks again.
func (k *LeaseRenewer) land(f flight) {
	var lost *LostError
	failed := f.err != nil && !errors.As(f.err, &lost)
	k.mu.Lock()
	defer k.mu.Unlock()
	retry := f.sent.Add(k.lease / 12) // at once, if the call took that long
	for i, e := range f.batch {
		id := keptID{e.claim.Key, e.claim.Token}
		if k.kept[id] != e {
			continue
		}
		gone := lost != nil && slices.Contains(lost.Claims, i)
		switch {
		case failed, gone && e.completing > 0:
			e.retry = retry
		case gone:
			delete(k.kept, id)
			e.lose()
		default:
			e.since, e.retry = f.sent, time.Time{}
		}
	}
}
