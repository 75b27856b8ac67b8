package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/setupwait"
)

// checkTopics looks for the configured topics. A missing one is looked for again for SetupWait: the
// brokers do not know a new topic at once. If the brokers give no answer, the relay starts, and
// waits for them as it does later.
func (r *Relay) checkTopics(ctx context.Context) error {
	checker, ok := r.cfg.Producer.(TopicChecker)
	if !ok || len(r.cfg.Topics) == 0 {
		return nil
	}
	r.health.waitsForTopics(errNoAnswer)
	defer r.health.waitsForTopics(nil)
	began := time.Now()
	away := setupwait.Problem{
		First: "topics or rights are missing, waiting for them",
		Still: "topics or rights are still missing, waiting for them",
		Since: began,
	}
	for {
		err := checker.CheckTopics(ctx, r.cfg.Topics)
		switch {
		case ctx.Err() != nil:
			return nil // the end of ctx is no error of Run
		case err == nil:
			if lasted, logged := away.Over(); logged {
				r.cfg.Logger.InfoContext(ctx, "topics and rights are there", "after", lasted)
			}
			return nil
		case !errors.Is(err, idem.ErrNoTopic):
			r.cfg.Logger.WarnContext(ctx, "outbox relay starts without a look at its topics",
				"topics", r.cfg.Topics, "error", errorText(err))
			return nil
		}
		r.health.waitsForTopics(err)
		waited := time.Since(began)
		d, again := setupwait.Pause(waited, r.cfg.SetupWait)
		if !again {
			return fmt.Errorf("topics: %w", err)
		}
		if waited+d > setupwait.Default {
			away.Log(ctx, r.cfg.Logger, errorText(err))
		}
		pause(ctx, nil, d)
	}
}
