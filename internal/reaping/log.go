package reaping

import (
	"context"
	"log/slog"

	"github.com/idem-go/idem/internal/safetext"
)

// maxSilent is how many silent scopes are logged.
const maxSilent = 100

func (l *Loop[A]) log(ctx context.Context, result *Result[A], err error, failing bool) {
	switch {
	case err != nil && !failing:
		l.cfg.Logger.WarnContext(ctx, "reaper cannot work, tries again", "error",
			safetext.Line(err))
	case err == nil && failing:
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
