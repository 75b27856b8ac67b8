package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer/internal/conns"
)

// Consumer is a member of a consumer group. Create it with [New] and run it once. All methods may be called from several
// goroutines.
type Consumer struct {
	cfg     Config
	sarama  *sarama.Config
	log     *slog.Logger
	handler *GroupHandler
	own     *ownProducer // nil if Config has one
	ran     atomic.Bool
	ended   atomic.Bool
	served  atomic.Bool // a session has begun
	trouble trouble
	topics  *topicList
}

// New checks all wiring and returns every mistake, joined, those of the handlers' registration with file and line. It uses no
// network. A store that forgets with the process is refused unless it was told to (rule 31).
func New(cfg Config, r *idem.Router) (*Consumer, error) {
	cfg = cfg.withDefaults()
	c := &Consumer{log: cfg.Logger, trouble: trouble{log: cfg.Logger, text: cfg.errorText}}
	problems := cfg.validate(true)
	sc, err := DefaultSaramaConfig(cfg)
	problems = append(problems, err)
	c.sarama = sc
	if cfg.Producer == nil {
		c.own = newOwnProducer(cfg.Brokers, sc)
		c.own.explain = cfg.setupError
		cfg.Producer = c.own
	}
	c.cfg = cfg
	c.handler, err = newGroupHandler(cfg, r)
	if err := errors.Join(append(problems, err)...); err != nil {
		if c.handler != nil {
			_ = c.handler.Close() // nothing ran
		}
		return nil, err
	}
	c.handler.ownsContext = true
	c.topics = newTopicList(c.handler, cfg.Topics)
	return c, nil
}

// Run joins the group and handles events until ctx ends. Then it begins nothing new, lets running handlers finish within
// the grace, commits, leaves the group and returns nil; or an error that matches [idem.ErrAbandoned] if handlers were left
// behind, since the process had better end then (rule 56). If the brokers did not accept the offsets of handled events, the
// error matches [ErrNotCommitted]: these events are delivered again.
//
// A stop takes as long as the running handlers, at most [Config].Grace plus 20 s if neither brokers nor stores answer. While the member joins the group,
// nothing runs, and its connections are closed at once. During a cooperative rebalance, the offsets are committed on a
// connection of their own.
//
// Brokers and stores that are down, at start too, are waited for without end, with one log line when they go and one when
// they are back. Run returns early only with an error that no waiting can mend. At the start that is a [*TopicError], a
// [*dedup.SetupError] of a store that lacks tables or rights, or an unsafe store: what is missing is looked for again for
// 3 s, and the error names the command that mends it. A store that loses them later is waited for. The other such errors are
// what a store has on record ([dedup.ErrIdentityChanged], [dedup.ErrOtherScope]), a [*GapError], an [*OffsetsLostError],
// [ErrFenced], [ErrUnauthorized], [ErrStalled] if that is the policy, or too many handlers that hang ([idem.ErrAbandoned]).
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return ErrRunTwice
	}
	defer c.ended.Store(true)
	c.log.Info("consumer starts", describe(c.sarama, c.cfg)...)
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(idem.ErrStopping)
	defer context.AfterFunc(ctx, func() { stop(errors.Join(idem.ErrStopping, context.Cause(ctx))) })()

	c.handler.stopping = func() bool { return run.Err() != nil }
	err := c.serve(run)
	if run.Err() != nil && errors.Is(err, idem.ErrStopping) {
		err = nil
	}
	if c.own != nil {
		c.own.close()
	}
	err = errors.Join(err, c.handler.Close(), c.handler.leftAtEnd(), c.handler.notCommitted())
	if err != nil {
		c.log.Error("consumer ends", "error", c.cfg.errorText(err))
		return fmt.Errorf("consumer %s: %w", c.cfg.Group, err)
	}
	c.log.Info("consumer has stopped")
	return nil
}

// leftAtEnd returns what was left behind by the claims of the last session.
func (h *GroupHandler) leftAtEnd() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.abandoned
}

// serve checks the stores and is a member of the group, again after it left for a reason of its own, until ctx ends or an
// error is fatal.
func (c *Consumer) serve(ctx context.Context) error {
	if err := c.checkStores(ctx); err != nil {
		return err
	}
	for first := true; ; first = false {
		if err := c.between(ctx, c.membership(ctx, first)); err != nil {
			return err
		}
	}
}

// membership connects, checks and consumes, and does so again after what may pass.
func (c *Consumer) membership(ctx context.Context, first bool) error {
	client, links, err := c.connect(ctx, first)
	if err != nil {
		return err
	}
	defer client.Close() // a second close says so, which is of no interest
	defer links.Cut()    // before it, or what waits for an answer would hold it up
	joining := context.AfterFunc(ctx, links.Cut)
	defer joining()
	if c.own != nil {
		c.own.warm(ctx) // failing is no harm: it is tried again with the first dead letter
	}
	if first {
		if err := c.register(ctx, client); err != nil {
			return err
		}
	}
	c.handler.oldest = func(topic string, partition int32) (int64, error) {
		return client.GetOffset(topic, partition, sarama.OffsetOldest)
	}
	c.handler.prepare = c.preparing(client)
	c.handler.direct = newDirectCommits(c.cfg.Group, client)
	ends := newEnds(client)
	defer ends.close()
	c.handler.ends = ends
	group, err := sarama.NewConsumerGroupFromClient(c.cfg.Group, client)
	if err != nil {
		return err
	}
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { c.drainErrors(group) })
	joining() // from here on the watchdog cuts
	consumed := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() { c.watchdog(ctx, links, consumed) })
	looking, stop := context.WithCancel(ctx)
	owned.Go(func() { c.awaitGone(looking, client) })
	owned.Go(func() { c.awaitSilence(looking, client) })
	defer stop()
	err = c.consume(ctx, group, client)
	close(consumed)
	watched.Wait()
	c.leave(group, client, links, errors.Is(err, ErrStalled))
	links.Cut() // ends what is under way before it is waited for
	return err
}

// preparing is what is done at the start of each session, before its first claims.
func (c *Consumer) preparing(client sarama.Client) func(sarama.ConsumerGroupSession) error {
	guard := &gapGuard{h: c.handler, client: client}
	return func(sess sarama.ConsumerGroupSession) error {
		if err := guard.check(sess); err != nil {
			return err
		}
		if err := c.fromTheBeginning(client, sess); err != nil {
			return err
		}
		c.served.Store(true)
		c.trouble.over()
		return nil
	}
}

// connect returns a client that has seen its topics, and its connections. Topics that are missing end Run at its start
// only.
func (c *Consumer) connect(ctx context.Context, first bool) (sarama.Client, *conns.Conns, error) {
	var back backoff
	for {
		links := conns.New(c.sarama)
		client, err := c.connectOnce(ctx, links, first)
		if err == nil {
			c.trouble.over()
			return client, links, nil
		}
		var topics *TopicError
		if errors.As(err, &topics) {
			return nil, nil, err
		}
		if err := c.patient(ctx, &back, err); err != nil {
			return nil, nil, err
		}
	}
}

// connectOnce is one try. The end of ctx cuts its connections, as sarama's calls take no context.
func (c *Consumer) connectOnce(ctx context.Context, links *conns.Conns, first bool) (sarama.Client, error) {
	defer context.AfterFunc(ctx, links.Cut)()
	client, err := sarama.NewClient(c.cfg.Brokers, links.Config(c.sarama))
	if err != nil {
		return nil, err
	}
	if first {
		err = c.prepareTopics(ctx, client)
	}
	if err == nil {
		_, err = c.look(client)
	}
	if err != nil {
		links.Cut()
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// patient waits before the next try, unless err is fatal or ctx has ended.
func (c *Consumer) patient(ctx context.Context, back *backoff, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.fatal(err); err != nil {
		return err
	}
	c.trouble.begin(c.cfg.explain(err))
	return back.wait(ctx)
}

// fatal returns the error to end Run with, else nil. Rights that are missing end a start. Those that are withdrawn later are
// waited for, as other things are that go missing then.
func (c *Consumer) fatal(err error) error {
	end := fatal(err)
	refused := isAny(err, ErrUnauthorized, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed)
	login := isAny(err, sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState)
	if end == nil || refused && !login && c.served.Load() {
		return nil
	}
	return c.cfg.explain(end)
}

// shortSession is how long a session must last for what ended it to be news, and no repetition.
const shortSession = 30 * time.Second

// consume joins again and again: Consume returns at every rebalance of an eager group, and for many other reasons (K-21).
func (c *Consumer) consume(ctx context.Context, group sarama.ConsumerGroup, client sarama.Client) error {
	var back backoff
	troubled := false
	for {
		began := time.Now()
		topics, err := c.subscription(client, troubled)
		if err == nil {
			err = group.Consume(ctx, topics, c.handler)
		}
		troubled = err != nil
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cause, ending := c.handler.cause(), c.handler.takeEnding()
		troubled = troubled || errors.Is(cause, sarama.ErrTopicAuthorizationFailed)
		if end := cmp.Or(c.handler.Err(), c.fatal(cause), c.fatal(err)); end != nil {
			return end
		}
		switch {
		case errors.Is(ending, errTopicBack):
			continue
		case ending != nil:
			return &comeBack{why: ending}
		}
		if time.Since(began) > shortSession {
			back = backoff{}
		}
		if err == nil && isAny(cause, sarama.ErrRebalanceInProgress, sarama.ErrSessionPartitionCountChanged) {
			continue // the others wait for us
		}
		if err == nil {
			err = cause
		}
		if err := c.patient(ctx, &back, err); err != nil {
			return err
		}
	}
}

func (h *GroupHandler) cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastCause
}

// drainErrors reads what sarama tells beside everything else. It ends when the group is closed.
func (c *Consumer) drainErrors(group sarama.ConsumerGroup) {
	for err := range group.Errors() {
		c.handler.NoteError(err)
		c.trouble.detail(err)
		if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			c.topics.suspect()
		}
	}
}
