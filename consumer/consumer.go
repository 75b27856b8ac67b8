package consumer

import (
	"context"
	"errors"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// Consumer is a member of a consumer group. Create a Consumer with [New] and call Run once. Safe
// for concurrent use.
type Consumer struct{ membership }

// New checks cfg and the router and returns every mistake, joined, those of handler registrations
// with file and line. New uses no network. A store that loses all records with the process is
// refused, unless the store was created for that.
func New(cfg Config, r *idem.Router) (*Consumer, error) {
	cfg = cfg.withDefaults()
	problems := cfg.validate(true)
	sc, err := DefaultSaramaConfig(cfg)
	problems = append(problems, err)
	commands := cfg.commands()
	c := new(Consumer)
	if cfg.Producer == nil {
		c.own = newOwnProducer(cfg.Brokers, sc)
		c.own.explain = func(err error, msgs []*idem.Message) error {
			return commands.ExplainProduce(err, classOf(err), msgs)
		}
		cfg.Producer = c.own
	}
	c.cfg, c.sarama, c.log = cfg, sc, cfg.Logger
	c.handler, err = newGroupHandler(cfg, r)
	if err := errors.Join(append(problems, err)...); err != nil {
		if c.handler != nil {
			_ = c.handler.Close() // nothing ran
		}
		return nil, err
	}
	c.handler.g.Hooks.OwnsContext = true
	c.life = runner.NewLife(runner.LifeConfig{
		Config: cfg.neutral(), Client: "sarama", Commands: commands, Classify: classesWith(cfg.SASL),
		OwnProducer: c.own != nil, Heartbeat: sc.Consumer.Group.Heartbeat.Interval,
	}, c.handler.g)
	return c, nil
}

// Run joins the group and handles events until ctx ends. Then Run starts no new handler, lets
// running handlers finish within the grace, commits, leaves the group and returns nil. Two errors
// may follow a stop:
//   - [idem.ErrAbandoned]: handlers were left behind. End the process.
//   - [ErrNotCommitted]: the brokers did not accept the offsets of handled events. These events
//     are delivered again.
//
// A stop lasts as long as the running handlers, and at most [Config].Grace plus 20 s if neither
// brokers nor stores answer. While the member joins the group no handler runs, so the connections
// are closed at once. During a cooperative rebalance the offsets are committed on a separate
// connection.
//
// Run waits without limit for brokers and stores that are down, also at the start. The log has one
// line for the begin of an outage and one for the end. Run returns early only for permanent errors:
//   - [*TopicError]: a topic is missing at the start.
//   - [*dedup.SetupError]: a store lacks tables or rights at the start. Run waits for a store
//     that loses tables or rights later.
//   - The error of a store with unsafe settings.
//   - [dedup.ErrIdentityChanged] and [dedup.ErrOtherScope]: the records of a store do not fit.
//   - [*GapError] and [*OffsetsLostError]: see [Config].OnGap and OnLostOffsets.
//   - [ErrFenced] and [ErrUnauthorized].
//   - [ErrStalled], with the policy [ExitOnStall].
//   - [idem.ErrAbandoned]: too many handlers hang.
//
// Missing topics, tables and rights are looked for again for [Config].SetupWait, and the error
// names the command that creates or grants them.
func (c *Consumer) Run(ctx context.Context) error {
	return c.life.Run(ctx, describe(c.sarama, c.cfg), c.serve, nil)
}
