package runner

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/setupwait"
)

// consumeProblem has the texts for a group that cannot be consumed.
func consumeProblem() setupwait.Problem {
	return setupwait.Problem{
		First: "cannot consume, will go on trying",
		Still: "still cannot consume, will go on trying",
	}
}

// trouble turns a stream of errors into changes of state. The log has one line when consuming
// begins to fail, one in each minute of failures, and one when consuming works again.
type trouble struct {
	log      *slog.Logger
	text     func(error) string
	client   string // the name in log lines
	classify Classify

	mu     sync.Mutex
	away   setupwait.Problem
	logged map[string]time.Time // the last line of each error of Detail
}

// begin logs that the group cannot be consumed now, once a minute while that lasts.
func (t *trouble) begin(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away.Log(context.Background(), t.log, t.text(err))
}

// Over logs that the group can be consumed again.
func (t *trouble) Over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lasted, logged := t.away.Over(); logged {
		t.log.Info("consuming again", "after", lasted)
	}
}

// Detail logs an error of the client's background work, the same error at most once a minute. attrs
// are further attributes of the line, such as the partition. They do not distinguish errors.
func (t *trouble) Detail(err error, attrs ...any) {
	text := t.text(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.logged[text]) < setupwait.RepeatEvery {
		return
	}
	if t.logged == nil || len(t.logged) >= 100 { // bounded: a text may contain addresses
		t.logged = make(map[string]time.Time)
	}
	t.logged[text] = now
	t.log.Warn(t.client, append([]any{"error", text}, attrs...)...)
}
