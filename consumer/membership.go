package consumer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/conns"
	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/runner"
)

// membership makes this process a member of the group, again and again.
type membership struct {
	cfg     Config
	sarama  *sarama.Config
	log     *slog.Logger
	handler *GroupHandler
	own     *ownProducer // nil if Config has a Producer
	topics  *runner.TopicList
	stores  *runner.StoreStart
	retry   *runner.Retrier
}

// serve checks the stores and is a member of the group until ctx ends or an error is fatal. After
// leaving the group by itself the member joins again.
func (m *membership) serve(ctx context.Context) error {
	if err := m.stores.Check(ctx); err != nil {
		return err
	}
	for first := true; ; first = false {
		err := m.once(ctx, first)
		var again *comeBack
		if !errors.As(err, &again) {
			return err
		}
		if errors.Is(again.why, ErrStalled) {
			if err := runner.Pause(ctx, m.awayFor()); err != nil {
				return err
			}
		}
	}
}

// comeBack means that this member left the group by itself and will join again.
type comeBack struct{ why error }

func (e *comeBack) Error() string { return "leaving the group to come back: " + e.why.Error() }
func (e *comeBack) Unwrap() error { return e.why }

// awayFor is how long a member that left for a stall stays away. The other members must have
// noticed at the next heartbeat, and have joined. Otherwise the member would get the same partition
// again.
func (m *membership) awayFor() time.Duration {
	return 3*m.sarama.Consumer.Group.Heartbeat.Interval + time.Second
}

// once connects, checks and consumes.
func (m *membership) once(ctx context.Context, first bool) error {
	client, links, err := m.connect(ctx, first)
	if err != nil {
		return err
	}
	defer client.Close() // the error of a second close means nothing
	defer links.Cut()    // before it, or requests that wait for an answer would delay it
	joining := context.AfterFunc(ctx, links.Cut)
	defer joining()
	if m.own != nil {
		m.own.warm(ctx) // after a failure the first dead letter connects
	}
	if first {
		if err := runner.RegisterGroup(ctx, m.cfg.neutral(), m.stores, m.retry, logOffsets{client}); err != nil {
			return err
		}
	}
	admin, err := topicadmin.New(client)
	if err != nil {
		return err
	}
	h := m.handler
	h.g.Hooks.Oldest = func(topic string, partition int32) (int64, error) {
		return client.GetOffset(topic, partition, sarama.OffsetOldest)
	}
	h.prepare = m.preparing(client)
	h.direct = newDirectCommits(m.cfg.Group, client)
	ends := newEnds(client)
	defer ends.close()
	h.g.Hooks.Ends = ends
	group, err := sarama.NewConsumerGroupFromClient(m.cfg.Group, client)
	if err != nil {
		return err
	}
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { m.drainErrors(group) })
	joining() // from here on the watchdog cuts
	dog := &watchdog{cfg: m.cfg, log: m.log, group: h.g, links: links}
	consumed := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() { dog.run(ctx, consumed) })
	looking, stop := context.WithCancel(ctx)
	topics := m.watching(admin)
	silent := runner.NewSilenceWatch(h.g, logOffsets{client})
	owned.Go(func() { topics.Run(looking, h.g.EndSessions) })
	owned.Go(func() { silent.Run(looking) })
	defer stop()
	err = m.consume(ctx, group, topics)
	close(consumed)
	watched.Wait()
	dog.leaveGroup(group, client, errors.Is(err, ErrStalled))
	links.Cut() // ends running requests before they are waited for
	return err
}

// watching returns the watch over the topics of the subscription.
func (m *membership) watching(admin runner.Admin) *runner.TopicWatch {
	return runner.NewTopicWatch(m.cfg.neutral(), admin, m.cfg.commands(), m.topics)
}

// preparing returns the work at the start of each session, before the first assignments.
func (m *membership) preparing(client sarama.Client) func(sarama.ConsumerGroupSession) error {
	check := runner.NewOffsetCheck(m.cfg.neutral(), logOffsets{client}, m.handler.g.Processor().Stores())
	return func(sess sarama.ConsumerGroupSession) error {
		moves, err := check.Check(sess.Context(), sess.Claims())
		if err != nil {
			return err
		}
		moveOffsets(sess, moves)
		if m.cfg.Start == Newest {
			if err := beginRetries(client, m.cfg.Group, sess, m.topics.Now()); err != nil {
				return err
			}
		}
		m.retry.Serving()
		return nil
	}
}

// connect returns a client that has found the topics, and the client's connections. Missing topics
// end Run at the start only.
func (m *membership) connect(ctx context.Context, first bool) (sarama.Client, *conns.Conns, error) {
	var back runner.Backoff
	for {
		links := conns.New(m.sarama)
		client, err := m.tryConnect(ctx, links, first)
		if err == nil {
			m.retry.Over()
			return client, links, nil
		}
		var topics *TopicError
		if errors.As(err, &topics) {
			return nil, nil, err
		}
		if err := m.retry.Wait(ctx, &back, err); err != nil {
			return nil, nil, err
		}
	}
}

// tryConnect is one try. The end of ctx cuts the connections, because sarama's calls take no
// context.
func (m *membership) tryConnect(
	ctx context.Context, links *conns.Conns, first bool,
) (sarama.Client, error) {
	defer context.AfterFunc(ctx, links.Cut)()
	client, err := sarama.NewClient(m.cfg.Brokers, links.Config(m.sarama))
	if err != nil {
		return nil, err
	}
	if err := m.findTopics(ctx, client, first); err != nil {
		links.Cut()
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// findTopics prepares the topics at the start, and looks for those to subscribe to.
func (m *membership) findTopics(ctx context.Context, client sarama.Client, first bool) error {
	admin, err := topicadmin.New(client)
	if err != nil {
		return err
	}
	if first {
		setup := &runner.TopicSetup{
			Config: m.cfg.neutral(), Admin: admin, Commands: m.cfg.commands(), Classify: classOf,
			Delays: m.handler.delays, OwnProducer: m.own != nil, Topics: m.topics,
		}
		if err := setup.Ensure(ctx); err != nil {
			return err
		}
	}
	_, err = m.watching(admin).Look(ctx)
	return err
}

// shortSession is the shortest session after which the backoff begins anew.
const shortSession = 30 * time.Second

// consume joins again and again: Consume returns at every rebalance of an eager group, and for many
// other reasons (K-21).
func (m *membership) consume(
	ctx context.Context, group sarama.ConsumerGroup, watch *runner.TopicWatch,
) error {
	var back runner.Backoff
	troubled := false
	for {
		began := time.Now()
		topics, err := watch.Subscription(ctx, troubled)
		if err == nil {
			err = group.Consume(ctx, topics, m.handler)
		}
		troubled = err != nil
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cause, ending := m.handler.g.Cause(), m.handler.g.TakeEnding()
		troubled = troubled || errors.Is(cause, sarama.ErrTopicAuthorizationFailed)
		if end := cmp.Or(m.handler.Err(), m.retry.Fatal(cause), m.retry.Fatal(err)); end != nil {
			return end
		}
		switch {
		case errors.Is(ending, runner.ErrTopicBack):
			continue
		case ending != nil:
			return &comeBack{why: ending}
		}
		if time.Since(began) > shortSession {
			back = runner.Backoff{}
		}
		waiting := isAny(cause, sarama.ErrRebalanceInProgress,
			sarama.ErrSessionPartitionCountChanged)
		if err == nil && waiting {
			continue // the other members wait
		}
		if err == nil {
			err = cause
		}
		if err := m.retry.Wait(ctx, &back, err); err != nil {
			return err
		}
	}
}

// drainErrors reads the errors of sarama's background work. The loop ends when the group is closed.
func (m *membership) drainErrors(group sarama.ConsumerGroup) {
	for err := range group.Errors() {
		m.handler.NoteError(err)
		m.noteDetail(err)
		if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			m.topics.Suspect()
		}
	}
}

// noteDetail logs an error of sarama's background work. An error of a partition counts as the same
// for all partitions.
func (m *membership) noteDetail(err error) {
	var partition *sarama.ConsumerError
	if errors.As(err, &partition) {
		m.retry.Detail(partition.Err, "topic", partition.Topic, "partition", partition.Partition)
		return
	}
	m.retry.Detail(err)
}
