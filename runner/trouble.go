package runner

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// repeatEvery is how often a lasting problem is logged again.
const repeatEvery = time.Minute

// trouble turns a stream of errors into changes of state: one log line when consuming begins to
// fail, and one when consuming works again.
type trouble struct {
	log      *slog.Logger
	text     func(error) string
	client   string // the name in log lines
	classify Classify

	mu     sync.Mutex
	since  time.Time
	last   time.Time            // of the last line of begin
	logged map[string]time.Time // the last line of each error of Detail
}

// begin logs that the group cannot be consumed now. Problems that only a person can mend are logged
// again once a minute.
func (t *trouble) begin(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing *TopicError
	person := errors.As(err, &missing) || needsPerson(err, t.classify(err))
	now := time.Now()
	switch {
	case t.since.IsZero():
		t.since, t.last = now, now
		t.log.Warn("cannot consume, will go on trying", "error", t.text(err))
	case person && now.Sub(t.last) >= repeatEvery:
		t.last = now
		t.log.Warn("still cannot consume, will go on trying",
			"for", now.Sub(t.since).Round(time.Second),
			"error", t.text(err))
	}
}

// Over logs that the group can be consumed again.
func (t *trouble) Over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() {
		t.log.Info("consuming again", "after", time.Since(t.since).Round(time.Millisecond))
		t.since = time.Time{}
	}
}

// Detail logs an error of the client's background work, the same error at most once a minute. attrs
// say more, such as the partition; they do not distinguish errors.
func (t *trouble) Detail(err error, attrs ...any) {
	text := t.text(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.logged[text]) < repeatEvery {
		return
	}
	if t.logged == nil || len(t.logged) >= 100 { // bounded: a text may contain addresses
		t.logged = make(map[string]time.Time)
	}
	t.logged[text] = now
	t.log.Warn(t.client, append([]any{"error", text}, attrs...)...)
}
