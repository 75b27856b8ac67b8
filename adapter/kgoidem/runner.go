package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// ErrRunTwice means that Run was called before. A Runner runs once.
var ErrRunTwice = runner.ErrRunTwice

// Runner is a member of a consumer group. Create a Runner with [New] and call Run once. Safe for
// concurrent use.
type Runner struct {
	cfg   settings
	log   *slog.Logger
	group *runner.Group
	life  *runner.Life
	gaps  []observe.GapObserver
	own   *ownProducer // nil if Config has a Producer

	// Of Run.
	plain   *kgo.Client // publishes, commits and administrates
	offsets offsets
	current atomic.Pointer[member] // for tests; nil while there is none
}

// New checks cfg and the router and returns every mistake, joined, those of handler registrations
// with file and line. New uses no network. A store that loses all records with the process is
// refused, unless the store was created for that.
func New(cfg Config, router *idem.Router) (*Runner, error) {
	s := newSettings(cfg)
	problems := s.validate()
	if err := checkOptions(s.consuming(s.Topics), cfg.Options); err != nil {
		problems = append(problems, err)
	}
	r := &Runner{cfg: s, log: s.Logger}
	if s.Producer == nil {
		r.own = &ownProducer{commands: s.commands()}
		s.Producer = r.own
	}
	group, err := runner.NewGroup(s.Config, router, classify)
	if err := errors.Join(append(problems, err)...); err != nil {
		if group != nil {
			_ = group.Close() // nothing ran
		}
		return nil, err
	}
	for _, o := range s.Observers {
		if gap, ok := o.(observe.GapObserver); ok {
			r.gaps = append(r.gaps, gap)
		}
	}
	r.group = group
	r.life = runner.NewLife(runner.LifeConfig{
		Config: s.Config, Client: "franz-go", Commands: s.commands(),
		Classify:    classifyWith(s.client.SASL),
		OwnProducer: r.own != nil, Heartbeat: heartbeatInterval,
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
//   - [runner.ErrFenced] and [runner.ErrUnauthorized].
//   - [runner.ErrStalled], with the policy [runner.ExitOnStall].
//   - [idem.ErrAbandoned]: too many handlers hang.
func (r *Runner) Run(ctx context.Context) error {
	serve := func(ctx context.Context) error { return r.life.Serve(ctx, client{r}) }
	return r.life.Run(ctx, r.cfg.describe(), serve, r.disconnect)
}

// connect makes the client that publishes, commits and administrates.
func (r *Runner) connect() error {
	// From version 10 on, an offset is committed under the ID of a topic, which the runner does not
	// know.
	versions := kversion.Stable()
	const offsetCommit, byName = 8, 9
	versions.SetMaxKeyVersion(offsetCommit, byName)
	opts := append(r.cfg.plain(), r.cfg.client.Options...)
	cl, err := kgo.NewClient(append(opts, kgo.MaxVersions(versions))...)
	if err != nil {
		return fmt.Errorf("franz-go: %w", err)
	}
	r.plain, r.offsets = cl, offsets{admin{cl}}
	if r.own != nil {
		p, err := NewProducer(cl)
		if err != nil {
			return err
		}
		r.own.set(p)
	}
	return nil
}

func (r *Runner) disconnect() error {
	if r.plain != nil {
		r.plain.Close()
	}
	return nil
}

// client is a [runner.Client] on franz-go.
type client struct{ r *Runner }

// Connect implements [runner.Client].
func (c client) Connect() (runner.Cluster, error) {
	if err := c.r.connect(); err != nil {
		return nil, err
	}
	return c.r.offsets, nil
}

// Supported implements [runner.Client].
func (c client) Supported(ctx context.Context) error { return c.r.checkProtocol(ctx) }

// Member implements [runner.Client].
func (c client) Member(ctx context.Context, topics []string) error {
	m := newMember(ctx, c.r)
	if err := m.join(topics); err != nil {
		return err
	}
	c.r.current.Store(m)
	defer c.r.current.Store(nil)
	return m.run()
}

// ownProducer is the producer of a runner, from the start of Run on.
type ownProducer struct {
	commands runner.Commands
	p        atomic.Pointer[Producer]
}

func (o *ownProducer) set(p *Producer) { o.p.Store(p) }

// Produce implements idem.Producer.
func (o *ownProducer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	p := o.p.Load()
	if p == nil {
		return errors.New("producer is not connected")
	}
	err := p.Produce(ctx, msgs...)
	if err != nil {
		err = o.commands.ExplainProduce(err, classify(err), msgs)
	}
	return err
}
