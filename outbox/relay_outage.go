package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/setupwait"
)

// outage is a fault that lasts. The log has one line when an outage begins and one when it ends.
// While a table or a right is missing, a person must act: the warning is repeated every
// [setupwait.RepeatEvery]. Safe for concurrent use.
type outage struct {
	log          *slog.Logger
	begins, ends string

	mu       sync.Mutex
	failing  map[string]bool // the calls that fail now
	since    time.Time
	repeated time.Time // when the log last had the error of a missing set-up
	last     error
}

func newOutage(log *slog.Logger, begins, ends string) *outage {
	return &outage{log: log, begins: begins, ends: ends, failing: map[string]bool{}}
}

// set notes that a call has failed.
func (o *outage) set(ctx context.Context, call string, err error) {
	var setup *dedup.SetupError
	o.mu.Lock()
	first := len(o.failing) == 0
	o.failing[call], o.last = true, err
	if first {
		o.since, o.repeated = time.Now(), time.Time{}
	}
	again := errors.As(err, &setup) &&
		(o.repeated.IsZero() || time.Since(o.repeated) >= setupwait.RepeatEvery)
	if again {
		o.repeated = time.Now()
	}
	o.mu.Unlock()
	if first || again {
		o.log.WarnContext(ctx, o.begins, "at", call, "error", errorText(err))
	}
}

// clear notes that a call has worked. The outage ends when no call fails any more.
func (o *outage) clear(ctx context.Context, call string) {
	o.mu.Lock()
	last := o.failing[call] && len(o.failing) == 1
	delete(o.failing, call)
	lasted := time.Since(o.since)
	o.mu.Unlock()
	if last {
		o.log.InfoContext(ctx, o.ends, "after", lasted.Round(time.Millisecond))
	}
}

// now returns the duration of the outage and its last error. Both are zero if all calls work.
func (o *outage) now() (time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		return 0, nil
	}
	return time.Since(o.since), o.last
}
