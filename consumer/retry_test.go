package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer/internal/publish"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/runner"
)

// withDelays sets the delays that handlers declare.
func withDelays(delays ...time.Duration) func(*Consumer) {
	return func(c *Consumer) {
		c.handler.delays = delays
		c.life.Topics = runner.NewTopicList(runner.GroupTopics{Group: c.cfg.Group, Delays: delays}, c.cfg.Topics...)
	}
}

// copyOf makes the copy of event number i of a source topic that lies in the topic for a delay.
func copyOf(t *testing.T, source, group string, i int, delay time.Duration) *sarama.ProducerMessage {
	t.Helper()
	l := deadletter.Event{
		Key: dedup.Key{Scope: group, Type: "thing", ID: fmt.Sprint(i)}, Group: group,
		Message: &idem.Message{
			Topic: source, Offset: int64(i), Time: time.Now(), Key: fmt.Append(nil, "key-", i), Value: []byte("{}"),
			Headers: []idem.Header{{Key: "event-id", Value: fmt.Append(nil, i)}},
		},
		FirstFailure: time.Now(), LastFailure: time.Now(), Class: idem.ClassFailed,
	}
	m, err := l.Redrive(dedup.Position{})
	require.NoError(t, err)
	m.Topic = deadletter.RetryTopic(source, group, delay)
	if delay > 0 {
		due := time.Now().Add(delay).UTC().Format(time.RFC3339Nano)
		m.Headers = append(m.Headers, idem.Header{Key: deadletter.HeaderDue, Value: []byte(due)})
	}
	return publish.ToSarama(m)
}

// delivered is a record of a claim with the content of a copy.
func (c *fakeClaim) delivered(offset int64, m *sarama.ProducerMessage) *sarama.ConsumerMessage {
	r := &sarama.ConsumerMessage{Topic: c.topic, Partition: c.id, Offset: offset, Value: m.Value.(sarama.ByteEncoder), Timestamp: m.Timestamp}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, &h)
	}
	return r
}

// TestHandler_WaitsUntilDue_T05: copies wait with their partition paused, and only fetched records
// are in memory. That is no stall. A revoke ends the wait at once.
func TestHandler_WaitsUntilDue_T05(t *testing.T) {
	const delay, fetched = 2 * time.Minute, 500
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		h := newHandler(t, Config{StallTimeout: 10 * time.Second}, func(context.Context, *idem.Message) error {
			handled.Add(1)
			return nil
		})
		topic := deadletter.RetryTopic("t", "g", delay)
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{topic: {0, 1}})
		require.NoError(t, h.Setup(sess))
		claim := &pausingClaim{fakeClaim: newFakeClaim(topic, 0, 0)}
		run := consume(h, sess, claim)
		began := time.Now()
		for i := range int64(fetched) { // never blocked, though no copy may run (K-14)
			claim.messages <- claim.delivered(i, copyOf(t, "t", "g", int(i), delay))
		}
		require.Zero(t, time.Since(began))
		require.True(t, claim.IsPaused())
		claim.Resume() // a ResumeAll of the program
		claim.messages <- claim.delivered(fetched, copyOf(t, "t", "g", fetched, delay))
		synctest.Wait()
		require.True(t, claim.IsPaused(), "or the backlog has no bound")
		time.Sleep(delay - time.Second)
		require.Zero(t, handled.Load())
		require.NoError(t, h.Ready(), "waiting is no stall")
		require.Zero(t, h.g.Assignments()[0].Pending(), "nothing has begun")
		time.Sleep(2 * time.Second)
		require.EqualValues(t, fetched+1, handled.Load())
		require.False(t, claim.IsPaused())
		require.NoError(t, h.Ready())

		claim.messages <- claim.delivered(fetched+1, copyOf(t, "t", "g", fetched+1, delay))
		synctest.Wait()
		began = time.Now()
		close(claim.messages) // a cooperative revoke
		<-run.done
		require.NoError(t, run.err)
		require.Zero(t, time.Since(began))
		require.False(t, claim.IsPaused())
		require.EqualValues(t, fetched+1, sess.offset(topic, 0), "what waited comes again")

		plain := newFakeClaim(topic, 1, 0) // that cannot be paused
		run = consume(h, sess, plain)
		for i := range int64(maxKept) {
			plain.messages <- plain.delivered(i, copyOf(t, "t", "g", 1000+int(i), delay))
		}
		select {
		case plain.messages <- plain.delivered(maxKept, copyOf(t, "t", "g", 5000, delay)):
			t.Error("more is kept than the bound")
		case <-time.After(time.Second):
		}
		began = time.Now()
		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.Zero(t, time.Since(began))
		require.EqualValues(t, fetched+1, handled.Load())
		require.NoError(t, closeAll(h, sess))
	})
}

// TestHandler_ProgramPauses_T05: the program pauses the partition before copies wait. A pause that
// the program has ended is not left behind, and a pause that it has not ended stays.
func TestHandler_ProgramPauses_T05(t *testing.T) {
	const delay = time.Minute
	for _, resumes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var handled atomic.Int64
			h := newHandler(t, Config{}, func(context.Context, *idem.Message) error {
				handled.Add(1)
				return nil
			})
			topic := deadletter.RetryTopic("t", "g", delay)
			ctx, cancel := context.WithCancelCause(t.Context())
			sess := newFakeSession(ctx, map[string][]int32{topic: {0}})
			require.NoError(t, h.Setup(sess))
			claim := &pausingClaim{fakeClaim: newFakeClaim(topic, 0, 0)}
			run := consume(h, sess, claim)
			claim.Pause() // a PauseAll of the program
			claim.messages <- claim.delivered(0, copyOf(t, "t", "g", 0, delay))
			synctest.Wait()
			if resumes {
				claim.Resume()
			}
			claim.messages <- claim.delivered(1, copyOf(t, "t", "g", 1, delay))
			synctest.Wait()
			require.True(t, claim.IsPaused())
			time.Sleep(delay + time.Second)
			require.EqualValues(t, 2, handled.Load())
			require.Equal(t, !resumes, claim.IsPaused())
			cancel(sarama.ErrRebalanceInProgress)
			<-run.done
			require.NoError(t, closeAll(h, sess))
		})
	}
}

// TestKafka_RetryTopics_T05: copies wait for longer than a rebalance may take, and the group has no
// rebalance. Replayed dead letters run at once. The topics have the shape of their source.
func TestKafka_RetryTopics_T05(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 3)
	const short, long = time.Second, 9 * time.Second
	cfg.Grace, cfg.Store, cfg.StallTimeout = time.Second, forever(), 2*time.Second
	cfg.Sarama = func(sc *sarama.Config) {
		quick(sc)
		sc.Consumer.Group.Rebalance.Timeout = 4 * time.Second
	}
	cfg.CreateDeadLetterTopics.Config = map[string]string{"retention.ms": "1", "max.message.bytes": "2000000"}
	var got, early tally
	began := time.Now()
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		got.add(eventID(m))
		if id := eventID(m); len(id) == 3 && time.Since(began) < long {
			early.add(id)
		}
		return nil
	}), withDelays(short, long, 400*24*time.Hour))
	require.Eventually(t, func() bool { return m.Ready() == nil && len(m.handler.g.Assignments()) == 15 }, soon, poll)
	began = time.Now()
	var msgs []*sarama.ProducerMessage
	for i := range 30 {
		msgs = append(msgs, copyOf(t, topic, cfg.Group, 100+i, long), copyOf(t, topic, cfg.Group, 10+i, short), copyOf(t, topic, cfg.Group, 50+i, 0))
	}
	produce(t, brokers, msgs...)
	require.Eventually(t, func() bool { return got.events() == 60 }, 5*time.Second, poll)
	produceEvents(t, brokers, topic, 0, 9)
	require.Eventually(t, func() bool { return got.events() == 69 }, 5*time.Second, poll, "the sources do not wait")
	require.NoError(t, m.Ready())
	require.Eventually(t, func() bool { return got.events() == 99 }, long+5*time.Second, poll)
	require.Zero(t, early.total())
	require.Equal(t, 99, got.total())
	require.Equal(t, 1, m.count("partitions assigned"), "no rebalance")
	require.Zero(t, m.count("partition does not move"))
	require.Zero(t, m.count("hardly longer"))
	require.NoError(t, m.end())

	topics, err := testenv.KafkaAdmin(t, brokers).ListTopics()
	require.NoError(t, err)
	for _, d := range []time.Duration{0, short, long, 400 * 24 * time.Hour} {
		made := topics[deadletter.RetryTopic(topic, cfg.Group, d)]
		require.EqualValues(t, 3, made.NumPartitions)
		require.Equal(t, "2000000", *made.ConfigEntries["max.message.bytes"])
		if keep := made.ConfigEntries["retention.ms"]; d > 300*24*time.Hour {
			require.Equal(t, fmt.Sprint((d + 24*time.Hour).Milliseconds()), *keep)
		} else if keep != nil { // else the broker's
			require.NotEqual(t, "1", *keep)
		}
	}
}

// TestKafka_RetryTopicsMissing: a topic for later attempts must exist, since a copy that cannot be
// written holds up its partition. One for replays need not, which is said once.
func TestKafka_RetryTopicsMissing(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 2)
	cfg.CreateDeadLetterTopics = nil
	createTopic(t, brokers, deadletter.Topic(cfg.Group)(topic), 1)
	err := start(t, cfg, routed(nothing), withDelays(time.Minute)).wait(t, soon)
	var missing *TopicError
	require.ErrorAs(t, err, &missing)
	require.True(t, missing.Retries)
	require.Equal(t, []string{topic + "." + cfg.Group + ".retry.1m"}, missing.Topics)
	require.ErrorContains(t, err, "retry topics")

	createTopic(t, brokers, deadletter.RetryTopic(topic, cfg.Group, time.Minute), 1)
	var got tally
	m := start(t, cfg, routed(got.handle), withDelays(time.Minute))
	require.Eventually(t, func() bool { return len(m.handler.g.Assignments()) == 3 }, soon, poll)
	require.Equal(t, 1, m.count("dead letters cannot be replayed"))

	createTopic(t, brokers, deadletter.RetryTopic(topic, cfg.Group, 0), 1)
	produce(t, brokers, copyOf(t, topic, cfg.Group, 7, 0))
	m.handler.g.EndSessions(errTest) // any rejoin
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.Len(t, m.handler.g.Assignments(), 4)
	require.NoError(t, m.end())
	require.Equal(t, 1, m.count("dead letters cannot be replayed"))
}

// TestKafka_RetryTopicsFromTheBeginning_K29: a group that begins at the newest record skips no copy
// of its own, also in partitions of other members.
func TestKafka_RetryTopicsFromTheBeginning_K29(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		brokers, topic, cfg := onKafka(t, 4)
		cfg.Start, cfg.Cooperative = Newest, cooperative
		createTopic(t, brokers, deadletter.RetryTopic(topic, cfg.Group, 0), 4)
		produceEvents(t, brokers, topic, 0, 20)
		var msgs []*sarama.ProducerMessage
		for i := range 20 {
			m := copyOf(t, topic, cfg.Group, 100+i, 0)
			m.Metadata = toPartition(i % 4)
			msgs = append(msgs, m)
		}
		produce(t, brokers, msgs...)
		var got tally
		one := start(t, cfg, routed(got.handle))
		two := start(t, cfg, routed(got.handle))
		require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
		require.NoError(t, one.end())
		require.NoError(t, two.end())
		require.Equal(t, 20, got.events(), "nor does it read what was there before of its sources")
	}
}

// TestRetryTopics: the topics of the subscription, and topics that must not be in it.
func TestRetryTopics(t *testing.T) {
	h := newHandler(t, Config{}, func(context.Context, *idem.Message) error { return nil })
	require.Equal(t, []string{"a", "b", "a.g.retry", "b.g.retry"}, h.Topics("a", "b"))
	h.delays = []time.Duration{5 * time.Second, time.Minute}
	require.Equal(t, []string{"a", "a.g.retry.5s", "a.g.retry.1m", "a.g.retry"}, h.Topics("a"))
	for topic, own := range map[string]bool{
		"a.g.retry": true, "a.g.retry.5s": true, "a.g.retry.1m": true, "a.g.retry.1h30m": true,
		"a.g.retry.60s": false, "a.g.retry.orders": false, "a.g.retryx": false, "g.retry": false, ".g.retry": false,
		"a.h.retry": false, "a.g.retry.": false, "a": false, "a.g.retry.g.retry": true,
	} {
		require.Equal(t, own, runner.IsRetry(topic, "g"), topic)
		cfg := good()
		cfg.Topics = []string{strings.ReplaceAll(topic, ".g.", "."+cfg.Group+".")}
		_, err := New(cfg, routed(nothing))
		if own {
			require.ErrorContains(t, err, "a retry topic of this group", topic)
		} else {
			require.NoError(t, err, topic)
		}
	}
	require.NoError(t, h.Close())
}

// TestKafka_LaterAttempts_Rule3: a handler declares delays. An event that fails in its place is
// tried again after each delay, by the owner of the partition of that retry topic. The events
// behind it do not wait.
func TestKafka_LaterAttempts_Rule3(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 2)
	cfg.Store = forever()
	var got, failed tally
	handle := func(ctx context.Context, m *idem.Message) error {
		n := failed.add(eventID(m))
		for eventID(m) == "5" && n == 2 && got.events() < 18 {
			if err := pause(ctx, poll); err != nil {
				return err
			}
		}
		switch {
		case eventID(m) == "7", eventID(m) == "5" && n < 3:
			return errTest
		}
		got.add(eventID(m))
		return nil
	}
	opts := []idem.Option{
		idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Second, 2*time.Second),
	}
	one, two := start(t, cfg, routed(handle, opts...)), start(t, cfg, routed(handle, opts...))
	require.Eventually(t, func() bool { return claimsOf(one) == 1 && claimsOf(two) == 1 }, soon, poll)
	began := time.Now()
	produceEvents(t, brokers, topic, 0, 20)
	// The second attempt waits for all the others: they do not wait for it.
	require.Eventually(t, func() bool { return got.events() == 19 }, soon, poll)
	require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
	letter := readAll(t, brokers, deadletter.Topic(cfg.Group)(topic), 1)[0]
	require.Equal(t, "3", header(letter, deadletter.HeaderAttempts))
	require.Equal(t, 19, got.total())
	require.Equal(t, 3, failed.n["7"])
	require.NoError(t, one.end())
	require.NoError(t, two.end())
}

// T-02: the handlers of the release before had a delay that those of this one do not have. The
// copies it left are handled.
func TestKfake_FormerTier_T02(t *testing.T) {
	t.Parallel()
	tier := deadletter.RetryTopic("orders", "g", time.Second)
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq", tier, "orders.other.retry.1s", "others.g.retry.1s")
	for i := range 3 {
		produce(t, brokers, copyOf(t, "orders", "g", i, time.Second))
	}
	var got tally
	m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Start: Newest}, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 3 }, soon, poll)
	require.Equal(t, 1, m.count("no handler declares"))
	require.NotContains(t, m.life.Topics.Now(), "orders.other.retry.1s")
	require.NotContains(t, m.life.Topics.Now(), "others.g.retry.1s")
	require.NoError(t, m.end())
}

// TestKafka_NotACopy_G03: a record that another program writes into a retry topic goes to the
// dead-letter topic of the source topic, on a broker that creates no topic by itself. The copies
// behind it are handled.
func TestKafka_NotACopy_G03(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	cfg.Store = forever()
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return m.Ready() == nil && len(m.handler.g.Assignments()) == 2 }, soon, poll)
	retry := deadletter.RetryTopic(topic, cfg.Group, 0)
	forged := copyOf(t, "admin", cfg.Group, 2, 0)
	forged.Topic = retry
	produce(t, brokers, &sarama.ProducerMessage{Topic: retry, Value: sarama.StringEncoder("anything")}, forged, copyOf(t, topic, cfg.Group, 3, 0))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.NoError(t, m.end())
	for _, l := range readAll(t, brokers, deadletter.Topic(cfg.Group)(topic), 2) {
		require.Equal(t, string(idem.ClassNotACopy), header(l, deadletter.HeaderErrorClass))
	}
}
