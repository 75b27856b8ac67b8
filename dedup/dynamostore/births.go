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
