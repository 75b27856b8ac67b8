package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// inflightCall is a key that one caller of this process is at, the leader, and what he learned, for those who follow him. It is
// guarded by Guard.mu; answer and err change no more once done is closed.
type inflightCall struct {
	asked    chan struct{} // closed when the store has told him something
	answered bool          // asked is closed
	done     chan struct{} // closed when he is through
	finished bool          // done is closed
	held     bool          // the key is his
	waiters  int           // those who wait while the key is his or another process's

	fingerprint Fingerprint
	answer      Answer // without a verdict the store is to be asked
	err         error
}

// board returns the twin of a key, and whether it is the caller's own: then he must land it.
func (g *Guard) startOrJoin(c Call) (_ *inflightCall, own bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.inflight[c.Key]; f != nil {
		return f, false
	}
	f := &inflightCall{asked: make(chan struct{}), done: make(chan struct{}), fingerprint: c.Fingerprint}
	g.inflight[c.Key] = f
	return f, true
}

// tell lets those who follow know that the store has answered, and whether the key is the leader's.
func (g *Guard) publish(f *inflightCall, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.held = held
	f.publish()
}

func (f *inflightCall) publish() {
	if !f.answered {
		f.answered = true
		close(f.asked)
	}
}

// finish ends a twin, once. Only what is final until a person changes it is passed on.
func (g *Guard) finish(key Key, f *inflightCall, a Answer, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch a.Verdict {
	case Done, Dead, Conflict:
		f.answer = a
	default:
	}
	f.err, f.finished = err, true
	delete(g.inflight, key)
	close(f.done)
	f.publish()
}

// patience is for how long one caller waits.
type patience struct {
	ctx   context.Context //nolint:containedctx // lives as long as the call it belongs to
	until time.Time
}

// lead asks until the key is not busy, for all who follow.
func (g *Guard) lead(p patience, key Key, f *inflightCall, ask asker) (a Answer, kept bool, err error) {
	defer func() { // also if ask panics
		if !kept {
			g.finish(key, f, a, common(p.ctx, err))
		}
	}()
	for {
		a, kept, err = ask(f)
		left := time.Until(p.until)
		if kept {
			g.publish(f, true)
		}
		if err != nil || kept || a.Verdict != Busy || left <= 0 {
			return a, kept, withCause(p.ctx, err)
		}
		g.publish(f, false)
		pause := min(left, g.cfg.Poll)
		if a.Wait > 0 {
			pause = min(pause, a.Wait)
		}
		if err := sleep(p.ctx, pause); err != nil {
			return Answer{}, false, err
		}
	}
}

// withCause is err with the cause of the end of ctx, if that is why: stores tell of the end only.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// common is err if it would be that of all who follow: the store is out of reach. An error that may come of the leader's own
// context is his alone.
func common(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}

// follow waits for somebody else's twin. again says that the caller should look anew.
func (g *Guard) follow(p patience, c Call, f *inflightCall) (a Answer, again bool, err error) {
	select { // a caller without patience learns what the store says too, as if he had asked himself
	case <-f.asked:
	case <-p.ctx.Done():
		return Answer{}, false, context.Cause(p.ctx)
	}
	switch v := g.join(f, c); v {
	case 0:
	case Conflict:
		return Answer{Verdict: Busy}.Conflicted(), false, nil
	default:
		return Answer{Verdict: v}, false, nil
	}
	timer := time.NewTimer(time.Until(p.until))
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
	case <-p.ctx.Done():
		err = context.Cause(p.ctx)
	}
	if a, again = g.leave(f, c); a.Verdict != Busy { // he is through
		return a, again, f.err
	}
	if err != nil {
		a = Answer{}
	}
	return a, false, err
}

// join lets the caller wait for f, unless he has another payload or there is no room. Then it says so.
func (g *Guard) join(f *inflightCall, c Call) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case f.finished:
	case f.held && Differ(f.fingerprint, c.Fingerprint):
		return Conflict
	case f.waiters >= g.cfg.MaxWaiters:
		return Busy
	}
	f.waiters++
	return 0
}

// leave ends the waiting of join. The answer is Busy if the leader is still at it. What he was told about his payload says
// nothing about another one: who has that asks anew.
func (g *Guard) leave(f *inflightCall, c Call) (a Answer, again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.waiters--
	switch {
	case !f.finished:
		return Answer{Verdict: Busy}, false
	case f.err != nil:
		return Answer{}, false
	case f.answer.Verdict == 0 || f.fingerprint != c.Fingerprint:
		return Answer{}, true
	default:
		return f.answer, false
	}
}
