package dynamostore

import (
	"sync"
	"time"
)

// births remembers the births of scopes. A birth never changes while the store is not emptied.
type births struct {
	mu    sync.Mutex
	known map[string]birth
}

// birth is the birth of one scope.
type birth struct{ born, asked time.Time }

const (
	// maxBirths bounds the memory of a program with very many scopes. A full map is emptied.
	maxBirths = 1000
	// birthAge is the time for which a birth is remembered. Then the table is asked again.
	birthAge = 10 * time.Minute
)

// of returns the remembered birth of scope, and whether the table need not be asked again at now.
// The zero time stands for an unknown birth.
func (b *births) of(scope string, now time.Time) (born time.Time, recent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.known[scope]
	return known.born, ok && now.Sub(known.asked) < birthAge
}

// remember keeps a birth that the table has answered at now.
func (b *births) remember(scope string, born, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBirths {
		b.known = make(map[string]birth)
	}
	b.known[scope] = birth{born: born, asked: now}
}
