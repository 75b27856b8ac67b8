package kafkagoidem

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// ErrRunTwice means that Run was called before. A Runner runs once.
var ErrRunTwice = runner.ErrRunTwice

// Runner is a member of a consumer group. Create a Runner with [New] and call Run once. Safe for
// concurrent use.
type Runner struct {
	cfg       settings
	log       *slog.Logger
	group     *runner.Group
	life      *runner.Life
	own       *Producer // nil if Config has a Producer
	offsets   offsets
	transport *kafka.Transport // of all requests, except those of the group

	growthEvery time.Duration // how often new partitions of the topics are looked for
}

// New checks cfg and the router and returns every mistake, joined, those of handler registrations
// with file and line. New uses no network. A store that loses all records with the process is
// refused, unless the store was created for that.
func New(cfg Config, router *idem.Router) (*Runner, error) {
	s := newSettings(cfg)
	problems := s.validate()
	r := &Runner{log: s.Logger, transport: s.transport(), growthEvery: growthEvery}
	if s.Producer == nil {
		r.own = newProducer(s.addr(), r.transport, s.commands())
		s.Producer = r.own
	}
	r.cfg = s
	r.offsets = offsets{admin{
		s: s, addr: s.addr(), cl: &kafka.Client{Addr: s.addr(), Transport: r.transport},
	}}
	group, err := runner.NewGroup(s.Config, router, classify)
	if err := errors.Join(append(problems, err)...); err != nil {
		if group != nil {
			_ = group.Close() // nothing ran
		}
		return nil, err
	}
	r.group = group
	r.life = runner.NewLife(runner.LifeConfig{
		Config: s.Config, Client: "kafka-go", Commands: s.commands(),
		Classify:    classifyWith(s.client.SASL),
		OwnProducer: r.own != nil, Heartbeat: s.client.Heartbeat,
	}, group)
	return r, nil
}

// Run joins the group and handles events until ctx ends. Then Run starts no new handler, lets
// running handlers finish within the grace, commits, leaves the group and returns nil. Two errors
// may follow a stop:
//   - [idem.ErrAbandoned]: handlers were left behind. End the process.
//   - [runner.ErrNotCommitted]: the brokers did not accept the offsets of handled events. These
//     events are delivered again. Or the brokers did not accept where an idle partition begins.
//
// A stop lasts as long as the running handlers, and at most [Config].Grace plus 20 s if neither
// brokers nor stores answer.
//
// Run waits without limit for brokers and stores that are down, also at the start. The log has one
// line for the begin of an outage and one for the end. Run returns early only for permanent errors:
//   - [*runner.TopicError]: a topic is missing at the start.
//   - [*dedup.SetupError]: a store lacks tables or rights at the start.
//   - The error of a store with unsafe settings.
//   - [dedup.ErrIdentityChanged] and [dedup.ErrOtherScope]: the records of a store do not fit.
//   - [*runner.GapError] and [*runner.OffsetsLostError]: see [Config].OnGap and OnLostOffsets.
//   - [runner.ErrUnauthorized].
//   - [runner.ErrStalled], with the policy [runner.ExitOnStall].
//   - [idem.ErrAbandoned]: too many handlers hang.
func (r *Runner) Run(ctx context.Context) error {
	serve := func(ctx context.Context) error { return r.life.Serve(ctx, client{r}) }
	return r.life.Run(ctx, r.cfg.describe(), serve, r.disconnect)
}

func (r *Runner) disconnect() (err error) {
	if r.own != nil {
		err = r.own.Close()
	}
	r.transport.CloseIdleConnections()
	return err
}

// client is a [runner.Client] on kafka-go.
type client struct{ r *Runner }

// Connect implements [runner.Client]. kafka-go connects with the first request.
func (c client) Connect() (runner.Cluster, error) { return c.r.offsets, nil }

// Supported implements [runner.Client].
func (client) Supported(context.Context) error { return nil }

// Member implements [runner.Client].
func (c client) Member(ctx context.Context, topics []string) error {
	m, err := c.r.join(ctx, topics)
	if err != nil {
		return err
	}
	return m.run()
}
