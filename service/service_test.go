package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/service"
)

// story keeps what happened, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// part is a part that takes time to stop.
func (s *story) part(name string, takes time.Duration) service.Part {
	return service.Part{
		Name: name,
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(takes)
			s.add(name + " ended")
			return ctx.Err()
		},
		Close: func() error {
			s.add(name + " closed")
			return nil
		},
	}
}

func quiet() service.Config { return service.Config{Logger: slog.New(slog.DiscardHandler)} }

// Parts stop in the reverse order, each after the one behind has ended and was closed.
func TestRun_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := service.Run(ctx, quiet(),
			service.Part{Name: "database", Close: func() error { s.add("database closed"); return nil }},
			s.part("relay", time.Second), s.part("consumer", 5*time.Second))
		require.NoError(t, err)
		require.Equal(t, []string{"consumer ended", "consumer closed", "relay ended", "relay closed", "database closed"}, s.lines)
		require.Equal(t, time.Minute+6*time.Second, time.Since(began))
	})
}

// The end of one part stops all others, and each error is named.
func TestRun_OnePartEnds(t *testing.T) {
	broken, late := errors.New("no broker"), errors.New("offsets are not committed")
	for name, c := range map[string]struct {
		err   error
		wants error
	}{
		"by an error":      {broken, broken},
		"without an error": {nil, service.ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s story
				consumer := s.part("consumer", time.Second)
				consumer.Close = func() error { return late }
				err := service.Run(t.Context(), quiet(), s.part("database", 0),
					service.Part{Name: "relay", Run: func(context.Context) error {
						time.Sleep(time.Minute)
						return c.err
					}}, consumer)
				require.ErrorIs(t, err, c.wants)
				require.ErrorContains(t, err, "relay: run: ")
				require.ErrorIs(t, err, late)
				require.ErrorContains(t, err, "consumer: close: ")
				require.Equal(t, []string{"consumer ended", "database ended", "database closed"}, s.lines)
			})
		})
	}
}

// A part that ended by itself is an error, also if a signal comes while the parts behind it stop.
func TestRun_EndedBeforeTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		relay := service.Part{Name: "relay", Run: func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		}}
		cfg := quiet()
		cfg.Wait = time.Hour
		err := service.Run(ctx, cfg, relay, s.part("consumer", 10*time.Minute))
		require.ErrorIs(t, err, service.ErrEnded)
	})
}

// The error of a context is dropped, and nothing that stands beside it.
func TestRun_ErrorsBesideTheEndOfTheContext(t *testing.T) {
	lost := errors.New("spans are lost")
	for name, c := range map[string]struct {
		of    func(ctx context.Context) error
		wants error
	}{
		"the context's error": {func(ctx context.Context) error { return fmt.Errorf("relay: %w", ctx.Err()) }, nil},
		"a stop":              {func(ctx context.Context) error { return errors.Join(idem.ErrStopping, ctx.Err()) }, nil},
		"joined":              {func(ctx context.Context) error { return errors.Join(ctx.Err(), lost) }, lost},
		"both are wrapped":    {func(ctx context.Context) error { return fmt.Errorf("%w: %w", lost, ctx.Err()) }, lost},
		"wrapped and joined": {
			func(ctx context.Context) error { return fmt.Errorf("relay: %w", errors.Join(ctx.Err(), lost)) }, lost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := service.Run(ctx, quiet(), service.Part{Name: "relay", Run: func(ctx context.Context) error {
					<-ctx.Done()
					return c.of(ctx)
				}})
				if c.wants == nil {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.wants)
				require.ErrorContains(t, err, "relay: run: ")
			})
		})
	}
}

// A part that does not stop holds nothing up for longer than Wait.
func TestRun_Stuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		over := make(chan struct{})
		defer close(over)
		hang := func() error { <-over; return nil }
		cfg := quiet()
		cfg.Wait = 10 * time.Second
		began := time.Now()
		err := service.Run(ctx, cfg, s.part("database", 0),
			service.Part{Name: "producer", Close: hang},
			service.Part{Name: "consumer", Run: func(context.Context) error { return hang() },
				Close: func() error { s.add("consumer closed"); return nil }})
		require.ErrorIs(t, err, service.ErrStuck)
		require.ErrorContains(t, err, "consumer: run: did not end in time: 10s")
		require.ErrorContains(t, err, "producer: close: did not end in time: 10s")
		require.Equal(t, []string{"consumer closed", "database ended", "database closed"}, s.lines)
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

func TestRun_Mistakes(t *testing.T) {
	run := func(context.Context) error { panic("a part was started") }
	for want, parts := range map[string][]service.Part{
		"part 1 has no name":                 {{Name: "a", Run: run}, {Run: run}},
		`two parts have the name "a"`:        {{Name: "a", Run: run}, {Name: "a", Run: run}},
		`part "b" has neither Run nor Close`: {{Name: "a", Run: run}, {Name: "b"}},
		"no part has Run":                    nil,
		"Config.Wait -1s is negative":        {{Name: "a", Run: run}},
	} {
		cfg := quiet()
		if want == "Config.Wait -1s is negative" {
			cfg.Wait = -time.Second
		}
		require.ErrorContains(t, service.Run(t.Context(), cfg, parts...), want)
	}
}
