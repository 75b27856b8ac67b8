package runner

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatEvery is how often a lasting problem is logged again.
	repeatEvery = time.Minute
	// quietFor without an error means that a problem was over before the next error. A client that
	// connects again by itself does not report the success.
	quietFor = 5 * time.Minute
)

// lasting decides which errors of a lasting problem are logged: the first, and then one in
// repeatEvery. The zero value is no problem.
type lasting struct {
	since, logged, heard time.Time
}

// again notes an error. The result is false if the error is not to be logged. lasts is the duration
// of the problem, and zero for its first error.
func (l *lasting) again() (lasts time.Duration, log bool) {
	now := time.Now()
	if now.Sub(l.heard) > quietFor { // also the first error of all
		l.since, l.logged = now, time.Time{}
	}
	l.heard = now
	if now.Sub(l.logged) < repeatEvery {
		return 0, false
	}
	l.logged = now
	return now.Sub(l.since).Round(time.Second), true
}

// trouble turns a stream of errors into changes of state: one log line when consuming begins to
// fail, one in each minute of failures, and one when consuming works again.
type trouble struct {
	log      *slog.Logger
	text     func(error) string
	client   string // the name in log lines
	classify Classify

	mu     sync.Mutex
	away   lasting
	logged map[string]time.Time // the last line of each error of Detail
}

// begin logs that the group cannot be consumed now, once a minute while that lasts.
func (t *trouble) begin(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch lasts, log := t.away.again(); {
	case !log:
	case lasts == 0:
		t.log.Warn("cannot consume, will go on trying", "error", t.text(err))
	default:
		t.log.Warn("still cannot consume, will go on trying", "for", lasts, "error", t.text(err))
	}
}

// Over logs that the group can be consumed again.
func (t *trouble) Over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := t.away.since; !since.IsZero() {
		t.log.Info("consuming again", "after", time.Since(since).Round(time.Millisecond))
		t.away = lasting{}
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
