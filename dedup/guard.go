package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// The defaults of a [GuardConfig].
const (
	DefaultResultRetention = 24 * time.Hour
	DefaultWait            = 5 * time.Second // ten polls
	DefaultPoll            = 500 * time.Millisecond
	DefaultMaxWaiters      = 256
	DefaultStoreTimeout    = 1500 * time.Millisecond
)

// GuardConfig has the settings of a [Guard]. The zero value is fit for use.
type GuardConfig struct {
	// Lease of a claim, renewed while the function runs. Zero or less: [DefaultLease]. After a
	// crash of the process, callers get [ErrInFlight] for at most this time, and
	// [ErrUnknownOutcome] then.
	Lease time.Duration
	// Retention is how long a result is kept and replayed. Zero or less: [DefaultResultRetention].
	// After that the key is new again.
	Retention time.Duration
	// Wait is the wait budget: how long a caller waits for another caller of its key. Zero:
	// [DefaultWait]; negative: no wait. The time that the store takes to answer does not count.
	Wait time.Duration
	// Poll is the interval at which the store is asked for a key that another process holds. Zero
	// or less: [DefaultPoll]. Callers in one process share these polls, and learn each other's
	// results at once.
	Poll time.Duration
	// MaxWaiters is how many callers of this process may wait for one key. Zero or less:
	// [DefaultMaxWaiters]. Further callers get [ErrInFlight] at once.
	MaxWaiters int
	// StoreTimeout is how long the store may take to answer a claim, all attempts together. After
	// that the caller gets [ErrUnavailable]. Zero or less: [DefaultStoreTimeout].
	//
	// The limit holds even if the store's client ignores contexts. In a transaction it counts from
	// the time when the store has a connection ([ClaimBegins]); a connection is waited for up to
	// ten seconds. The time of the function does not count, nor the write of the result, which may
	// take ten seconds.
	//
	// After three failures in a row over at least a second, a circuit breaker opens. Then callers
	// get ErrUnavailable at once, and one claim a second is tried. The first answer closes the
	// breaker.
	StoreTimeout time.Duration
	// Rerun lets [Do] run a function again after a run that was cut short and may have had the
	// effect. False: the caller gets [ErrUnknownOutcome] until no caller has asked for the
	// length of Retention, or a person has released the key.
	Rerun bool
	// Keyring encrypts results in the store, and opens them. Unsealed results stay readable, unless
	// [KeyringConfig].RefuseUnsealed is set. A result that cannot be opened is [ErrSealed], and
	// the function does not run again. Nil, the default: results are stored unsealed.
	Keyring *Keyring
	// Observe is called at the end of each call of [Do] and [DoTx], on its goroutine, also if the
	// function panics. Observe must return quickly. Nil, the default: no calls. Users of
	// [Guard.Enter] and [EnterTx] report their own calls.
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

// Guard lets callers share one run of a function by key, in this process and in all processes that
// use the same store. Most programs use it through [Do] and [DoTx]. [Guard.Enter] and [EnterTx] are
// for code with another form of results, such as package httpidem. A Guard is safe for concurrent
// use. Make one for each store with [NewGuard], and Close it after the last use.
//
// Within a process the callers of one key take turns: one asks the store, and the others learn the
// answer. Many callers of one key cost one round trip, and learn together that the store is down.
type Guard struct {
	store    Store
	renewer  *LeaseRenewer
	calls    *storeCalls
	inflight *inflightCalls
	cfg      GuardConfig
}

// NewGuard returns a Guard over s.
func NewGuard(s Store, cfg GuardConfig) *Guard {
	cfg.setDefaults()
	release := func(ctx context.Context, claims []Release) error { return s.Release(ctx, claims) }
	return &Guard{
		store: s, renewer: NewLeaseRenewer(s, cfg.Lease), cfg: cfg,
		calls: newStoreCalls(release, cfg.StoreTimeout, cfg.Lease),
		inflight: &inflightCalls{
			maxWaiters: cfg.MaxWaiters, poll: cfg.Poll, calls: make(map[Key]*inflightCall),
		},
	}
}

// Close ends the renewal of claims and waits for calls to the store that are under way. The
// contexts of functions that still run are cancelled with [ErrLeaseRenewerClosed]; their ends are
// still written. Afterwards results are replayed as before, and calls that would run their function
// fail with ErrLeaseRenewerClosed.
//
// Close also waits for calls that were given up until the store's client returns. Close may be
// called more than once.
func (g *Guard) Close() {
	g.renewer.Close()
	g.calls.close()
}

// Store returns the store.
func (g *Guard) Store() Store { return g.store }

// Config returns the settings, with defaults filled in.
func (g *Guard) Config() GuardConfig { return g.cfg }

// Running reports whether a caller of this process asks the store for key, waits for another
// process, or runs its function. The store is not asked.
func (g *Guard) Running(key Key) bool { return g.inflight.has(key) }

// request returns the store's request for a call. A call has no age, so a forgotten key is new.
func (g *Guard) request(c Call) Request {
	retention := cmp.Or(max(0, c.Retention), g.cfg.Retention)
	return Request{
		Key: c.Key, Fingerprint: c.Fingerprint, SecondFingerprint: c.SecondFingerprint,
		Retention: retention, AnyAge: true, NoWait: true,
	}
}

// Enter asks for a key. If the verdict is [Fresh] or [Uncertain], entry is not nil: run the work
// of the key, and end the entry in any case, once. The caller decides about Uncertain, since
// [GuardConfig].Rerun applies to [Do] only. [Busy] means that another caller was still running
// when the wait budget was used up; Wait may be zero then. The data of a result is shared with
// other callers: do not change the data.
//
// After an error the work must not run. The error matches
//
//   - [ErrUnavailable] if the store could not answer,
//   - [ErrKey] if the key is invalid,
//   - [ErrSealed] if the kept result cannot be opened,
//   - the cause of the end of ctx,
//   - [ErrLeaseRenewerClosed] if the guard is closed,
//   - [ErrClaimLost] if this process was paused for longer than the lease.
//
// An answer that takes longer than the lease is asked for again, within StoreTimeout and three
// times at most. A claim is released after a lost answer, in the background if the store is
// down, for ten minutes at most. If the release does not arrive either, the claim lasts for a
// lease, and counts as a run with an unknown outcome.
func (g *Guard) Enter(ctx context.Context, c Call) (entry *Entry, a Answer, err error) {
	req := g.request(c)
	var token Token
	var since time.Time
	a, f, err := g.enter(ctx, c, func(*inflightCall) (a Answer, kept bool, err error) {
		token = NewToken()
		if a, since, err = g.claim(ctx, token, req); err == nil {
			err = g.open(c.Key, &a)
		}
		return a, a.Verdict.Held(), err
	})
	if f == nil {
		return nil, a, err
	}
	e := &Entry{
		turn:  make(chan struct{}, 1),
		store: g.store, renewer: g.renewer, inflight: g.inflight, f: f, keyring: g.cfg.Keyring,
		claim: req.Held(token, a), retention: req.Retention,
	}
	e.held = g.renewer.KeepAll(c.work(ctx), []Claim{e.claim}, since)
	if err := e.Begin(ctx); err != nil {
		return nil, Answer{}, err
	}
	return e, a, nil
}

// open opens the result of an answer. After an error the answer has no verdict.
func (g *Guard) open(key Key, a *Answer) (err error) {
	if a.Verdict != Done {
		return nil
	}
	if a.Result, err = g.cfg.Keyring.Open(key, a.Result); err != nil {
		*a = Answer{}
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

// enter lets ask run for one caller of the key at a time, within the wait budget of the call.
func (g *Guard) enter(ctx context.Context, c Call, ask asker) (Answer, *inflightCall, error) {
	if err := c.Key.Validate(); err != nil {
		return Answer{}, nil, err
	}
	until := time.Now().Add(max(0, cmp.Or(c.Wait, g.cfg.Wait)))
	return g.inflight.enter(waitBudget{ctx: ctx, until: until}, c, ask)
}

// askTries is how often a call of the store is tried before the caller gets an error. A repetition
// has the token of the first call, so that the store recognises the request.
const askTries = 3

// claim returns the answer, and the time just before the request was sent: the lease counts from
// there.
func (g *Guard) claim(ctx context.Context, t Token, req Request) (
	a Answer, since time.Time, err error) {
	end, err := g.calls.begin()
	if err != nil {
		return Answer{}, since, fmt.Errorf("claim %q: %w", req.Key, err)
	}
	ended := callUnknown
	defer func() { end(ended) }() // also if the store panics
	ghost := Release{
		Claim: Claim{Key: req.Key, Token: t}, Outcome: Unstarted, Retention: req.Retention,
	}
	until := time.Now().Add(g.cfg.StoreTimeout)
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err = retry(bounded, askTries, func() error {
		// New slices for each try: a call that was given up may still write.
		var reqs, answers = [...]Request{req}, [1]Answer{}
		since = time.Now()
		err := g.calls.invoke(bounded, func(ctx context.Context) error {
			return g.renewer.Claim(ctx, t, reqs[:], answers[:])
		}, func() { g.calls.addGhost(ghost) })
		switch {
		case err != nil:
			return err
		case answers[0].Verdict.Held() && passed(since.Add(g.cfg.Lease), time.Now()):
			return errLate // another caller may have taken over meanwhile
		case answers[0].Verdict == 0:
			return errNoVerdict
		}
		a = answers[0]
		return nil
	})
	left := errors.Is(err, errNoAnswer)
	err = tooLong(ctx, bounded, err)
	ended = endOf(ctx, err)
	switch {
	case err == nil:
		return a, since, nil
	case !left: // else the claim is released when the call returns
		rest, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
		defer cancel()
		g.calls.giveBack(rest, ghost)
	}
	return Answer{}, since, fmt.Errorf("claim %q: %w", req.Key, err)
}

// errNoVerdict means that a call of the store had neither an error nor an answer.
var errNoVerdict = fmt.Errorf("%w: store returned no verdict", ErrUnavailable)

// errLate means that the lease of a granted claim was over when the answer came.
var errLate = fmt.Errorf("%w: the answer to a claim took longer than the lease", ErrUnavailable)

// Ask runs fn, a call of the store that only reads, such as one of a [Looker]. The time-out and the
// circuit breaker of [GuardConfig].StoreTimeout apply. The error matches [ErrUnavailable] if fn was
// given up, took too long, or was not called because the breaker is open. A function that was given
// up may still run: do not read results of fn.
func (g *Guard) Ask(ctx context.Context, fn func(context.Context) error) error {
	end, err := g.calls.begin()
	if err != nil {
		return err
	}
	ended := callUnknown
	defer func() { end(ended) }()
	bounded, cancel := context.WithTimeout(ctx, g.cfg.StoreTimeout)
	defer cancel()
	err = tooLong(ctx, bounded, g.calls.invoke(bounded, fn, func() {}))
	if ended = endOf(ctx, err); ended == callFailed && g.calls.tx.Load() {
		ended = callUnknown // it may have waited for a connection that a transaction holds
	}
	return err
}
