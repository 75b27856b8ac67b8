package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// health is the state of a relay, for the log and for [Relay.Ready]. Safe for concurrent use.
type health struct {
	store, broker, wake, purge, backlog, late *outage

	mu      sync.Mutex
	running bool
	topics  error     // why the start still looks for its topics; nil: it does not
	asked   time.Time // the first question without an answer of the broker; zero: all are answered
}

func newHealth(log *slog.Logger) *health {
	return &health{
		store: newOutage(log, "outbox cannot be read or written, trying again",
			"outbox can be read and written again"),
		broker: newOutage(log, "broker does not take events of the outbox, trying again",
			"broker takes the events of the outbox again"),
		wake: newOutage(log, "outbox does not announce new rows, looking every interval",
			"outbox announces new rows again"),
		purge: newOutage(log, "sent rows cannot be deleted from the outbox",
			"sent rows are deleted from the outbox again"),
		backlog: newOutage(log, "backlog of the outbox cannot be read",
			"backlog of the outbox can be read again"),
		late: newOutage(log, "events wait in the outbox for long",
			"events in the outbox do not wait for long any more"),
	}
}

func (h *health) run(running bool) {
	h.mu.Lock()
	h.running = running
	h.mu.Unlock()
}

// waitsForTopics notes why the start cannot go on. Nil: the start has ended its look at the topics.
func (h *health) waitsForTopics(why error) {
	h.mu.Lock()
	h.topics = why
	h.mu.Unlock()
}

// asks notes that messages are given to the producer.
func (h *health) asks() {
	h.mu.Lock()
	if h.asked.IsZero() {
		h.asked = time.Now()
	}
	h.mu.Unlock()
}

// answers notes that the broker has answered, or that no question is open any more.
func (h *health) answers() {
	h.mu.Lock()
	h.asked = time.Time{}
	h.mu.Unlock()
}

// ready returns everything that is wrong for longer than limit. held is when the store last
// answered which shards the relay holds.
func (h *health) ready(limit time.Duration, held time.Time) error {
	h.mu.Lock()
	running, topics, asked := h.running, h.topics, h.asked
	h.mu.Unlock()
	if !running {
		return errors.New("outbox: the relay does not run")
	}
	if topics != nil { // a relay without its topics has no other facts yet
		return fmt.Errorf("outbox: the relay waits for its topics: %w", topics)
	}
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("outbox: "+format, args...))
	}
	failing, last := h.store.now()
	switch d := time.Since(held); {
	case held.IsZero() && last != nil && failing <= limit: // else the next problem has the error
		add("the database has not yet answered which shards the relay holds: %w", last)
	case held.IsZero():
		add("the database has not yet answered which shards the relay holds")
	case d > limit:
		add("the database has not answered for %s which shards the relay holds",
			d.Round(time.Second))
	}
	if failing > limit {
		add("the table cannot be read or written for %s: %w", failing.Round(time.Second), last)
	}
	if d := time.Since(asked); !asked.IsZero() && d > limit {
		_, err := h.broker.now()
		if err == nil {
			err = errNoAnswer
		}
		add("the broker has taken nothing for %s: %w", d.Round(time.Second), err)
	}
	return errors.Join(problems...)
}
