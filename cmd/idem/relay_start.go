package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/internal/setupwait"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/runner"
)

var errNoBroker = errors.New("the relay waits for an answer of Kafka")

// relayStart prints that a relay has started, when its set-up is done. It is an observer of the
// relay, which calls it in the goroutine of Run, and the readiness of the command.
type relayStart struct {
	app    *app
	outbox string // its name

	mu    sync.Mutex
	relay *outbox.Relay
	why   error // why there is no relay yet

	stop    context.CancelFunc // of Run
	started bool
	failed  error // of the line
}

var (
	_ outbox.RoundObserver   = (*relayStart)(nil)
	_ outbox.BacklogObserver = (*relayStart)(nil)
)

// ready returns nil if the relay works.
func (s *relayStart) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return s.why
	}
	return s.relay.Ready()
}

func (s *relayStart) waits(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = why
}

// awaitProducer connects to Kafka, and tries again for a time. A refused login is an error at once.
func (s *relayStart) awaitProducer(
	ctx context.Context, access consumer.Config, wait time.Duration, log *slog.Logger,
) (*consumer.Producer, error) {
	began := time.Now()
	away := setupwait.Problem{
		First: "Kafka cannot be reached, waiting for it",
		Still: "Kafka still cannot be reached, waiting for it",
		Since: began,
	}
	for {
		producer, err := s.app.openProducer(ctx, access)
		if err == nil {
			if lasted, logged := away.Over(); logged {
				log.InfoContext(ctx, "Kafka can be reached", "after", lasted)
			}
			return producer, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.waits(err)
		refused := errors.Is(err, consumer.ErrUnauthorized) ||
			errors.Is(err, sarama.ErrSASLAuthenticationFailed)
		waited := time.Since(began)
		pause, again := setupwait.Pause(waited, wait)
		if refused || !again {
			return nil, err
		}
		if waited+pause > setupwait.Default {
			away.Log(ctx, log, oneLine(safetext.Line(err)))
		}
		if err := runner.Pause(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// openProducer connects. Errors of the flags were reported before.
func (a *app) openProducer(
	ctx context.Context, access consumer.Config,
) (*consumer.Producer, error) {
	producer, err := consumer.OpenProducerContext(ctx, access)
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(a.brokers, ","), err)
	}
	return producer, nil
}

// run runs the relay. It prints a line when the set-up is done, and one at the end, unless the
// set-up fails. An interrupted set-up has the line of the end alone.
func (s *relayStart) run(ctx context.Context, relay *outbox.Relay, seen *relayCounts) error {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	s.mu.Lock()
	s.relay = relay
	s.mu.Unlock()
	began := time.Now()
	err := relay.Run(ctx)
	if err != nil && !s.started {
		return err
	}
	return errors.Join(err, s.failed, s.print("stopped", seen, time.Since(began)))
}

// ObserveRound implements [outbox.RoundObserver].
func (s *relayStart) ObserveRound(_ context.Context, r outbox.Round) {
	if r.Err == nil {
		s.begins()
	}
}

// ObserveBacklog implements [outbox.BacklogObserver]. A relay reads the backlog after its first
// round without an error.
func (s *relayStart) ObserveBacklog(context.Context, outbox.Backlog) { s.begins() }

func (s *relayStart) begins() {
	if s.started {
		return
	}
	s.started = true
	if s.failed = s.print("started", nil, 0); s.failed != nil {
		s.stop()
	}
}

func (s *relayStart) print(event string, seen *relayCounts, took time.Duration) error {
	a, from, to := s.app, s.outbox, strings.Join(s.app.brokers, ",")
	if a.output == "json" {
		v := map[string]any{"relay": event, "outbox": from, "kafka": to}
		if seen != nil {
			v["seconds"] = took.Seconds()
			v["rows"], v["sent"] = seen.rows.Load(), seen.sent.Load()
			v["failed"], v["parked"] = seen.failed.Load(), seen.parked.Load()
		}
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.stdout, string(text))
		return err
	}
	text := fmt.Sprintf("relay %s: %s to kafka %s", event, from, to)
	if seen != nil {
		text += fmt.Sprintf(
			", %s: %d sent, %d times failed, %d parked", short(took), seen.sent.Load(),
			seen.failed.Load(), seen.parked.Load(),
		)
	}
	_, err := fmt.Fprintln(a.stdout, plain(text))
	return err
}
