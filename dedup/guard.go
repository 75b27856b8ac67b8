package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The defaults of a [Guard].
const (
	DefaultResultRetention = 24 * time.Hour
	DefaultWait            = 5 * time.Second // ten polls
	DefaultPoll            = 500 * time.Millisecond
	DefaultMaxWaiters      = 256
	DefaultStoreTimeout    = 1500 * time.Millisecond
)

// GuardConfig is how a [Guard] keeps and waits. The zero value is fit for use.
type GuardConfig struct {
	// Lease of a claim; zero or less: [DefaultLease]. It is renewed while the function runs. When the process dies, callers are
	// told [ErrInFlight] for at most as long, and [ErrUnknownOutcome] after it.
	Lease time.Duration
	// Retention is how long a result is kept and replayed; zero or less: [DefaultResultRetention]. After it the key is new
	// again.
	Retention time.Duration
	// Wait is how long a caller waits for another one who is at work on its key; zero: [DefaultWait]; negative: not at all.
	// The time that the store takes to answer does not count.
	Wait time.Duration
	// Poll is how often the store is asked for a key that another process works on; zero or less: [DefaultPoll]. Callers in
	// one process share one of these polls, and learn at once what one of them did.
	Poll time.Duration
	// MaxWaiters is how many callers of this process may wait for one key that somebody is at work on; zero or less:
	// [DefaultMaxWaiters]. The next is told [ErrInFlight] at once.
	MaxWaiters int
	// StoreTimeout is how long the store may take to answer a claim, all attempts together, before the caller is told [ErrUnavailable]; zero or
	// less: [DefaultStoreTimeout]. It is kept also with a client that does not heed contexts. In a transaction it counts from when the
	// store has a connection ([ClaimBegins]), for which ten seconds are waited. The time of the function does not count, nor does that of
	// the record of its result, for which there are ten seconds. While the store does not answer at all, callers are told so at once: after three
	// failures in a row over at least a second one claim a second is tried, and the first answer ends that.
	StoreTimeout time.Duration
	// Rerun lets a function run again whose earlier run was cut short and may have had its effect. Without it the caller is
	// told [ErrUnknownOutcome] until nobody has asked for the length of Retention, or a person has released the key.
	Rerun bool
	// Observe is told of each call of [Do] and [DoTx] when it ends, on its goroutine, also if the function panics. It must be quick. Nil:
	// nobody is, and it costs nothing. What enters by [Guard.Enter] and [EnterTx] is for those doors to tell.
	Observe func(context.Context, DoEvent)
}

func (c *GuardConfig) setDefaults() {
	c.Lease = cmp.Or(max(0, c.Lease), DefaultLease)
	c.Retention = cmp.Or(max(0, c.Retention), DefaultResultRetention)
	c.Poll = cmp.Or(max(0, c.Poll), DefaultPoll)
	c.MaxWaiters = cmp.Or(max(0, c.MaxWaiters), DefaultMaxWaiters)
	c.Wait = cmp.Or(c.Wait, DefaultWait)
	c.StoreTimeout = cmp.Or(max(0, c.StoreTimeout), DefaultStoreTimeout)
}

// Guard lets callers share one run of a function by key, in this process and in all that use the same store. [Do] and
// [DoTx] are what most programs want of it; Enter and [EnterTx] are for doors that keep results of their own kind. It is
// safe for concurrent use. Make one for each store, and Close it when nobody uses it any longer.
//
// Within a process the callers of one key go one after the other: one asks the store, and the others learn what it was told.
// So many callers of one key cost one round trip, and when the store is down they are told so together.
type Guard struct {
	store   Store
	renewer *LeaseRenewer
	calls   *storeCalls
	cfg     GuardConfig

	mu       sync.Mutex
	inflight map[Key]*inflightCall
}

// NewGuard returns a Guard over a store.
func NewGuard(s Store, cfg GuardConfig) *Guard {
	cfg.setDefaults()
	return &Guard{
		store: s, renewer: NewLeaseRenewer(s, cfg.Lease), calls: newStoreCalls(s, cfg.StoreTimeout, cfg.Lease), cfg: cfg,
		inflight: make(map[Key]*inflightCall),
	}
}

// Close ends the renewal of claims and waits for what is under way to the store. The contexts of functions that still run are
// cancelled with [ErrLeaseRenewerClosed]; their ends are still written. Afterwards results are replayed as ever, and who would have
// to run is told ErrLeaseRenewerClosed. Claims that were given up are waited for as long as the store's client takes to give them up too. Close
// may be called more than once.
func (g *Guard) Close() {
	g.renewer.Close()
	g.calls.close()
}

// Store is the store.
func (g *Guard) Store() Store { return g.store }

// Config is what the guard was made with, defaults filled in.
func (g *Guard) Config() GuardConfig { return g.cfg }

// Running reports whether a caller of this process is at a key: asks the store for it, waits for another process, or runs.
// The store is not asked.
func (g *Guard) Running(key Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inflight[key] != nil
}

// Call is one caller's wish for a key.
type Call struct {
	Key Key
	// Fingerprint tells another payload under the same key, which is a [Conflict]. Zero: not compared.
	Fingerprint Fingerprint
	// Retention of the result; zero or less: that of the guard.
	Retention time.Duration
	// Wait for another caller; zero: that of the guard; negative: not at all.
	Wait time.Duration
	// Detached lets what runs go on when the context of the call has ended: only waiting ends with it.
	Detached bool
}

// work is the context of what runs.
func (c Call) work(ctx context.Context) context.Context {
	if c.Detached {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// request is the call as the store is asked. What it has forgotten is new: no call has an age.
func (g *Guard) request(c Call) Request {
	retention := cmp.Or(max(0, c.Retention), g.cfg.Retention)
	return Request{Key: c.Key, Fingerprint: c.Fingerprint, Retention: retention, AnyAge: true, NoWait: true}
}

// Enter asks for a key. If the answer's verdict is held ([Fresh] or [Uncertain]), entry is not nil: it is the caller's to run
// what the key stands for, and to end the entry in any case, once. What to do about Uncertain is his to decide;
// [GuardConfig].Rerun is obeyed by [Do] only. [Busy] says that somebody else is still at it when the patience of the call is
// over; its Wait may be zero. The data of a result is shared with other callers: it must not be changed.
//
// An error says that the store could not answer (it matches [ErrUnavailable]), that the key is invalid ([ErrKey]), that ctx
// ended, that the guard is closed ([ErrLeaseRenewerClosed]), or that this process was paused for longer than the lease
// ([ErrClaimLost]). An answer that takes longer than the lease is asked for again, within StoreTimeout and three times at most.
// Nothing was run. A claim whose answer was lost is given back, in the background if the store is down, for ten minutes at most. If that
// does not arrive either, the claim lasts for a lease and counts as a run whose outcome is unknown after it.
func (g *Guard) Enter(ctx context.Context, c Call) (entry *Entry, a Answer, err error) {
	req := g.request(c)
	var token Token
	var since time.Time
	a, f, err := g.enter(ctx, c, func(*inflightCall) (a Answer, kept bool, err error) {
		token = NewToken()
		a, since, err = g.claim(ctx, token, req)
		return a, a.Verdict.Held(), err
	})
	if f == nil {
		return nil, a, err
	}
	e := &Entry{g: g, f: f, claim: req.Held(token, a), retention: req.Retention}
	e.kept = g.renewer.KeepAll(c.work(ctx), []Claim{e.claim}, since)
	if err := e.Begin(ctx); err != nil {
		return nil, Answer{}, err
	}
	return e, a, nil
}

// askTries is how often a call of the store is tried before the caller is told that it cannot be used. A repeat has the
// token of the first, so that one whose answer was lost is recognised.
const askTries = 3

// claim returns the answer, and the time just before the request for it was sent: a lease counts from there.
func (g *Guard) claim(ctx context.Context, t Token, req Request) (a Answer, since time.Time, err error) {
	end, err := g.calls.begin()
	if err != nil {
		return Answer{}, since, fmt.Errorf("claim %q: %w", req.Key, err)
	}
	ended := callUnknown
	defer func() { end(ended) }() // also if the store panics
	ghost := Release{Claim: Claim{Key: req.Key, Token: t}, Outcome: Unstarted, Retention: req.Retention}
	until := time.Now().Add(g.cfg.StoreTimeout)
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err = retry(bounded, askTries, func() error {
		var reqs, answers = [...]Request{req}, [1]Answer{} // its own: a call that was given up may still write
		since = time.Now()
		err := g.calls.do(bounded, func(ctx context.Context) error {
			return g.store.Claim(ctx, t, g.cfg.Lease, reqs[:], answers[:])
		}, func() { g.calls.addGhost(ghost) })
		switch {
		case err != nil:
			return err
		case answers[0].Verdict.Held() && over(since.Add(g.cfg.Lease), time.Now()):
			return errLate // another caller may have taken over meanwhile
		}
		a = answers[0]
		return nil
	})
	ended = endOf(ctx, err)
	switch {
	case err == nil:
		return a, since, nil
	case !errors.Is(err, errNoAnswer): // else it is given back when the call returns
		rest, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
		defer cancel()
		g.calls.giveBack(rest, ghost)
	}
	return Answer{}, since, fmt.Errorf("claim %q: %w", req.Key, err)
}

// errLate says that a claim was granted and that its lease was over when the answer came.
var errLate = fmt.Errorf("%w: the answer to a claim took longer than the lease", ErrUnavailable)

// Ask makes a call of the store that changes nothing, such as that of a [Looker], under the rules of [GuardConfig].StoreTimeout. The error
// matches [ErrUnavailable] if fn was given up, or not called because the store does not answer. Then fn may still run: nothing that it
// writes may be read.
func (g *Guard) Ask(ctx context.Context, fn func(context.Context) error) error {
	end, err := g.calls.begin()
	if err != nil {
		return err
	}
	ended := callUnknown
	defer func() { end(ended) }()
	bounded, cancel := context.WithTimeout(ctx, g.cfg.StoreTimeout)
	defer cancel()
	err = g.calls.do(bounded, fn, func() {})
	if ended = endOf(ctx, err); ended == callFailed && g.calls.tx.Load() {
		ended = callUnknown // it may have waited for a connection that a transaction holds
	}
	return err
}

// asker asks the store once, for all who follow f. With kept the key is the caller's.
type asker func(f *inflightCall) (a Answer, kept bool, err error)

// enter gives the key to one caller of this process after the other, until ask has an answer other than [Busy] or patience
// is over. A twin that is returned is the caller's: he must land it.
func (g *Guard) enter(ctx context.Context, c Call, ask asker) (Answer, *inflightCall, error) {
	if err := c.Key.Validate(); err != nil {
		return Answer{}, nil, err
	}
	p := patience{ctx: ctx, until: time.Now().Add(max(0, cmp.Or(c.Wait, g.cfg.Wait)))}
	for {
		f, own := g.startOrJoin(c)
		if !own {
			if a, again, err := g.follow(p, c, f); !again {
				return a, nil, err
			}
			continue // as often as others come in between, and each of them is through then
		}
		a, kept, err := g.lead(p, c.Key, f, ask)
		if kept {
			return a, f, nil
		}
		return a, nil, err
	}
}

// retry calls fn until it succeeds, fails for good, or tries (zero: any number) or ctx end. Between calls it waits, longer
// each time.
func retry(ctx context.Context, tries int, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if err == nil || errors.Is(err, ErrClaimLost) || errors.Is(err, ErrOrder) || errors.Is(err, ErrKey) {
			return err
		}
		if try == tries || backOff(ctx, try) != nil {
			return err
		}
	}
}

func backOff(ctx context.Context, try int) error {
	return sleep(ctx, min(time.Second, 20*time.Millisecond<<min(try, 6)))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
