package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/identity"
	"github.com/idem-go/idem/internal/mark"
	"github.com/idem-go/idem/internal/throttle"
)

// routes finds the handler of a message. Handlers with the same extractor of types share a look-up.
// The extractors are tried in the order of registration.
type routes struct {
	groups   []routeGroup
	notFound func(context.Context, *idemtype.Message) error
}

type routeGroup struct {
	source *TypeSource
	byType map[string]*bound
}

// bound is a handler with the store in this processor, and the limits.
type bound struct {
	*Handler
	access        *storeAccess
	tx            TxStore
	limits        *throttle.Limits  // nil without limits
	breaker       *throttle.Breaker // nil without a circuit breaker
	txLimit       throttle.AdaptiveLimit
	deferredLimit throttle.AdaptiveLimit // for deferred events, which fail more often
	ahead         throttle.ClaimAhead
	budget        throttle.RetryBudget
	form          identity.Form // form of the identities
	mixed         bool          // another handler of the type finds identities of another form

	conflicts conflictLog
	noIDs     logLimit
	spare     *spare // nil if the handler must not run while the store is down
}

// add adds a handler. If another handler has the place already, add returns that one.
func (r *routes) add(b *bound) (first *Handler) {
	for i := range r.groups {
		if g := &r.groups[i]; g.source == b.source() {
			if other, ok := g.byType[b.Type]; ok {
				return other.Handler
			}
			g.byType[b.Type] = b
			return nil
		}
	}
	r.groups = append(
		r.groups, routeGroup{source: b.source(), byType: map[string]*bound{b.Type: b}},
	)
	return nil
}

func (b *bound) source() *TypeSource { return b.Settings.Source }

// ungrouped reports whether a handler shares groups with no other handler. Such a handler has
// limits, or runs batches at most once. The claims of the latter must not wait for other handlers.
func (b *bound) ungrouped() bool {
	return b.limits != nil || b.tx == nil && b.Batch && b.atMostOnce()
}

// find returns the handler of m, or the type without a handler. A source with contradictory types
// is an error, unless another source leads to a handler.
func (r *routes) find(
	ctx context.Context, m *idemtype.Message,
) (b *bound, typ string, err error) {
	found := false
	for _, g := range r.groups {
		b, t, findErr := identity.Lookup(ctx, &g.source.Extractor, m, g.byType)
		switch {
		case b != nil:
			return b, b.Type, nil
		case findErr == nil:
			typ, found = t, true
		// The handler is not known yet.
		case errors.Is(findErr, decoded.ErrLookUp),
			!errors.Is(findErr, idemtype.ErrNotFound) && mark.Label(findErr) != "":
			return nil, "", findErr
		case err == nil ||
			errors.Is(err, idemtype.ErrNotFound) && !errors.Is(err, identity.ErrNotJSON):
			err = findErr
		}
	}
	if found && errors.Is(err, idemtype.ErrNotFound) {
		err = nil
	}
	return nil, typ, err
}

// conflictLog limits the log lines and the notes in the store about conflicts of one handler.
type conflictLog struct {
	logLimit
	nextNote time.Time // earliest time of the next note in the store
}

// logLimit limits the log lines of one kind about one handler.
type logLimit struct {
	mu      sync.Mutex
	next    time.Time // earliest time of the next line
	skipped int       // lines left out since the last one
}

// logEvery is the shortest interval between two log lines of one kind about one handler.
const logEvery = time.Minute

// conflictNoteEvery is the shortest interval between two notes of one handler. If all copies of a
// producer differ, the notes take about a hundredth of the time.
const conflictNoteEvery = 100 * time.Millisecond

// admitNote reports whether a conflict may be noted in the store now.
func (l *conflictLog) admitNote(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextNote) {
		return false
	}
	l.nextNote = now.Add(conflictNoteEvery)
	return true
}

// noteFailed stops notes for a while, because a failed note takes a second.
func (l *conflictLog) noteFailed(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextNote = now.Add(logEvery)
}

// admit reports whether a line may be logged now, and the number of lines that were left out
// before.
func (l *logLimit) admit(now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.skipped++
		return 0, false
	}
	leftOut, l.skipped = l.skipped, 0
	l.next = now.Add(logEvery)
	return leftOut, true
}
