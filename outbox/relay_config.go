package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// RelayConfig says how a [Relay] works. Store and Producer are required.
type RelayConfig struct {
	// Store is the table.
	Store Store
	// Producer publishes.
	Producer Producer
	// Interval is how long to wait when there was nothing to publish; default 500 ms. While there is a backlog nothing waits.
	Interval time.Duration
	// Batch is how many rows are fetched and published at once; default 100, at most 10,000. BatchBytes bounds them too; default 4 MiB. What a
	// relay holds in memory is one batch.
	Batch      int
	BatchBytes int
	// Lease is for how long a relay that is gone is waited for before others publish its share; default 15 s, at least 1 s. Every third of it
	// relays look for what is free: so long others may take with the share of one that ended in order, or gave some up to a new one.
	Lease time.Duration
	// MaxAttempts is how often a row is tried whose topic is missing or may not be written to ([idem.ErrNoTopic]); default 5. A row that is
	// too large or refused is parked at once, and a broker that is away counts for nobody.
	MaxAttempts int
	// WhenParked says what happens to the aggregate of a row that was parked. [Halt], the default, or [Skip].
	WhenParked WhenParked
	// Keep is for how long rows stay after they were sent, for those who want to look; default 0: they are deleted at once. Of several
	// relays the shortest counts, and what is left of a longer one is deleted.
	Keep time.Duration
	// Wake lets the store say that rows have come, if it can ([Waker]); default false, since it slows writers down (O-12).
	Wake bool
	// Name of the outbox in what observers are told, for processes that have several; default empty. It is fit for a metric label: give
	// all relays of one outbox the same.
	Name string
	// Observers watch the relay: see [RoundObserver], [PublishObserver], [ParkedObserver], [BacklogObserver], [ShareObserver].
	Observers []Observer
	// Logger; default [slog.Default].
	Logger *slog.Logger
}

// WhenParked says what happens to the events behind a row that was parked.
type WhenParked int

const (
	// Halt stops the aggregate until a person has acted: its order is kept. Others go on.
	Halt WhenParked = iota
	// Skip goes on with the next event of the aggregate.
	Skip
)

// String is the name in flags and logs.
func (w WhenParked) String() string {
	switch w {
	case Halt:
		return "halt"
	case Skip:
		return "skip"
	}
	return fmt.Sprintf("WhenParked(%d)", int(w))
}

// The defaults.
const (
	DefaultInterval    = 500 * time.Millisecond
	DefaultBatch       = 100
	DefaultBatchBytes  = 4 << 20
	DefaultLease       = 15 * time.Second
	DefaultMaxAttempts = 5

	maxBatch = 10_000
	minLease = time.Second
)

func (c RelayConfig) withDefaults() RelayConfig {
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	c.BatchBytes = cmp.Or(c.BatchBytes, DefaultBatchBytes)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c *RelayConfig) check() error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("outbox: RelayConfig."+format, args...))
		}
	}
	refuse(c.Store == nil, "Store is nil")
	refuse(c.Producer == nil, "Producer is nil")
	refuse(c.Interval < 0, "Interval %s is negative", c.Interval)
	refuse(c.Batch < 0 || c.Batch > maxBatch, "Batch %d is not between 1 and %d", c.Batch, maxBatch)
	refuse(c.BatchBytes < 0, "BatchBytes %d is negative", c.BatchBytes)
	refuse(c.Lease < minLease, "Lease %s is shorter than %s", c.Lease, minLease)
	refuse(c.MaxAttempts < 0, "MaxAttempts %d is negative", c.MaxAttempts)
	refuse(c.WhenParked != Halt && c.WhenParked != Skip, "WhenParked is %s", c.WhenParked)
	refuse(c.Keep < 0, "Keep %s is negative", c.Keep)
	if _, wakes := c.Store.(Waker); c.Wake && c.Store != nil && !wakes {
		refuse(true, "Wake: %T cannot say that rows have come", c.Store)
	}
	for _, o := range c.Observers {
		refuse(!watchesRelay(o), "Observers: %T implements none of the interfaces of a relay's observer", o)
	}
	return errors.Join(problems...)
}
