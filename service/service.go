// Package service runs the parts of a process together and stops them in order: consumers before the
// relay that publishes their events, and connections last.
//
//	err := service.Run(ctx, service.Config{},
//		service.Part{Name: "database", Close: func() error { pool.Close(); return nil }},
//		service.Part{Name: "producer", Close: producer.Close},
//		service.Part{Name: "relay", Run: relay.Run},
//		service.Part{Name: "reaper", Run: reaper.Run},
//		service.Part{Name: "consumer", Run: worker.Run},
//	)
//
// List a part after all parts that it needs, as you would write defer statements.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// Part is a part of a process: something that runs, something that is closed at the end, or both.
type Part struct {
	// Name names the part in errors and logs. Required, and different for each part.
	Name string
	// Run works until its context ends. A part whose Run returns earlier, with or without an error,
	// stops all parts. Nil: the part does not run.
	Run func(context.Context) error
	// Close is called once Run has returned, or Config.Wait after its context has ended. Nil: nothing
	// is to be closed.
	Close func() error
}

// Config configures [Run]. The zero value is ready.
type Config struct {
	// Wait is how long Run waits for a part after the end of its context, and for its Close. Default:
	// 60 s, twice the Grace of a consumer. A part that takes longer is named in the error, and the
	// next part is stopped.
	Wait time.Duration
	// Logger gets a line for each part that stops. Default: [slog.Default].
	Logger *slog.Logger
}

// DefaultWait is the default of [Config].Wait.
const DefaultWait = 60 * time.Second

// Run starts the parts in their order, all at once. When ctx ends, or when a part returns, Run stops
// them in the reverse order: Run ends the context of the last part, waits until the part has returned,
// closes it, and goes on with the part before. The context of a part carries the values of ctx.
//
// Run returns nil if ctx ended and each part then returned nil or its context's error. Otherwise the
// error has those of all parts, each with the name of the part; [errors.Is] finds each. A part that
// returned nil before ctx ended is an error that matches [ErrEnded]. After an error that matches
// [ErrStuck] a goroutine of the named part still runs: end the process.
//
// A panic of a part is not recovered, and ends the process.
func Run(ctx context.Context, cfg Config, parts ...Part) error {
	if err := check(cfg, parts); err != nil {
		return err
	}
	if cfg.Wait == 0 {
		cfg.Wait = DefaultWait
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	first := make(chan struct{}, len(parts)) // has room for each part
	running := make([]*running, len(parts))
	for i, p := range parts {
		running[i] = start(ctx, p, first)
	}
	select {
	case <-ctx.Done():
	case <-first:
	}
	var errs []error
	for _, r := range slices.Backward(running) {
		errs = append(errs, r.stop(ctx, cfg))
	}
	return errors.Join(errs...)
}

var (
	// ErrEnded means that a part returned without an error before it was to stop.
	ErrEnded = errors.New("ended too early")
	// ErrStuck means that a part did not return, or was not closed, within Config.Wait.
	ErrStuck = errors.New("did not end in time")
)

// check finds the mistakes of a caller.
func check(cfg Config, parts []Part) error {
	var problems []error
	if cfg.Wait < 0 {
		problems = append(problems, fmt.Errorf("service: Config.Wait %s is negative", cfg.Wait))
	}
	seen := make(map[string]bool)
	runs := false
	for i, p := range parts {
		switch {
		case p.Name == "":
			problems = append(problems, fmt.Errorf("service: part %d has no name", i))
		case seen[p.Name]:
			problems = append(problems, fmt.Errorf("service: two parts have the name %q", p.Name))
		case p.Run == nil && p.Close == nil:
			problems = append(problems, fmt.Errorf("service: part %q has neither Run nor Close", p.Name))
		}
		seen[p.Name], runs = true, runs || p.Run != nil
	}
	if !runs {
		problems = append(problems, errors.New("service: no part has Run"))
	}
	return errors.Join(problems...)
}

// running is a part that was started.
type running struct {
	Part

	cancel context.CancelFunc
	ended  chan end // gets the end of Run; nil if the part does not run
}

// end is how Run of a part returned. early is true if no context had ended before.
type end struct {
	err   error
	early bool
}

// start starts a part. The end of its Run is told to first.
func start(ctx context.Context, p Part, first chan<- struct{}) *running {
	r := &running{Part: p, cancel: func() {}}
	if p.Run == nil {
		return r
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel, r.ended = cancel, make(chan end, 1)
	go func() {
		err := p.Run(own)
		r.ended <- end{err, own.Err() == nil && ctx.Err() == nil}
		first <- struct{}{}
	}()
	return r
}

// stop stops a part and closes it.
func (r *running) stop(ctx context.Context, cfg Config) error {
	began := time.Now()
	err := r.await(cfg.Wait)
	if r.Close != nil {
		closed := make(chan error, 1)
		go func() { closed <- r.Close() }()
		timer := time.NewTimer(cfg.Wait)
		defer timer.Stop()
		select {
		case closing := <-closed:
			err = errors.Join(err, r.named(closing, "close"))
		case <-timer.C:
			err = errors.Join(err, r.stuck("close", cfg.Wait))
		}
	}
	took := slog.Duration("took", time.Since(began).Round(time.Millisecond))
	if err != nil {
		cfg.Logger.ErrorContext(ctx, "part stopped", "part", r.Name, took, "error", idem.ErrorText(err))
		return err
	}
	cfg.Logger.InfoContext(ctx, "part stopped", "part", r.Name, took)
	return nil
}

// await ends the context of a part and waits for its Run.
func (r *running) await(limit time.Duration) error {
	if r.ended == nil {
		return nil
	}
	select {
	case e := <-r.ended: // before its context has ended
		r.cancel()
		if e.err == nil && e.early {
			e.err = ErrEnded
		}
		return r.named(e.err, "run")
	default:
	}
	r.cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case e := <-r.ended:
		if canceled(e.err) {
			return nil
		}
		return r.named(e.err, "run")
	case <-timer.C:
		return r.stuck("run", limit)
	}
}

// canceled reports whether err has nothing but the error of a context that was canceled. An error
// beside it, as in errors.Join(ctx.Err(), flushFailed), is one to report.
func canceled(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !canceled(e) })
	}
	if inner := errors.Unwrap(err); inner != nil {
		return canceled(inner)
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, idem.ErrStopping)
}

func (r *running) stuck(call string, limit time.Duration) error {
	return fmt.Errorf("%s: %s: %w: %s", r.Name, call, ErrStuck, limit)
}

func (r *running) named(err error, call string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", r.Name, call, err)
}
