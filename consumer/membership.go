package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/conns"
	"github.com/idem-go/idem/runner"
)

// membership makes this process a member of the group, again and again.
type membership struct {
	cfg     Config
	sarama  *sarama.Config
	log     *slog.Logger
	handler *GroupHandler
	own     *ownProducer // nil if Config has a Producer
	life    *runner.Life
}

// serve checks the stores and is a member of the group until ctx ends or an error is fatal. After
// leaving the group by itself the member joins again.
func (m *membership) serve(ctx context.Context) error {
	if m.own != nil {
		defer m.own.close()
	}
	if err := m.life.Stores.Check(ctx); err != nil {
		return err
	}
	for first := true; ; first = false {
		err := m.once(ctx, first)
		var again *runner.ComeBack
		if !errors.As(err, &again) {
			return err
		}
		if errors.Is(again.Why, ErrStalled) {
			if err := runner.Pause(ctx, m.life.AwayFor()); err != nil {
				return err
			}
		}
	}
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
		if err := m.life.Register(ctx, logOffsets{client}); err != nil {
			return err
		}
	}
	admin := topicadmin.New(client)
	h := m.handler
	h.g.Hooks.Oldest = func(topic string, partition int32) (int64, error) {
		return client.GetOffset(topic, partition, sarama.OffsetOldest)
	}
	h.g.Hooks.Committed = func(
		ctx context.Context, partitions map[string][]int32,
	) (map[runner.TopicPartition]int64, error) {
		return logOffsets{client}.Committed(ctx, m.cfg.Group, partitions)
	}
	check := runner.NewOffsetCheck(m.cfg.neutral(), logOffsets{client}, h.g.Processor().Stores())
	var owned sync.WaitGroup // waited for below, after the group exists
	h.prepare, h.added = m.preparing(client, check, &owned), m.checking(check)
	h.direct = newDirectCommits(m.cfg.Group, client)
	ends := newEnds(client, m.cfg)
	defer ends.close()
	h.g.Hooks.Ends = ends
	group, err := sarama.NewConsumerGroupFromClient(m.cfg.Group, patientClient{client})
	if err != nil {
		return err
	}
	defer owned.Wait()
	owned.Go(func() { m.drainErrors(group) })
	joining() // from here on the watchdog cuts
	dog := &watchdog{cfg: m.cfg, log: m.log, group: h.g, links: links}
	consumed := make(chan struct{})
	var watched sync.WaitGroup
	watched.Go(func() { dog.run(ctx, consumed) })
	looking, stop := context.WithCancel(ctx)
	topics := m.life.Watching(admin)
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

// preparing returns the work at the start of each session, before the first assignments. The result
// has the claims that are prepared: those with a leader. sarama begins the others when they have
// one. Until the end of the session a goroutine in owned looks for missing leaders.
func (m *membership) preparing(
	client sarama.Client, check *runner.OffsetCheck, owned *sync.WaitGroup,
) func(sarama.ConsumerGroupSession) (map[string][]int32, error) {
	return func(sess sarama.ConsumerGroupSession) (map[string][]int32, error) {
		owned.Go(func() { findLeaders(sess.Context(), client, sess.Claims) })
		claims, waiting := withLeader(client, sess.Claims())
		moves, err := check.Check(sess.Context(), claims)
		if err != nil {
			return nil, err
		}
		if err := moveOffsets(sess, m.handler.direct, moves); err != nil {
			return nil, err
		}
		if m.cfg.Start == Newest {
			offsets := ledOffsets{logOffsets{client}, claims}
			if err := beginRetries(offsets, m.cfg.Group, sess, m.life.Topics.Now()); err != nil {
				return nil, err
			}
		}
		m.life.Retry.Serving()
		if len(waiting) > 0 {
			m.log.Warn("partitions wait for a leader, the others are consumed",
				"group", m.cfg.Group, "partitions", waiting)
		}
		return claims, nil
	}
}

// checking returns the check of a partition without a committed offset that the start of the
// session has not prepared: a cooperative rebalance has added it, or it had no leader. The result
// is false if the start of the next session must decide: with Newest an offset is to be committed
// first, and other offsets may be lost.
func (m *membership) checking(
	check *runner.OffsetCheck,
) func(context.Context, sarama.ConsumerGroupClaim) bool {
	return func(ctx context.Context, claim sarama.ConsumerGroupClaim) bool {
		if m.cfg.Start == Newest {
			return false
		}
		moves, err := check.Check(ctx, map[string][]int32{claim.Topic(): {claim.Partition()}})
		return ctx.Err() != nil || err == nil && len(moves) == 0
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
			m.life.Retry.Over()
			return client, links, nil
		}
		var topics *TopicError
		if errors.As(err, &topics) {
			return nil, nil, err
		}
		if err := m.life.Retry.Wait(ctx, &back, err); err != nil {
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
	client, err := bootstrap.Client(ctx, m.cfg.Brokers, links.Config(m.sarama))
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
	admin := topicadmin.New(client)
	if first {
		setup := m.life.Setup(admin)
		setup.Delays = m.handler.delays
		if err := setup.Ensure(ctx); err != nil {
			return err
		}
	}
	_, err := m.life.Watching(admin).Look(ctx)
	return err
}

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
		_ = m.handler.g.TakeEnding() // of the session before
		if err == nil && !slices.Equal(topics, m.life.Topics.Now()) {
			continue // that was the reason
		}
		if err == nil {
			err = group.Consume(ctx, topics, m.handler)
		}
		troubled = err != nil
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cause, ending := m.handler.g.Cause(), m.handler.g.TakeEnding()
		troubled = troubled || errors.Is(cause, sarama.ErrTopicAuthorizationFailed)
		if end := cmp.Or(m.handler.Err(), m.life.Retry.Fatal(cause), m.life.Retry.Fatal(err)); end != nil {
			return end
		}
		switch {
		case errors.Is(ending, runner.ErrTopicBack), errors.Is(ending, errNotPrepared):
			continue
		case ending != nil:
			return &runner.ComeBack{Why: ending}
		}
		if time.Since(began) > runner.ShortSession {
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
		if err := m.life.Retry.Wait(ctx, &back, err); err != nil {
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
			m.life.Topics.Suspect()
		}
	}
}

// noteDetail logs an error of sarama's background work. An error of a partition counts as the same
// for all partitions.
func (m *membership) noteDetail(err error) {
	var partition *sarama.ConsumerError
	switch {
	case !errors.As(err, &partition):
		m.life.Retry.Detail(err)
	case errors.Is(err, sarama.ErrDecompressedBatchTooLarge):
		m.life.Retry.Detail(fmt.Errorf("%w; %s", partition.Err, tooLargeAdvice),
			"leader_of", partition.Topic+"/"+strconv.Itoa(int(partition.Partition)))
	default:
		m.life.Retry.Detail(partition.Err, "topic", partition.Topic, "partition", partition.Partition)
	}
}

// tooLargeAdvice follows the error of a batch above the limit. The partition of the batch is not
// known, because sarama reads the answer of a broker as a whole.
const tooLargeAdvice = "a partition with the same leader has such a batch, and all of them wait: " +
	"raise sarama.MaxDecompressedBatchSize at the start of main, or stop the group and reset its " +
	"offset of that partition to the end of the batch, whose events are then not handled"
