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

// of returns the remembered birth of scope, and whether the caller must ask the table at now. The
// zero time stands for an unknown birth, which each caller asks for. For a known birth, one caller in
// ten minutes asks: the others go on while the table does not answer.
func (b *births) of(scope string, now time.Time) (born time.Time, ask bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.known[scope]
	if ok && now.Sub(known.asked) < birthAge {
		return known.born, false
	}
	if ok {
		b.known[scope] = birth{born: known.born, asked: now}
	}
	return known.born, true
}

// askAgain lets the next caller ask for the birth of scope.
func (b *births) askAgain(scope string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known[scope]; ok {
		b.known[scope] = birth{born: known.born}
	}
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
