package idemtest

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Option changes the consumer that [Run] starts.
type Option func(*settings)

type settings struct {
	store  dedup.Store
	down   func(bool)
	group  string
	within time.Duration
	change []func(*idem.Config)
	logger *slog.Logger

	mistakes []string // of the options, each with the remedy
}

// refuse notes a mistake of an option if bad is true.
func (s *settings) refuse(bad bool, format string, args ...any) {
	if bad {
		s.mistakes = append(s.mistakes, fmt.Sprintf(format, args...))
	}
}

// Store sets the store of the handlers without a store of their own. The default is a store in
// memory. The store must be empty: the events of an earlier test would be duplicates.
func Store(s dedup.Store) Option {
	return func(o *settings) {
		o.refuse(s == nil, "Store(nil): pass a store, or leave the option out for one in memory")
		o.store = s
	}
}

// Down sets the function that stops and starts the store of [Store], for [Consumer.StoreDown]. set
// gets true before calls of the store must fail with an error that matches [dedup.ErrUnavailable],
// and false afterwards.
func Down(set func(down bool)) Option {
	return func(o *settings) {
		o.refuse(set == nil, "Down(nil): pass the function that stops and starts the store")
		o.down = set
	}
}

// Group sets the consumer group, which is also the scope of the events. The default is "idemtest".
func Group(name string) Option {
	return func(o *settings) {
		o.refuse(name == "", "Group(%q): pass a name, or leave the option out", name)
		o.group = name
	}
}

// Within sets how long one step of a test may take, for example one call of [Consumer.Deliver].
// After that time the test fails. The default is 10 s, and an hour in a bubble of testing/synctest.
func Within(d time.Duration) Option {
	return func(o *settings) {
		o.refuse(d <= 0, "Within(%s): a step takes time, so pass a duration above zero", d)
		o.within = d
	}
}

// Configure changes the configuration of the processor before it starts: observers, leases, grace.
func Configure(change func(*idem.Config)) Option {
	return func(o *settings) {
		o.refuse(change == nil, "Configure(nil): pass a function that changes the configuration")
		o.change = append(o.change, change)
	}
}

// Logger sets the logger. By default the log goes to the log of the test.
func Logger(l *slog.Logger) Option { return func(o *settings) { o.logger = l } }
