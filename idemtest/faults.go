package idemtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// ErrFault is the error of a call that fails by a schedule of [Torture].
var ErrFault = errors.New("idemtest: the call fails by the schedule")

// errDead is the error of every call of a dead process.
var errDead = errors.New("idemtest: the process is dead")

// Faults makes the outside calls of a handler fail, and ends its process before and after them. The
// fakes of a test pass their effects to it. Safe for concurrent use.
type Faults struct {
	plan  schedule
	began time.Time
	over  chan struct{} // closed when the state was read: blocked code of dead processes goes on

	mu     sync.Mutex
	points []point // of the numbered processes
	trace  []told
	keys   map[string]string // of calls that had their effect, with the names of the calls
	shared *sharedKey        // the first one, or nil
	calls  map[effect][]call // that had their effect
	lease  time.Duration     // the longest one that a process asked for
	ended  bool
	now    *process // the latest numbered one
}

// effect names a call of the handler for one event. A batch handler has no event.
type effect struct {
	event dedup.Key
	what  string
}

// before ends the names of points in front of a call. The story has them only if a fault happens
// there.
const before = ", before"

// call is a call that had its effect.
type call struct{ key string }

// sharedKey has the names of two calls with one idempotency key. The second call had no effect.
type sharedKey struct{ first, second string }

func (s sharedKey) String() string {
	return fmt.Sprintf("the key of %q is used for %q too: give each call a purpose, such as "+
		"e.IdempotencyKey(%q)", s.first, s.second, s.second)
}

func newFaults(plan schedule) *Faults {
	return &Faults{
		plan: plan, began: time.Now(), over: make(chan struct{}),
		keys: make(map[string]string), calls: make(map[effect][]call),
	}
}

// Call is a call of the handler to something outside of the store's transaction, such as a mail
// server or another database. change has the effect of the call. The process may die before or
// after the effect, and the call may fail with [ErrFault] without the effect or in spite of it.
// what names the call in the story, for example "send mail to ann".
//
// ctx is that of the handler. A call before the first process exists, such as one of setup, is part
// of the world: it has its effect, is no point, and never fails.
func (f *Faults) Call(ctx context.Context, what string, change func()) error {
	return f.CallWithKey(ctx, what, "", change)
}

// CallWithKey is Call for a provider that knows idempotency keys: a second call with the same key
// succeeds without a second effect. All calls of a world are calls of one provider. So the test
// fails if the run without faults has one key in calls of two names, as what names them. Make the
// keys with a purpose, see [idem.Event.IdempotencyKey]. A fake of a second provider can put its name
// in front of the key. change must not make another call of the Faults.
func (f *Faults) CallWithKey(ctx context.Context, what, key string, change func()) error {
	p := f.process(ctx)
	if p == nil { // setup builds the world
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.knows(what, key) {
			change()
		}
		return nil
	}
	if err := p.reach("calls: "+what+before, true); err != nil {
		return err
	}
	if err := f.apply(ctx, p, what, key, change); err != nil {
		return err
	}
	return p.reach("calls: "+what, true)
}

// apply makes a change, unless the process is dead or the provider knows the key.
func (f *Faults) apply(ctx context.Context, p *process, what, key string, change func()) error {
	f.mu.Lock()
	defer f.mu.Unlock() // also if change panics
	if f.ended || p.isDead() {
		return errDead
	}
	if !f.knows(what, key) {
		event, _ := dedup.ParentFrom(ctx)
		at := effect{event, what}
		f.calls[at] = append(f.calls[at], call{key})
		change()
	} else {
		f.tell(p.name + " calls: " + what + ": the provider knows the key")
	}
	return nil
}

// knows reports whether the provider knows the key of a call. Afterwards it does. f.mu is locked.
func (f *Faults) knows(what, key string) bool {
	if key == "" {
		return false
	}
	first, known := f.keys[key]
	switch {
	case !known:
		f.keys[key] = what
	case first != what && f.shared == nil:
		f.shared = &sharedKey{first, what}
	}
	return known
}

type processKey struct{}

// begin names the numbered process.
func (f *Faults) begin(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = p
}

// process returns the process of a context; without one, the numbered one. Nil: none has begun.
func (f *Faults) process(ctx context.Context) *process {
	if p, ok := ctx.Value(processKey{}).(*process); ok {
		return p
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// note adds a line to the story.
func (f *Faults) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(fmt.Sprintf(format, args...))
}

// tell adds a line to the story, with the time since the begin of the run. f.mu is locked.
func (f *Faults) tell(line string) {
	if !f.ended {
		f.trace = append(f.trace, told{time.Since(f.began), line})
	}
}

// told is a line of a story.
type told struct {
	after time.Duration
	line  string
}

// leased takes the lease of a call of the store.
func (f *Faults) leased(lease time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = max(f.lease, lease)
}

// beyondLease returns how long a process stands still: longer than any lease until now.
func (f *Faults) beyondLease() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(shortestPause, 2*f.lease)
}

// next tells of a moment of a process. If it is a point, next counts it and returns its fault.
func (f *Faults) next(p *process, what string, outside, isPoint bool) (now fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return ""
	}
	if !isPoint {
		if !strings.HasSuffix(what, before) {
			f.tell(p.name + " " + what)
		}
		return ""
	}
	f.points = append(f.points, point{what, outside})
	now = f.plan.at(len(f.points))
	line := fmt.Sprintf("%s %s", p.name, what)
	switch now {
	case die:
		line += "  <- the process dies"
	case fail:
		line += "  <- the call returns an error"
	case freeze:
		line += "  <- the process stands still, and its partitions move to another worker"
	case copies:
		line += "  <- another worker gets a copy of each record"
	case others:
		line += "  <- another worker handles the other partitions"
	}
	if now != "" || !strings.HasSuffix(what, before) {
		f.tell(line)
	}
	return now
}

// stop ends the run. Later faults and calls do not count.
func (f *Faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// result sets the points and the story of the run, the calls that had their effect, the key of two
// calls, and the lease.
func (f *Faults) result(out *outcomeOf) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.points, out.trace = slices.Clone(f.points), slices.Clone(f.trace)
	out.calls, out.shared, out.lease = maps.Clone(f.calls), f.shared, f.lease
}
