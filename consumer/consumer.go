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
	trouble trouble
	topics  *topicList
}

// New checks all wiring and returns every mistake, joined, those of the handlers' registration with file and line. It uses no
// network. A ledger that forgets with the process is refused unless it was told to (rule 31).
func New(cfg Config, r *idem.Router) (*Consumer, error) {
	cfg = cfg.withDefaults()
	c := &Consumer{log: cfg.Logger, trouble: trouble{log: cfg.Logger, text: cfg.errorText}}
	problems := cfg.validate(true)
	sc, err := DefaultSaramaConfig(cfg)
	problems = append(problems, err)
	c.sarama = sc
	if cfg.Producer == nil {
		c.own = &ownProducer{brokers: cfg.Brokers, config: sc}
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
// behind, since the process had better end then (rule 56).
//
// Brokers and ledgers that are down, at start too, are waited for without end, with one log line when they go and one when
// they are back. Run returns early only with an error that no waiting can mend: a [*TopicError] or an unsafe ledger at start,
// what a ledger has on record ([dedup.ErrIdentityChanged], [dedup.ErrOtherScope]), a
// [*GapError], an [*OffsetsLostError], [ErrFenced], [ErrUnauthorized], [ErrStalled] if that is the policy, or too many handlers that hang
// ([idem.ErrAbandoned]).
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
	err = errors.Join(err, c.handler.Close(), c.handler.leftAtEnd())
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

// serve checks the ledgers and is a member of the group, again after it left for a reason of its own, until ctx ends or an
// error is fatal.
func (c *Consumer) serve(ctx context.Context) error {
	if err := c.checkLedgers(ctx); err != nil {
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
	client, err := c.connect(ctx, first)
	if err != nil {
		return err
	}
	defer client.Close() // a second close says so, which is of no interest
	if c.own != nil {
		c.own.warm() // failing is no harm: it is tried again with the first letter
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
	group, err := sarama.NewConsumerGroupFromClient(c.cfg.Group, client)
	if err != nil {
		return err
	}
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { c.drainErrors(group) })
	ended := make(chan struct{})
	owned.Go(func() { c.watchdog(ctx, client, ended) })
	defer close(ended)
	looking, stop := context.WithCancel(ctx)
	owned.Go(func() { c.awaitGone(looking, client) })
	owned.Go(func() { c.awaitSilence(looking, client) })
	defer stop()
	err = c.consume(ctx, group, client)
	c.leave(group, client, errors.Is(err, ErrStalled))
	_ = client.Close() // ends what is under way on it before it is waited for
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
		c.trouble.over()
		return nil
	}
}

// connect returns a client that has seen its topics. Topics that are missing end Run at its start only.
func (c *Consumer) connect(ctx context.Context, first bool) (sarama.Client, error) {
	var back backoff
	for {
		client, err := sarama.NewClient(c.cfg.Brokers, c.sarama)
		if err == nil {
			if first {
				err = c.prepareTopics(ctx, client)
			}
			if err == nil {
				_, err = c.look(client)
			}
			if err == nil {
				c.trouble.over()
				return client, nil
			}
			_ = client.Close()
		}
		var topics *TopicError
		if errors.As(err, &topics) {
			return nil, err
		}
		if err := c.patient(ctx, &back, err); err != nil {
			return nil, err
		}
	}
}

// patient waits before the next try, unless err is fatal or ctx has ended.
func (c *Consumer) patient(ctx context.Context, back *backoff, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := fatal(err); err != nil {
		return err
	}
	c.trouble.begin(err)
	return back.wait(ctx)
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
		if end := cmp.Or(c.handler.Err(), fatal(cause), fatal(err)); end != nil {
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
	}
}

// leaveWait bounds how long leaving the group may take; then the connections are cut, and the brokers find out by the
// session's time-out.
const leaveWait = 10 * time.Second

// leave gives up the membership. A static member keeps it, so that a restart moves no partition, unless remove is set.
func (c *Consumer) leave(group sarama.ConsumerGroup, client sarama.Client, remove bool) {
	cut := time.AfterFunc(leaveWait, func() { _ = client.Close() })
	defer cut.Stop()
	if remove && c.cfg.InstanceID != "" {
		if err := c.removeStatic(client); err != nil {
			c.log.Warn("leaving the group failed, its partitions rest until the session times out", "error", c.cfg.errorText(err))
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		c.log.Warn("leaving the group failed, its partitions rest until the session times out", "error", c.cfg.errorText(err))
	}
}

// watchdog bounds the time between the end of ctx and that of Consume, which may hang in a request.
func (c *Consumer) watchdog(ctx context.Context, client sarama.Client, ended <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-ended:
		return
	}
	c.log.Info("consumer stops: nothing new begins, running handlers are given the grace", "grace", c.cfg.Grace)
	cut := func(after time.Duration) bool {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ended:
			return false
		}
	}
	if !cut(leaveWait) || c.handler.joined() && !cut(c.cfg.endWait()+2*commitWait) {
		return
	}
	c.log.Warn("brokers do not answer, cutting the connections")
	_ = client.Close()
}
