package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// ErrRunTwice means that Run was called before. A Runner runs once.
var ErrRunTwice = errors.New("runner was run before")

// Runner is a member of a consumer group. Create a Runner with [New] and call Run once. Safe for
// concurrent use.
type Runner struct {
	cfg    settings
	log    *slog.Logger
	group  *runner.Group
	gaps   []observe.GapObserver
	retry  *runner.Retrier
	stores *runner.StoreStart
	own    *ownProducer // nil if Config has a Producer
	topics *runner.TopicList
	ran    atomic.Bool
	ended  atomic.Bool

	// Of Run.
	plain   *kgo.Client // publishes, commits and administrates
	admin   admin
	offsets offsets

	mu      sync.Mutex
	current *member // nil while there is none
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
	r.topics = runner.NewTopicList(group.Topics(), s.Topics...)
	commands := s.commands()
	r.retry = runner.NewRetrier(s.Config, "franz-go", classify, func(err error) error {
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
//   - [runner.ErrFenced] and [runner.ErrUnauthorized].
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
	r.disconnect()
	abandoned, unsafe := r.group.AtStop()
	if err = errors.Join(err, closed, abandoned, unsafe); err != nil {
		r.log.Error("consumer ends", "error", r.cfg.Text(err))
		return fmt.Errorf("consumer %s: %w", r.cfg.Group, err)
	}
	r.log.Info("consumer has stopped")
	return nil
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
	r.plain, r.admin, r.offsets = cl, admin{cl}, offsets{cl}
	if r.own != nil {
		p, err := NewProducer(cl)
		if err != nil {
			return err
		}
		r.own.set(p)
	}
	return nil
}

func (r *Runner) disconnect() {
	if r.plain != nil {
		r.plain.Close()
	}
}

// serve checks the stores and the topics, and is a member of the group until ctx ends or an error is
// fatal. After leaving the group by itself the member joins again.
func (r *Runner) serve(ctx context.Context) error {
	if err := r.stores.Check(ctx); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	r.group.Hooks.Oldest = r.oldest
	r.group.Hooks.Ends = ends{r.offsets, r.claim}
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
			wait = func(ctx context.Context) error { return runner.Pause(ctx, awayFor) }
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

const (
	// shortSession is the shortest membership after which the backoff begins anew.
	shortSession = 30 * time.Second
	// awayFor is how long a member that left for a stall stays away. The other members must have
	// noticed at the next heartbeat, and have joined.
	awayFor = 3*heartbeatInterval + time.Second
)

// once is one membership.
func (r *Runner) once(ctx context.Context) error {
	topics, err := r.watching().Subscription(ctx, false)
	if err != nil {
		r.retry.Begin(err)
		return &comeBack{err}
	}
	m := newMember(ctx, r)
	if err := m.join(topics); err != nil {
		return err
	}
	r.mu.Lock()
	r.current = m
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.current = nil
	}()
	return m.run()
}

// claim returns the claim of a partition, or nil.
func (r *Runner) claim(p partition) *claim {
	r.mu.Lock()
	m := r.current
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.claim(p)
}

// oldest returns the first offset in the log.
func (r *Runner) oldest(topic string, id int32) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.EndsWait)
	defer cancel()
	all, err := r.offsets.Oldest(ctx, map[string][]int32{topic: {id}})
	return all[partition{Topic: topic, Partition: id}], err
}

// comeBack means that this member leaves the group by itself and will join again.
type comeBack struct{ why error }

// Error names the reason.
func (e *comeBack) Error() string { return "leaving the group to come back: " + e.why.Error() }

// Unwrap returns the reason.
func (e *comeBack) Unwrap() error { return e.why }

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
