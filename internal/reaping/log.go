package reaping

import (
	"context"
	"log/slog"

	"github.com/idem-go/idem/internal/safetext"
)

// maxSilent is how many silent scopes are logged.
const maxSilent = 100

// trouble is the trouble that the log names, until the log says that it is over.
type trouble struct {
	failed bool // the last run could not work
	slow   bool // scopes are too slow
}

// note adds a run, and returns whether a trouble begins or ends with it. A run that ended because of
// another reaper says nothing about scopes that it has not looked at.
func (t *trouble) note(end ending, err error) (begins, ends bool) {
	switch {
	case err != nil && end.slow:
		begins = !t.slow
		*t = trouble{slow: true}
	case err != nil:
		begins = !t.failed
		t.failed = true
	case t.failed, t.slow && end.looked:
		ends = true
		*t = trouble{slow: t.slow && !end.looked}
	}
	return begins, ends
}

func (l *Loop[A]) log(ctx context.Context, result *Result[A], err error, begins, ends bool) {
	if begins {
		l.cfg.Logger.WarnContext(ctx, "reaper cannot work, tries again", "error",
			safetext.Line(err))
	}
	if ends {
		l.cfg.Logger.InfoContext(ctx, "reaper works again")
	}
	if result.Events+result.Claims+result.Starts > 0 {
		l.cfg.Logger.InfoContext(ctx, "expired records deleted", "events", result.Events, "claims",
			result.Claims, "starts", result.Starts, "stuck", result.Stuck)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent.log(ctx, l.cfg.Logger, result.Silent)
}

// silentLog has the silent scopes in the log.
type silentLog struct{ scopes map[string]bool }

// log logs each silent scope once.
func (s *silentLog) log(ctx context.Context, logger *slog.Logger, scopes []string) {
	for _, scope := range scopes {
		if s.scopes[scope] || len(s.scopes) >= maxSilent {
			continue
		}
		if s.scopes == nil {
			s.scopes = make(map[string]bool)
		}
		s.scopes[scope] = true
		logger.WarnContext(ctx, "scope records no progress, its rows are never deleted: "+
			"see docs/embedding.md for loops of your own, or list a scope without a consumer in "+
			"ReaperConfig.WallClock", "scope", scope)
	}
}
