package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/setupwait"
)

// RelayConfig configures a [Relay]. Store and Producer are required. The zero value of every other
// field is its default.
type RelayConfig struct {
	// Store is the table of the outbox. Required.
	Store Store
	// Producer publishes the rows. Required.
	Producer Producer
	// Topics must exist when Run begins, and the relay must have the right to write to them.
	// Otherwise Run ends after SetupWait, with an error that names the commands to run. The
	// producer must be a [TopicChecker]. Default: Run looks for no topics. A row with a missing
	// topic is parked after MaxAttempts.
	Topics []string
	// SetupWait is how long Run waits at the start for tables, topics or rights that are missing. A
	// log line within 5 s names the missing part and the remedy. At the end of the wait, Run ends
	// with an error: a [dedup.SetupError], or one that matches [idem.ErrNoTopic]. Default: 3 s;
	// [idem.Forever]: no limit.
	SetupWait time.Duration
	// Interval is the pause after a round without rows. Default: 500 ms. There is no pause while
	// rows wait.
	Interval time.Duration
	// Batch is the greatest number of rows that are fetched and published at once. Default: 2,000,
	// at most 10,000. A relay begins with 100 rows, and takes more while a backlog is published
	// quickly. A relay that dies may leave a copy of each row of one batch.
	Batch int
	// BatchBytes is the greatest size of a batch, in bytes. A single row may be larger. Default: 4
	// MiB. A relay holds one batch in memory.
	BatchBytes int
	// Lease is the time after which other relays publish the share of a relay that is gone.
	// Default: 15 s, at least 1 s. Relays look for free shards every third of a Lease. Other relays
	// therefore need up to that time to take a share that was given up.
	Lease time.Duration
	// MaxAttempts is how often a row is tried if its topic is missing or may not be written to
	// ([idem.ErrNoTopic]). Default: 5. A row that is too large or refused is parked at once. An
	// outage of the broker does not count.
	MaxAttempts int
	// WhenParked is the policy for the events behind a parked row. Default: [Halt].
	WhenParked WhenParked
	// Keep is how long rows stay in the table after they were sent. Default: 0, sent rows are
	// deleted at once. If relays of one outbox differ, the shortest Keep counts.
	Keep time.Duration
	// Wake has the store announce new rows. The store must be a [Waker]. Default: false. Writers
	// must announce rows too, such as with pgoutbox.Notify.
	Wake bool
	// Name is the name of the outbox for observers, in a process with several. Default: empty. Give
	// all relays of one outbox the same name: the name is meant for a metric label.
	Name string
	// Observers watch the relay. Each implements at least one of [RoundObserver],
	// [PublishObserver], [ParkedObserver], [BacklogObserver] and [ShareObserver].
	Observers []Observer
	// Logger gets the log lines of the relay. Default: [slog.Default].
	Logger *slog.Logger
}

// The defaults of [RelayConfig].
const (
	DefaultInterval    = 500 * time.Millisecond
	DefaultBatch       = 2000
	DefaultBatchBytes  = 4 << 20
	DefaultLease       = 15 * time.Second
	DefaultMaxAttempts = 5

	maxBatch = 10_000
	minLease = time.Second
)

func (c RelayConfig) withDefaults() RelayConfig {
	c.SetupWait = cmp.Or(c.SetupWait, setupwait.Default)
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

// check returns everything that is wrong, except with Observers: see newObservers.
func (c *RelayConfig) check() error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("outbox: RelayConfig."+format, args...))
		}
	}
	refuse(c.Store == nil, "Store is nil")
	refuse(c.Producer == nil, "Producer is nil")
	refuse(c.SetupWait < 0, "SetupWait %s is negative", c.SetupWait)
	refuse(c.Interval < 0, "Interval %s is negative", c.Interval)
	refuse(c.Batch < 0 || c.Batch > maxBatch, "Batch %d is not between 1 and %d", c.Batch, maxBatch)
	refuse(c.BatchBytes < 0, "BatchBytes %d is negative", c.BatchBytes)
	refuse(c.Lease < minLease, "Lease %s is shorter than %s", c.Lease, minLease)
	refuse(c.MaxAttempts < 0, "MaxAttempts %d is negative", c.MaxAttempts)
	refuse(c.WhenParked != Halt && c.WhenParked != Skip, "WhenParked is %s", c.WhenParked)
	refuse(c.Keep < 0, "Keep %s is negative", c.Keep)
	refuse(slices.Contains(c.Topics, ""), "Topics has an empty name")
	if _, checks := c.Producer.(TopicChecker); len(c.Topics) > 0 && c.Producer != nil && !checks {
		refuse(true, "Topics: %T does not implement TopicChecker", c.Producer)
	}
	if _, wakes := c.Store.(Waker); c.Wake && c.Store != nil && !wakes {
		refuse(true, "Wake: %T does not implement Waker", c.Store)
	}
	return errors.Join(problems...)
}
