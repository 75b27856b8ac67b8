package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// LifeConfig has the settings of a [Life]. Fields are required unless they have a default.
type LifeConfig struct {
	Config
	// Client names the Kafka client in log lines.
	Client string
	// Commands makes the commands that create missing topics and grant missing rights.
	Commands Commands
	// Classify knows the errors of the client.
	Classify Classify
	// OwnProducer is set if dead letters go to this cluster, see [TopicSetup]. Defaults to false.
	OwnProducer bool
	// Heartbeat is the time between two heartbeats of a member, and so how late a member notices a
	// rebalance.
	Heartbeat time.Duration
}

// Life is the life of a runner on any Kafka client: the start, the memberships, the stop, the
// probes. Create a Life with [NewLife]. Safe for concurrent use.
type Life struct {
	Group  *Group
	Topics *TopicList
	Stores *StoreStart
	Retry  *Retrier

	cfg     LifeConfig
	cluster Cluster // from the start of Serve on
	ran     atomic.Bool
	ended   atomic.Bool
}

// NewLife returns the life of a runner with the handlers of g. It needs the defaults of cfg.
func NewLife(cfg LifeConfig, g *Group) *Life {
	explain := func(err error) error { return cfg.Commands.ExplainGroup(err, cfg.Classify(err)) }
	return &Life{
		Group:  g,
		Topics: NewTopicList(g.Topics(), cfg.Topics...),
		Stores: NewStoreStart(cfg.Config, g.Processor()),
		Retry:  NewRetrier(cfg.Config, cfg.Client, cfg.Classify, explain),
		cfg:    cfg,
	}
}

// Run calls serve until ctx ends, or until serve returns by itself. The context of serve ends with
// ctx, with the cause [idem.ErrStopping]. Then Run closes the group, calls disconnect, and returns
// all errors, or nil after a stop in order. serve returns [idem.ErrStopping] after a stop. settings
// are pairs for the log line at the start. disconnect may be nil. A second call returns
// [ErrRunTwice].
func (l *Life) Run(
	ctx context.Context, settings []any, serve func(context.Context) error, disconnect func() error,
) error {
	if l.ran.Swap(true) {
		return ErrRunTwice
	}
	defer l.ended.Store(true)
	l.cfg.Logger.Info("consumer starts", settings...)
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(idem.ErrStopping)
	defer context.AfterFunc(ctx, func() {
		stop(errors.Join(idem.ErrStopping, context.Cause(ctx)))
	})()
	l.Group.Hooks.Stopping = func() bool { return run.Err() != nil }
	ended := l.watchStores(run)
	err := serve(run)
	ended()
	l.Watching(nil).end()
	if run.Err() != nil && errors.Is(err, idem.ErrStopping) {
		err = nil
	}
	closed := l.Group.Close()
	if disconnect != nil {
		closed = errors.Join(closed, disconnect())
	}
	abandoned, unsafe := l.Group.AtStop()
	if err = errors.Join(err, closed, abandoned, unsafe); err != nil {
		l.cfg.Logger.Error("consumer ends", "error", l.cfg.Text(err))
		return fmt.Errorf("consumer %s: %w", l.cfg.Group, err)
	}
	l.cfg.Logger.Info("consumer has stopped")
	return nil
}

// watchStores looks for changes behind the stores until the caller ends that.
func (l *Life) watchStores(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { l.Stores.watch(ctx) })
	return func() {
		stop()
		watch.Wait()
	}
}

// Ready returns nil if the runner is in the group and works, see [Group.Ready].
func (l *Life) Ready() error { return l.Group.ready(l.Topics.notReady()) }

// Live returns nil as long as waiting may help, see [Group.Live].
func (l *Life) Live() error { return l.Group.Live(l.ended.Load()) }

// Handler serves [Life.Ready] as a readiness probe.
func (l *Life) Handler() http.Handler { return ReadyHandler(l.Ready) }

// LiveHandler serves [Life.Live] as a liveness probe.
func (l *Life) LiveHandler() http.Handler { return LiveHandler(l.Live) }

// Watching returns the watch over the topics of the subscription.
func (l *Life) Watching(admin Admin) *TopicWatch {
	return NewTopicWatch(l.cfg.Config, admin, l.cfg.Commands, l.Topics)
}

// Setup returns the check of the topics at the start.
func (l *Life) Setup(admin Admin) *TopicSetup {
	return &TopicSetup{
		Config: l.cfg.Config, Admin: admin, Commands: l.cfg.Commands, Classify: l.cfg.Classify,
		Delays: l.Group.Processor().RetryDelays(), OwnProducer: l.cfg.OwnProducer, Topics: l.Topics,
	}
}

// Register calls [RegisterGroup].
func (l *Life) Register(ctx context.Context, offsets Offsets) error {
	return RegisterGroup(ctx, l.cfg.Config, l.Stores, l.Retry, offsets)
}

// Watch looks, until ctx ends, for partitions with records that do not arrive, and for topics that
// come and go. It calls leave with a [*ComeBack] if the subscription changes. wait returns when
// all have ended. Call Watch in each membership of [Life.Serve].
func (l *Life) Watch(ctx context.Context, leave func(error)) (wait func()) {
	var owned sync.WaitGroup
	silence := NewSilenceWatch(l.Group, l.cluster)
	owned.Go(func() { silence.Run(ctx) })
	topics := l.Watching(l.cluster)
	owned.Go(func() { topics.Run(ctx, func(cause error) { leave(&ComeBack{cause}) }) })
	owned.Go(func() { topics.suspectDeleted(ctx) })
	return owned.Wait
}

// Places decides where new partitions begin, with the policies for gaps and lost offsets. committed
// has the partitions with a committed offset. Call Places in memberships of [Life.Serve].
func (l *Life) Places(
	ctx context.Context, claims map[string][]int32, committed map[TopicPartition]int64,
) (map[TopicPartition]Place, error) {
	return places(ctx, l.cfg.Config, l.cluster, l.Group.Processor().Stores(), claims, committed)
}

// TopicDeleted reports whether a topic does not exist according to the brokers. Call TopicDeleted
// in memberships of [Life.Serve].
func (l *Life) TopicDeleted(ctx context.Context, topic string) bool {
	found, err := l.cluster.Topics(ctx, []string{topic})
	return err == nil && len(found) == 1 && found[0].deleted()
}

// AwayFor is how long a member that left for a stall stays away. The other members must have
// noticed at the next heartbeat, and have joined. Otherwise the member would get the same partition
// again.
func (l *Life) AwayFor() time.Duration { return 3*l.cfg.Heartbeat + time.Second }
