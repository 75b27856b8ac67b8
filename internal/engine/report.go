package engine

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// reporter writes the log and calls the observers.
type reporter struct {
	group     string
	shadow    bool
	lease     time.Duration
	log       *slog.Logger
	obs       observers
	text      func(error) string
	unhandled unhandled
}

func newReporter(cfg *Config) *reporter {
	return &reporter{
		group: cfg.Group, shadow: cfg.Shadow, lease: cfg.Lease, log: cfg.Logger,
		text: cfg.ErrorText,
	}
}

// maxErrorText limits the text of an error outside of this process (T-04).
const maxErrorText = 1 << 10

// errorText returns the text of err for use outside of this process. If Config.ErrorText panics, a
// substitute names the type of err.
func (r *reporter) errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, for which Config.ErrorText panicked", err)
		}
	}()
	return safetext.Cut(r.text(err), maxErrorText)
}

// messageAttrs returns the log attributes of a message. The key is left out without an ID.
func messageAttrs(m *idemtype.Message, k dedup.Key) []any {
	attrs := []any{"topic", m.Topic, "partition", m.Partition, "offset", m.Offset}
	if k.ID != "" {
		attrs = append(attrs, "key", k.String())
	}
	return attrs
}

// observers has the observers of a processor, by interface.
type observers struct {
	handled    []observe.HandledObserver
	duplicate  []observe.DuplicateObserver
	deadLetter []observe.DeadLetterObserver
	retry      []observe.RetryObserver
	skipped    []observe.SkippedObserver
	claim      []observe.ClaimObserver
	store      []observe.StoreObserver
	stall      []observe.StallObserver
	claimGroup []observe.ClaimGroupObserver
	call       []observe.CallObserver
	storeCall  []observe.StoreCallObserver
	settled    []observe.SettledObserver
	lost       []observe.LostObserver
	conflict   []observe.ConflictObserver
	unprotect  []observe.UnprotectedObserver
	breaker    []observe.BreakerObserver
}

func pick[O any](list []O, o observe.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

// add adds o under each interface that o implements, and reports whether there is one.
func (s *observers) add(o observe.Observer) bool {
	before := s.count()
	s.handled = pick(s.handled, o)
	s.duplicate = pick(s.duplicate, o)
	s.deadLetter = pick(s.deadLetter, o)
	s.retry = pick(s.retry, o)
	s.skipped = pick(s.skipped, o)
	s.claim = pick(s.claim, o)
	s.store = pick(s.store, o)
	s.stall = pick(s.stall, o)
	s.claimGroup = pick(s.claimGroup, o)
	s.call = pick(s.call, o)
	s.storeCall = pick(s.storeCall, o)
	s.settled = pick(s.settled, o)
	s.lost = pick(s.lost, o)
	s.conflict = pick(s.conflict, o)
	s.unprotect = pick(s.unprotect, o)
	s.breaker = pick(s.breaker, o)
	return s.count() > before
}

func (s *observers) count() int {
	return len(s.handled) + len(s.duplicate) + len(s.deadLetter) + len(s.retry) + len(s.skipped) +
		len(s.claim) + len(s.store) + len(s.stall) + len(s.claimGroup) + len(s.call) +
		len(s.storeCall) + len(s.settled) + len(s.lost) + len(s.conflict) + len(s.unprotect) +
		len(s.breaker)
}

// unhandled counts the recent events without a handler, and has the types that were logged.
type unhandled struct {
	mu    sync.Mutex
	ring  [unhandledWindow]bool
	next  int
	seen  int
	count int
	types map[string]struct{}
}

const (
	unhandledWindow = 1000
	unhandledTypes  = 1000
)

// first reports whether typ was never logged. After a thousand types no other type is logged, so
// that a producer cannot fill the memory.
func (u *unhandled) first(typ string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.types[typ]; known || len(u.types) >= unhandledTypes {
		return false
	}
	if u.types == nil {
		u.types = make(map[string]struct{})
	}
	u.types[typ] = struct{}{}
	return true
}

func (u *unhandled) note(skipped bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ring[u.next] {
		u.count--
	}
	if skipped {
		u.count++
	}
	u.ring[u.next] = skipped
	u.next = (u.next + 1) % unhandledWindow
	u.seen = min(u.seen+1, unhandledWindow)
}

// mostSkipped reports whether more than half of a full window was skipped.
func (u *unhandled) mostSkipped() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen == unhandledWindow && u.count > unhandledWindow/2
}
