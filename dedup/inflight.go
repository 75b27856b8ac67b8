package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// inflightCalls are the keys in use by callers of this process. The first caller of a key leads: it
// asks the store, and the others follow and learn the answer. The type is safe for concurrent use.
type inflightCalls struct {
	maxWaiters int
	poll       time.Duration

	mu    sync.Mutex
	calls map[Key]*inflightCall
}

// inflightCall is one key with a leader. inflightCalls.mu guards all fields; answer and err do not
// change once done is closed.
type inflightCall struct {
	asked    chan struct{} // closed when the store has answered the leader
	answered bool          // asked is closed
	done     chan struct{} // closed when the leader has finished
	finished bool          // done is closed
	held     bool          // the leader holds the key
	waiters  int           // followers that wait

	fingerprint Fingerprint
	answer      Answer // without a verdict, followers ask the store
	err         error
}

// asker asks the store once, for all followers of f. With kept the key is the caller's.
type asker func(f *inflightCall) (a Answer, kept bool, err error)

// waitBudget is how long one caller waits.
type waitBudget struct {
	ctx   context.Context //nolint:containedctx // lives as long as the call it belongs to
	until time.Time
}

// has reports whether a caller of this process uses key.
func (i *inflightCalls) has(key Key) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[key] != nil
}

// enter lets the callers of a key ask one after the other, until ask has an answer other than
// [Busy] or the wait budget is used up. If an inflightCall is returned, the key is the caller's,
// and the caller must finish that call.
func (i *inflightCalls) enter(b waitBudget, c Call, ask asker) (Answer, *inflightCall, error) {
	for {
		f, own := i.startOrJoin(c)
		if !own {
			if a, again, err := i.follow(b, c, f); !again {
				return a, nil, err
			}
			continue // bounded by the number of other callers, since each of them has finished then
		}
		a, kept, err := i.lead(b, c.Key, f, ask)
		if kept {
			return a, f, nil
		}
		return a, nil, err
	}
}

// startOrJoin returns the in-flight call of a key, and whether it is the caller's own.
func (i *inflightCalls) startOrJoin(c Call) (_ *inflightCall, own bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if f := i.calls[c.Key]; f != nil {
		return f, false
	}
	f := &inflightCall{
		asked: make(chan struct{}), done: make(chan struct{}), fingerprint: c.Fingerprint,
	}
	i.calls[c.Key] = f
	return f, true
}

// publish lets followers know that the store has answered, and whether the leader holds the key.
func (i *inflightCalls) publish(f *inflightCall, held bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f.held = held
	f.publish()
}

func (f *inflightCall) publish() {
	if !f.answered {
		f.answered = true
		close(f.asked)
	}
}

// finish ends an in-flight call, once. Followers get only answers that stay until a person changes
// the record.
func (i *inflightCalls) finish(key Key, f *inflightCall, a Answer, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch a.Verdict {
	case Done, Dead, Conflict:
		f.answer = a
	default:
	}
	f.err, f.finished = err, true
	delete(i.calls, key)
	close(f.done)
	f.publish()
}

// lead asks until the key is not busy, for all followers.
func (i *inflightCalls) lead(b waitBudget, key Key, f *inflightCall, ask asker) (
	a Answer, kept bool, err error) {
	defer func() { // also if ask panics
		if !kept {
			i.finish(key, f, a, shared(b.ctx, err))
		}
	}()
	for {
		a, kept, err = ask(f)
		left := time.Until(b.until)
		if kept {
			i.publish(f, true)
		}
		if err != nil || kept || a.Verdict != Busy || left <= 0 {
			return a, kept, withCause(b.ctx, err)
		}
		i.publish(f, false)
		pause := min(left, i.poll)
		if a.Wait > 0 {
			pause = min(pause, a.Wait)
		}
		if err := sleep(b.ctx, pause); err != nil {
			return Answer{}, false, err
		}
	}
}

// withCause adds the cause of the end of ctx to err, if that end is the reason for err.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// shared returns err if it applies to the followers too: the store is unavailable. An error that
// may come from the leader's own context does not.
func shared(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}

// follow waits for the in-flight call of another caller. again means that the caller should try
// anew.
func (i *inflightCalls) follow(b waitBudget, c Call, f *inflightCall) (
	a Answer, again bool, err error) {
	select { // a caller without a wait budget learns the store's answer too
	case <-f.asked:
	case <-b.ctx.Done():
		return Answer{}, false, context.Cause(b.ctx)
	}
	switch v := i.startWaiting(f, c); v {
	case 0:
	case Conflict:
		return Answer{Verdict: Busy}.Conflicted(), false, nil
	default:
		return Answer{Verdict: v}, false, nil
	}
	timer := time.NewTimer(time.Until(b.until))
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
	case <-b.ctx.Done():
		err = context.Cause(b.ctx)
	}
	if a, again = i.stopWaiting(f, c); a.Verdict != Busy { // the leader has finished
		return a, again, f.err
	}
	if err != nil {
		a = Answer{}
	}
	return a, false, err
}

// startWaiting returns zero if the caller may wait for f. Another payload is a Conflict; if too
// many wait, the answer is Busy.
func (i *inflightCalls) startWaiting(f *inflightCall, c Call) Verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case f.finished:
	case f.held && c.differs(f.fingerprint):
		return Conflict
	case f.waiters >= i.maxWaiters:
		return Busy
	}
	f.waiters++
	return 0
}

// stopWaiting ends the wait that startWaiting began. The answer is Busy if the leader has not
// finished. A caller with another fingerprint asks anew, since the leader's answer is for its own.
func (i *inflightCalls) stopWaiting(f *inflightCall, c Call) (a Answer, again bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
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
