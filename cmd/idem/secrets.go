package main

import (
	"sync"

	"github.com/idem-go/idem/internal/redact"
)

// secrets are the passwords of all connections. It is safe for concurrent use: probes are answered,
// and logs written, while connections are opened.
type secrets struct {
	mu  sync.RWMutex
	all redact.Secrets
}

// Add adds passwords.
func (s *secrets) Add(passwords ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Add(passwords...)
}

// AddURL adds the passwords in a URL.
func (s *secrets) AddURL(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.AddURL(text)
}

// Text returns text without the passwords.
func (s *secrets) Text(text string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all.Text(text)
}
