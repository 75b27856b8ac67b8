package engine

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/observers"
	"github.com/idem-go/idem/internal/safetext"
)

// reporter writes the log and calls the observers.
type reporter struct {
	group     string
	shadow    bool
	lease     time.Duration
	log       *slog.Logger
	obs       observers.Processor
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
