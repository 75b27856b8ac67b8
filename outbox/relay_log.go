package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

// trouble is something that fails for a while: it is told once when it begins, and once when it is over, and once a minute while
// something of the set-up is missing. Safe for concurrent use.
type trouble struct {
	log          *slog.Logger
	begins, ends string

	mu      sync.Mutex
	failing map[string]bool // which parts of it
	since   time.Time
	told    time.Time // when it was last told that something of the set-up is missing
	last    error
}

// setupEvery is how often the log repeats that a store is not set up: only a person mends it.
const setupEvery = time.Minute

func newTrouble(log *slog.Logger, begins, ends string) *trouble {
	return &trouble{log: log, begins: begins, ends: ends, failing: map[string]bool{}}
}

func (t *trouble) set(ctx context.Context, part string, err error) {
	var setup *dedup.SetupError
	t.mu.Lock()
	first := len(t.failing) == 0
	t.failing[part], t.last = true, err
	if first {
		t.since, t.told = time.Now(), time.Time{}
	}
	again := errors.As(err, &setup) && (t.told.IsZero() || time.Since(t.told) >= setupEvery)
	if again {
		t.told = time.Now()
	}
	t.mu.Unlock()
	if first || again {
		t.log.WarnContext(ctx, t.begins, "at", part, "error", cutText(safetext.Text(err)))
	}
}

func (t *trouble) clear(ctx context.Context, part string) {
	t.mu.Lock()
	last := t.failing[part] && len(t.failing) == 1
	delete(t.failing, part)
	away := time.Since(t.since)
	t.mu.Unlock()
	if last {
		t.log.InfoContext(ctx, t.ends, "after", away.Round(time.Millisecond))
	}
}

// now returns for how long it has lasted, and the last error. Zero: all is well.
func (t *trouble) now() (time.Duration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failing) == 0 {
		return 0, nil
	}
	return time.Since(t.since), t.last
}

// health is what a relay knows of how it is.
type health struct {
	store, broker, listener, purge, look, late *trouble

	mu      sync.Mutex
	running bool
	asked   time.Time // when the broker was first asked without an answer since. Zero: it has answered
}

func newHealth(log *slog.Logger) health {
	return health{
		store:    newTrouble(log, "outbox cannot be read or written, trying again", "outbox can be read and written again"),
		broker:   newTrouble(log, "broker does not take events of the outbox, trying again", "broker takes the events of the outbox again"),
		listener: newTrouble(log, "outbox does not say when events come, looking every interval", "outbox says again when events come"),
		purge:    newTrouble(log, "events that were sent cannot be deleted from the outbox", "events that were sent are deleted from the outbox again"),
		look:     newTrouble(log, "cannot see what waits in the outbox", "what waits in the outbox can be seen again"),
		late:     newTrouble(log, "events wait in the outbox for long", "events in the outbox do not wait for long any more"),
	}
}

func (h *health) run(running bool) {
	h.mu.Lock()
	h.running = running
	h.mu.Unlock()
}

// asks, answers and nothing follow whether the broker answers when it is asked.
func (h *health) asks() {
	h.mu.Lock()
	if h.asked.IsZero() {
		h.asked = time.Now()
	}
	h.mu.Unlock()
}

func (h *health) answers() {
	h.mu.Lock()
	h.asked = time.Time{}
	h.mu.Unlock()
}

// nothing waits, so that nothing is known of the broker.
func (h *health) nothing() { h.answers() }

// round tells of the broker's going and coming. It is back when something was sent, and nothing is left that it has not taken.
func (h *health) round(ctx context.Context, b *batch) {
	switch {
	case b.brokers > 0:
		h.broker.set(ctx, "produce", b.seen.Err)
	case b.seen.Sent > 0 && !b.r.mutes.brokers():
		h.broker.clear(ctx, "produce")
	}
}

// Ready returns nil if the relay works: the database and the broker were usable within the last lease, as far as they were needed, and the
// database has said what the share of this relay is, which may be nothing. The error says all that is wrong. It is meant for a probe of
// readiness; a restart mends none of it. Safe for concurrent use.
func (r *Relay) Ready() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf("outbox: "+format, args...)) }
	limit := r.cfg.Lease
	r.health.mu.Lock()
	running, asked := r.health.running, r.health.asked
	r.health.mu.Unlock()
	if !running {
		return errors.New("outbox: the relay does not run")
	}
	if since := r.share.silent(); since.IsZero() {
		add("the database has not said yet what is to be published here")
	} else if d := time.Since(since); d > limit {
		add("the database has not said for %s what is to be published here", d.Round(time.Second))
	}
	if d, err := r.health.store.now(); d > limit {
		add("the table cannot be read or written for %s: %w", d.Round(time.Second), err)
	}
	if d := time.Since(asked); !asked.IsZero() && d > limit {
		_, err := r.health.broker.now()
		if err == nil {
			err = errors.New("no answer")
		}
		add("the broker has taken nothing for %s: %w", d.Round(time.Second), err)
	}
	return errors.Join(problems...)
}

// tellParked tells people of a row that was given up, without its payload.
func (r *Relay) tellParked(ctx context.Context, p *parkedRow) {
	r.cfg.Logger.ErrorContext(ctx, "event of the outbox is parked: a person must decide about it", append(rowAttrs(&p.row),
		"aggregate", r.cfg.WhenParked.String(), "error", cutText(safetext.Text(p.err)))...)
	for _, o := range r.cfg.Observers {
		if o, ok := o.(ParkedObserver); ok {
			o.ObserveParked(ctx, p.row, p.err)
		}
	}
}

// blamed tells of a row that failed and is tried again, the first time.
func (r *Relay) blamed(ctx context.Context, row *Row, times int, err error) {
	if times == 1 {
		r.cfg.Logger.WarnContext(ctx, "event of the outbox was not taken, trying again", append(rowAttrs(row),
			"max_attempts", r.cfg.MaxAttempts, "error", cutText(safetext.Text(err)))...)
	}
}

func rowAttrs(row *Row) []any {
	return []any{
		"topic", row.Entry.Topic, "key", cutText(cut(row.Entry.Key)), "event_id", row.Entry.ID, "type", row.Entry.Type, "seq", row.Seq,
	}
}

func (r *Relay) observeRound(ctx context.Context, seen Round) {
	seen.Outbox = r.cfg.Name
	for _, o := range r.cfg.Observers {
		if o, ok := o.(RoundObserver); ok {
			o.ObserveRound(ctx, seen)
		}
	}
}
