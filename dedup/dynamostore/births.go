package dynamostore

import (
	"sync"
	"time"
)

// births remembers the births of scopes. A birth never changes while the store is not emptied.
type births struct {
	mu    sync.Mutex
	known map[string]time.Time
}

// maxBirths bounds the memory of a program with very many scopes. A full map is emptied.
const maxBirths = 1000

func (b *births) of(scope string) (born time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	born, ok = b.known[scope]
	return born, ok
}

func (b *births) remember(scope string, born time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBirths {
		b.known = make(map[string]time.Time)
	}
	b.known[scope] = born
}
