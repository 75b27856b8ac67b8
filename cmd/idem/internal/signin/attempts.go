package signin

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// The limits of attempts with wrong passwords.
const (
	attemptsAtOnce = 10              // of one name
	attemptEvery   = 6 * time.Second // then one more
)

// attempts bounds the attempts of each name, known or not. Names share a fixed number of counters,
// so that invented names take no memory.
type attempts struct {
	mu   sync.Mutex
	left [1024]struct {
		spent int
		at    time.Time
	}
}

func (a *attempts) slot(key []byte, name string) int {
	sum := sha256.Sum256(append(key[:len(key):len(key)], name...))
	return int(binary.BigEndian.Uint32(sum[:]) % uint32(len(a.left)))
}

// take reports whether one more attempt is allowed, and counts it.
func (a *attempts) take(slot int, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.left[slot]
	if back := int(now.Sub(l.at) / attemptEvery); back > 0 {
		l.spent = max(0, l.spent-back)
		l.at = now
	}
	if l.spent >= attemptsAtOnce {
		return false
	}
	l.spent++
	return true
}

// giveBack undoes take, after the right password.
func (a *attempts) giveBack(slot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left[slot].spent = max(0, a.left[slot].spent-1)
}
