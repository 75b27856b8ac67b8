package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// ErrRunTwice means that Run was called before. A Runner runs once.
var ErrRunTwice = errors.New("runner was run before")

// Runner is a member of a consumer group. Create a Runner with [New] and call Run once. Safe for
// concurrent use.
type Runner struct {
	cfg       settings
	log       *slog.Logger
	group     *runner.Group
	retry     *runner.Retrier
	stores    *runner.StoreStart
	own       *Producer // nil if Config has a Producer
	topics    *runner.TopicList
	offsets   offsets
	transport *kafka.Transport // of all requests, except those of the group
	ran       atomic.Bool
	ended     atomic.Bool
}

// New checks cfg and the router and returns every mistake, joined, those of handler registrations
// with file and line. New uses no network. A store that loses all records with the process is
// refused, unless the store was created for that.
func New(cfg Config, router *idem.Router) (*Runner, error) {
	s := newSettings(cfg)
	problems := s.validate()
	r := &Runner{log: s.Logger, transport: s.transport()}
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
	group.Hooks.Oldest = r.oldest
	group.Hooks.Ends = ends{r.offsets}
	r.group = group
	r.topics = runner.NewTopicList(group.Topics(), s.Topics...)
	commands := s.commands()
	r.retry = runner.NewRetrier(s.Config, "kafka-go", classify, func(err error) error {
		return commands.ExplainGroup(err, classify(err))
	})
	r.stores = runner.NewStoreStart(s.Config, group.Processor())
	return r, nil
}

// Run joins the group and handles events until ctx ends. Then Run starts no new handler, lets
// running handlers finish within the grace, commits, leaves the group and returns nil. Two errors
// may follow a stop:
//   - [idem.ErrAbandoned]: handlers were left behind. End the process.
//   - [runner.ErrNotCommitted]: the brokers did not accept the offsets of handled events. These
//     events are delivered again.
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
	if r.ran.Swap(true) {
		return ErrRunTwice
	}
	defer r.ended.Store(true)
	r.log.Info("consumer starts", r.cfg.describe()...)
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(idem.ErrStopping)
	defer context.AfterFunc(ctx, func() {
		stop(errors.Join(idem.ErrStopping, context.Cause(ctx)))
	})()
	r.group.Hooks.Stopping = func() bool { return run.Err() != nil }
	err := r.serve(run)
	if run.Err() != nil && errors.Is(err, idem.ErrStopping) {
		err = nil
	}
	closed := r.group.Close()
	if r.own != nil {
		closed = errors.Join(closed, r.own.Close())
	}
	r.transport.CloseIdleConnections()
	abandoned, unsafe := r.group.AtStop()
	if err = errors.Join(err, closed, abandoned, unsafe); err != nil {
		r.log.Error("consumer ends", "error", r.cfg.Text(err))
		return fmt.Errorf("consumer %s: %w", r.cfg.Group, err)
	}
	r.log.Info("consumer has stopped")
	return nil
}

// shortSession is the shortest membership after which the backoff begins anew.
const shortSession = 30 * time.Second

// serve checks the stores and the topics, and is a member of the group until ctx ends or an error is
// fatal. After leaving the group by itself the member joins again.
func (r *Runner) serve(ctx context.Context) error {
	if err := r.stores.Check(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var back runner.Backoff
	for {
		began := time.Now()
		err := r.once(ctx)
		var again *comeBack
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.group.Err() != nil:
			return r.group.Err()
		case !errors.As(err, &again):
			return err
		}
		if errors.Is(err, runner.ErrTopicBack) {
			continue
		}
		if time.Since(began) > shortSession {
			back = runner.Backoff{}
		}
		wait := back.Wait
		if errors.Is(err, runner.ErrStalled) {
			// The other members must have noticed at the next heartbeat, and have joined.
			wait = func(ctx context.Context) error {
				return runner.Pause(ctx, 3*r.cfg.client.Heartbeat+time.Second)
			}
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

// once is one membership.
func (r *Runner) once(ctx context.Context) error {
	topics, err := r.watching().Subscription(ctx, false)
	if err != nil {
		r.retry.Begin(err)
		return &comeBack{err}
	}
	m, err := r.join(ctx, topics)
	if err != nil {
		return err
	}
	return m.run()
}

// prepare makes sure, before the group is joined, that the topics may be used, and that the stores
// know this consumer.
func (r *Runner) prepare(ctx context.Context) error {
	var back runner.Backoff
	for {
		err := r.tryPrepare(ctx)
		if err == nil {
			r.retry.Over()
			return runner.RegisterGroup(ctx, r.cfg.Config, r.stores, r.retry, r.offsets)
		}
		var missing *runner.TopicError
		if errors.As(err, &missing) {
			return err
		}
		if err := r.retry.Wait(ctx, &back, err); err != nil {
			return err
		}
	}
}

func (r *Runner) tryPrepare(ctx context.Context) error {
	setup := &runner.TopicSetup{
		Config: r.cfg.Config, Admin: r.offsets, Commands: r.cfg.commands(), Classify: classify,
		Delays: r.group.Processor().RetryDelays(), OwnProducer: r.own != nil, Topics: r.topics,
	}
	if err := setup.Ensure(ctx); err != nil {
		return err
	}
	_, err := r.watching().Look(ctx)
	return err
}

// watching returns the watch over the topics of the subscription.
func (r *Runner) watching() *runner.TopicWatch {
	return runner.NewTopicWatch(r.cfg.Config, r.offsets, r.cfg.commands(), r.topics)
}

// deleted reports whether a topic does not exist according to the brokers.
func (r *Runner) deleted(ctx context.Context, topic string) bool {
	found, err := r.offsets.Topics(ctx, []string{topic})
	return err == nil && len(found) == 1 && !found[0].Exists && !found[0].Denied && found[0].Err == nil
}

// oldest returns the first offset in the log.
func (r *Runner) oldest(topic string, id int32) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.EndsWait)
	defer cancel()
	all, err := r.offsets.Oldest(ctx, map[string][]int32{topic: {id}})
	return all[partition{Topic: topic, Partition: id}], err
}
