package engine

import "sync"

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

// first reports whether typ was never logged. After a thousand types no more are logged, so that a
// producer cannot fill the memory.
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
