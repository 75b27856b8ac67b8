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
)

// GuardConfig is how a [Guard] keeps and waits. The zero value is fit for use.
type GuardConfig struct {
	// Lease of a claim; zero: [DefaultLease]. It is renewed while the function runs. When the process dies, callers are told
	// [ErrInFlight] for at most as long, and [ErrUnknownOutcome] after it.
	Lease time.Duration
	// Retention is how long a result is kept and replayed; zero: [DefaultResultRetention]. After it the key is new again.
	Retention time.Duration
	// Wait is how long a caller waits for another one who is at work on its key; zero: [DefaultWait]; negative: not at all.
	Wait time.Duration
	// Poll is how often the ledger is asked for a key that another process works on; zero: [DefaultPoll]. Callers in one
	// process share one of these polls, and learn at once what one of them did.
	Poll time.Duration
	// MaxWaiters is how many callers of this process may wait for one key; zero: [DefaultMaxWaiters]. The next is told
	// [ErrInFlight] without waiting.
	MaxWaiters int
	// Rerun lets a function run again whose earlier run was cut short and may have had its effect. Without it the caller is
	// told [ErrUnknownOutcome] until Retention is over or a person has released the key.
	Rerun bool
}

func (c *GuardConfig) setDefaults() {
	c.Lease = cmp.Or(max(0, c.Lease), DefaultLease)
	c.Retention = cmp.Or(max(0, c.Retention), DefaultResultRetention)
	c.Poll = cmp.Or(max(0, c.Poll), DefaultPoll)
	c.MaxWaiters = cmp.Or(max(0, c.MaxWaiters), DefaultMaxWaiters)
	c.Wait = cmp.Or(c.Wait, DefaultWait)
}

// Guard lets callers share one run of a function by key, in this process and in all that use the same ledger. [Do] and
// [DoTx] are what most programs want of it; Enter and [EnterTx] are for doors that keep results of their own kind. It is safe
// for concurrent use. Make one for each ledger, and Close it when nobody uses it any longer.
type Guard struct {
	store  Store
	keeper *Keeper
	cfg    GuardConfig

	mu      sync.Mutex
	twins map[Key]*twin
}

// NewGuard returns a Guard over a ledger.
func NewGuard(s Store, cfg GuardConfig) *Guard {
	cfg.setDefaults()
	return &Guard{store: s, keeper: NewKeeper(s, cfg.Lease), cfg: cfg, twins: make(map[Key]*twin)}
}

// Close ends the renewal of claims and waits for what is under way. Functions that still run are cancelled.
func (g *Guard) Close() { g.keeper.Close() }

// Store is the ledger.
func (g *Guard) Store() Store { return g.store }

// Config is what the guard was made with, defaults filled in.
func (g *Guard) Config() GuardConfig { return g.cfg }

// Call is one caller's wish for a key.
type Call struct {
	Key Key
	// Fingerprint tells another payload under the same key, which is a [Conflict]. Zero: not compared.
	Fingerprint Fingerprint
	// Retention of the result; zero: that of the guard.
	Retention time.Duration
	// Wait for another caller; zero: that of the guard; negative: not at all.
	Wait time.Duration
	// Detached lets what runs go on when the context of the call has ended: only waiting ends with it.
	Detached bool
}

func (c Call) work(ctx context.Context) context.Context {
	if c.Detached {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (g *Guard) request(c Call) Request {
	return Request{Key: c.Key, Fingerprint: c.Fingerprint, Retention: g.retention(c), AnyAge: true, NoWait: true}
}

func (g *Guard) retention(c Call) time.Duration { return cmp.Or(max(0, c.Retention), g.cfg.Retention) }

// twin is a key that somebody of this process is at.
type twin struct {
	done    chan struct{} // closed when he is not any longer
	waiters int

	// What he learned, once done is closed. Without a verdict the ledger is to be asked.
	answer      Answer
	fingerprint Fingerprint
}

// board returns the twin of a key, and whether it is the caller's own: then he must land it.
func (g *Guard) board(c Call) (f *twin, own bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f = g.twins[c.Key]; f != nil {
		return f, false
	}
	f = &twin{done: make(chan struct{}), fingerprint: c.Fingerprint}
	g.twins[c.Key] = f
	return f, true
}

// land ends a twin. What is not final is not passed on.
func (g *Guard) land(key Key, f *twin, a Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.twins[key] != f {
		return // landed already
	}
	if a.Verdict == Done {
		f.answer = a
	}
	delete(g.twins, key)
	close(f.done)
}

// Running reports whether somebody of this process is at work on a key, without asking the ledger.
func (g *Guard) Running(key Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.twins[key] != nil
}

// patience is for how long one caller waits.
type patience struct {
	ctx   context.Context
	until time.Time
}

func (g *Guard) patience(ctx context.Context, c Call) patience {
	return patience{ctx, time.Now().Add(max(0, cmp.Or(c.Wait, g.cfg.Wait)))}
}

// follow waits for somebody else's twin. again says that the caller should look anew.
func (g *Guard) follow(p patience, c Call, f *twin) (a Answer, again bool, err error) {
	left := time.Until(p.until)
	g.mu.Lock()
	if left <= 0 || f.waiters >= g.cfg.MaxWaiters {
		g.mu.Unlock()
		return Answer{Verdict: Busy}, false, nil
	}
	f.waiters++
	g.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
		a.Verdict = Busy
	case <-p.ctx.Done():
		err = context.Cause(p.ctx)
	}
	g.mu.Lock()
	f.waiters--
	g.mu.Unlock()
	switch {
	case err != nil || a.Verdict != 0:
		return a, false, err
	case f.answer.Verdict == 0:
		return a, true, nil
	case f.fingerprint != c.Fingerprint && f.fingerprint != (Fingerprint{}) && c.Fingerprint != (Fingerprint{}):
		return Answer{Verdict: Conflict}, false, nil
	default:
		return f.answer, false, nil
	}
}

// enter gives the key to one caller of this process after the other, until ask has an answer other than [Busy] or patience is
// over. With kept the twin goes on, and the caller lands it.
func (g *Guard) enter(ctx context.Context, c Call, ask func() (a Answer, kept bool, err error)) (Answer, *twin, error) {
	if err := c.Key.Validate(); err != nil {
		return Answer{}, nil, err
	}
	p := g.patience(ctx, c)
	for {
		f, own := g.board(c)
		if !own {
			if a, again, err := g.follow(p, c, f); !again {
				return a, nil, err
			}
			continue
		}
		a, kept, err := g.lead(p, c, f, ask)
		if kept {
			return a, f, nil
		}
		return a, nil, err
	}
}

// lead asks until the key is not busy, for all who follow.
func (g *Guard) lead(p patience, c Call, f *twin, ask func() (Answer, bool, error)) (a Answer, kept bool, err error) {
	defer func() { // also if an observer of the ledger panics
		if !kept {
			g.land(c.Key, f, a)
		}
	}()
	for {
		a, kept, err = ask()
		left := time.Until(p.until)
		if err != nil || kept || a.Verdict != Busy || left <= 0 {
			return a, kept, err
		}
		pause := min(left, g.cfg.Poll)
		if a.Wait > 0 {
			pause = min(pause, a.Wait)
		}
		if err := sleep(p.ctx, pause); err != nil {
			return Answer{}, false, err
		}
	}
}

// askTries is how often a call of the ledger is tried before the caller is told that it cannot be used. A repeat has the token of
// the first, so that one whose answer was lost is recognised.
const askTries = 3

// Enter asks for a key. If the answer's verdict is held ([Fresh] or [Uncertain]), entry is not nil: it is the caller's to run what
// the key stands for, and to end the entry in any case, once. What to do about Uncertain is his to decide; [GuardConfig].Rerun
// is obeyed by [Do] only. [Busy] says that somebody else is still at it when the patience of the call is over.
//
// An error says that the ledger could not answer (it matches [ErrUnavailable]), that the key is invalid ([ErrKey]), or that
// ctx ended: nothing was run, and nothing is held but for a lease at most.
func (g *Guard) Enter(ctx context.Context, c Call) (entry *Entry, a Answer, err error) {
	req := g.request(c)
	var token Token
	var since time.Time
	a, f, err := g.enter(ctx, c, func() (Answer, bool, error) {
		var answers [1]Answer
		token, since = NewToken(), time.Now()
		err := retry(ctx, askTries, func() error {
			return g.store.Claim(ctx, token, g.cfg.Lease, []Request{req}, answers[:])
		})
		if err != nil {
			g.giveBack(ctx, req, token)
			return Answer{}, false, fmt.Errorf("claim %s: %w", c.Key, err)
		}
		return answers[0], answers[0].Verdict.Held(), nil
	})
	if f == nil {
		return nil, a, err
	}
	claim := req.Held(token, a)
	held, stop := g.keeper.Keep(c.work(ctx), claim, since)
	return &Entry{g: g, f: f, claim: claim, ctx: held, stop: stop, retention: req.Retention}, a, nil
}

// giveBack releases what a claim may have got whose answer was lost. If that does not arrive either, the lease ends it.
func (g *Guard) giveBack(ctx context.Context, req Request, token Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = g.store.Release(ctx, []Release{{Claim: Claim{Key: req.Key, Token: token}, Outcome: Unstarted, Retention: req.Retention}})
}

// finishTime is how long the end of an entry is tried for when the ledger does not take it.
const finishTime = 10 * time.Second

// Entry is a key that is held, between [Guard.Enter] and its end.
type Entry struct {
	g         *Guard
	f         *twin
	claim     Claim
	ctx       context.Context
	stop      func()
	retention time.Duration

	mu    sync.Mutex
	ended bool
}

// Context is that of Enter, and is cancelled too when the claim is lost: its cause then matches [ErrClaimLost].
func (e *Entry) Context() context.Context { return e.ctx }

// Claim is what is held.
func (e *Entry) Claim() Claim { return e.claim }

// Complete ends the entry with a result for all who ask later. It is sent again for up to ten seconds, also when ctx has ended: what
// happened must be known. The error matches [ErrClaimLost] if somebody has taken the key over, or [ErrUnknownOutcome] if it
// could not be written: then callers are told Busy until the lease is over, and Uncertain after it.
func (e *Entry) Complete(ctx context.Context, r Result) error {
	return e.end(ctx, Answer{Verdict: Done, Result: r}, func(ctx context.Context) error {
		return e.g.keeper.Complete(ctx, Completion{Claim: e.claim, Retention: e.retention, Result: r})
	})
}

// Release ends the entry without a result: the next caller gets what o says. Errors are those of Complete.
func (e *Entry) Release(ctx context.Context, o Outcome) error {
	return e.end(ctx, Answer{}, func(ctx context.Context) error {
		return e.g.store.Release(ctx, []Release{{Claim: e.claim, Outcome: o, Retention: e.retention}})
	})
}

var errEnded = errors.New("entry has ended already")

func (e *Entry) end(ctx context.Context, a Answer, write func(context.Context) error) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errEnded
	}
	e.ended = true
	defer func() {
		e.stop()
		if err != nil {
			a = Answer{}
		}
		e.g.land(e.claim.Key, e.f, a)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	err = retry(ctx, 0, func() error { return write(ctx) })
	if err != nil && !errors.Is(err, ErrClaimLost) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

// retry calls fn until it succeeds, fails for good, or tries (zero: any number) or ctx end. Between calls it waits, longer each time.
func retry(ctx context.Context, tries int, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if err == nil || errors.Is(err, ErrClaimLost) || errors.Is(err, ErrOrder) || errors.Is(err, ErrKey) || try == tries {
			return err
		}
		if sleep(ctx, min(time.Second, 20*time.Millisecond<<min(try, 6))) != nil {
			return err
		}
	}
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
