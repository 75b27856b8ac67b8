package reaping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

var (
	errDown = errors.New("the store is down")
	errSlow = errors.New("no end in time")
)

// tables is a store in memory. The age of a scope is its name. A function that is nil has nothing
// to do.
type tables struct {
	log   strings.Builder
	calls []string
	began time.Time

	lease  func() error
	scopes []string
	scope  func(ctx context.Context, name string, events, claims func(int64)) error
	starts []int64 // the sizes of the batches
	silent []string
	stuck  func() (int64, error)
	leave  func() error
}

// called notes a call, and when it was made.
func (s *tables) called(name string) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.calls = append(s.calls, fmt.Sprintf("%s %s", name, time.Since(s.began)))
}

// names returns the calls without their times, and forgets them.
func (s *tables) names() (all []string) {
	for _, call := range s.calls {
		all = append(all, call[:strings.LastIndex(call, " ")])
	}
	s.calls = nil
	return all
}

func (s *tables) Lease(context.Context, dedup.Token, time.Duration) error {
	s.called("lease")
	if s.lease != nil {
		return s.lease()
	}
	return nil
}

func (s *tables) Leave(ctx context.Context, _ dedup.Token) error {
	s.called("leave")
	if s.leave != nil {
		return s.leave()
	}
	return ctx.Err()
}

func (s *tables) Ages(context.Context) ([]string, error) {
	s.called("ages")
	return s.scopes, nil
}

func (s *tables) Scope(ctx context.Context, name *string, events, claims func(int64)) error {
	s.called("scope " + *name)
	if s.scope == nil {
		return nil
	}
	if err := s.scope(ctx, *name, events, claims); err != nil {
		return fmt.Errorf("scope %q: %w", *name, err)
	}
	return nil
}

func (s *tables) Starts(context.Context) (n int64, more bool, err error) {
	s.called("starts")
	if len(s.starts) == 0 {
		return 0, false, nil
	}
	n, s.starts = s.starts[0], s.starts[1:]
	return n, true, nil
}

func (s *tables) Silent(context.Context, []string) ([]string, error) {
	s.called("silent")
	return s.silent, nil
}

func (s *tables) Stuck(context.Context) (int64, error) {
	s.called("stuck")
	if s.stuck != nil {
		return s.stuck()
	}
	return 0, nil
}

func (s *tables) TooSlow(err error) bool { return errors.Is(err, errSlow) }

// newLoop returns a loop over s with the default configuration, apart from changes.
func (s *tables) newLoop(changes ...func(*Config)) *Loop[string] {
	cfg := Config{Logger: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
	for _, change := range changes {
		change(&cfg)
	}
	cfg.SetDefaults()
	return New(s, &cfg)
}

// lines returns the log.
func (s *tables) lines() []string {
	return strings.Split(strings.TrimSuffix(s.log.String(), "\n"), "\n")
}
