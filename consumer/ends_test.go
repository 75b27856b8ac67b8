package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/runner"
)

// Rule 8: while a leader does not answer, its partitions stop being caught up, for each of its last
// answers.
func TestProgress_LeaderAway_Rule8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, leader := newTold(), new(asks)
		h := tellingHandler(t, store)
		h.g.Hooks.Ends = leader
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		run := consume(h, sess, &endless{newFakeClaim("t", 0, 10), 70, 70})
		time.Sleep(progressInterval + time.Millisecond)
		p, _ := store.of("g/t", 0)
		require.True(t, p.CaughtUp)
		leader.away.Store(true)
		time.Sleep(freshEnd)
		for range 10 {
			time.Sleep(progressInterval)
			p, _ = store.of("g/t", 0)
			require.Equal(t, dedup.Progress{Topic: "t", Next: 70}, p)
		}
		leader.away.Store(false)
		time.Sleep(progressInterval)
		p, _ = store.of("g/t", 0)
		require.True(t, p.CaughtUp)
		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.NoError(t, closeAll(h, sess))
	})
}

// A handler in a foreign program without a client trusts no mark, and says so once.
func TestProgress_WithoutClient_Rule8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTold()
		h := tellingHandler(t, store)
		h.g.Hooks.Ends = nil
		written := new(logs)
		h.cfg.Logger = slog.New(slog.NewTextHandler(written, nil))
		for range 2 {
			ctx, cancel := context.WithCancelCause(t.Context())
			sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
			require.NoError(t, h.Setup(sess))
			run := consume(h, sess, &endless{newFakeClaim("t", 0, 10), 70, 70})
			time.Sleep(progressInterval + time.Millisecond)
			p, _ := store.of("g/t", 0)
			require.Equal(t, dedup.Progress{Topic: "t", Next: 70}, p)
			cancel(sarama.ErrRebalanceInProgress)
			<-run.done
			require.NoError(t, h.Cleanup(sess))
		}
		require.NoError(t, h.Close())
		require.Equal(t, 1, written.count("UseClient"))
	})
}

// batch makes a batch of n records of a producer.
func batch(producer, first int64, n int, change ...func(*sarama.RecordBatch)) *sarama.Records {
	b := &sarama.RecordBatch{FirstOffset: first, LastOffsetDelta: int32(n - 1), ProducerID: producer, IsTransactional: producer > 0}
	for i := range n {
		b.Records = append(b.Records, &sarama.Record{OffsetDelta: int64(i)})
	}
	for _, f := range change {
		f(b)
	}
	return &sarama.Records{RecordBatch: b}
}

func marker(producer, at int64, kind byte) *sarama.Records {
	return batch(producer, at, 1, func(b *sarama.RecordBatch) {
		b.Control, b.Records[0].Key = true, []byte{0, 0, 0, kind}
	})
}

func TestLookAt(t *testing.T) {
	const abort, commit = 0, 1
	aborted := func(producer, first int64) *sarama.AbortedTransaction {
		return &sarama.AbortedTransaction{ProducerID: producer, FirstOffset: first}
	}
	for name, c := range map[string]struct {
		isolation sarama.IsolationLevel
		high      int64
		aborted   []*sarama.AbortedTransaction
		records   []*sarama.Records
		want      runner.Look
	}{
		"nothing, at the end":                {1, 10, nil, nil, runner.Look{Clear: 10, End: true}},
		"nothing, an open transaction":       {1, 12, nil, nil, runner.Look{Clear: 10}},
		"a record":                           {1, 11, nil, []*sarama.Records{batch(0, 10, 1)}, runner.Look{Clear: 10, Visible: true}},
		"a batch that begins before":         {1, 12, nil, []*sarama.Records{batch(0, 8, 4)}, runner.Look{Clear: 10, Visible: true}},
		"a batch of what was consumed":       {1, 10, nil, []*sarama.Records{batch(0, 8, 2)}, runner.Look{Clear: 10, End: true}},
		"a commit marker":                    {1, 11, nil, []*sarama.Records{marker(1, 10, commit)}, runner.Look{Clear: 11, End: true}},
		"a commit marker, uncommitted":       {0, 11, nil, []*sarama.Records{marker(1, 10, commit)}, runner.Look{Clear: 11, End: true}},
		"a marker, and an open transaction":  {1, 15, nil, []*sarama.Records{marker(1, 10, commit)}, runner.Look{Clear: 11}},
		"a marker, and a record":             {1, 12, nil, []*sarama.Records{marker(1, 10, commit), batch(0, 11, 1)}, runner.Look{Clear: 11, Visible: true}},
		"a committed transaction":            {1, 14, nil, []*sarama.Records{batch(1, 10, 3), marker(1, 13, commit)}, runner.Look{Clear: 10, Visible: true}},
		"an aborted transaction":             {1, 14, []*sarama.AbortedTransaction{aborted(1, 10)}, []*sarama.Records{batch(1, 10, 3), marker(1, 13, abort)}, runner.Look{Clear: 14, End: true}},
		"an aborted one, uncommitted":        {0, 14, nil, []*sarama.Records{batch(1, 10, 3), marker(1, 13, abort)}, runner.Look{Clear: 10, Visible: true}},
		"the rest of an aborted one":         {1, 12, []*sarama.AbortedTransaction{aborted(1, 4)}, []*sarama.Records{batch(1, 8, 3), marker(1, 11, abort)}, runner.Look{Clear: 12, End: true}},
		"two aborted ones of a producer":     {1, 14, []*sarama.AbortedTransaction{aborted(1, 12), aborted(1, 10)}, []*sarama.Records{batch(1, 10, 1), marker(1, 11, abort), batch(1, 12, 1), marker(1, 13, abort)}, runner.Look{Clear: 14, End: true}},
		"an aborted and a committed one":     {1, 14, []*sarama.AbortedTransaction{aborted(1, 10)}, []*sarama.Records{batch(1, 10, 1), marker(1, 11, abort), batch(1, 12, 1), marker(1, 13, commit)}, runner.Look{Clear: 12, Visible: true}},
		"aborted, and of another producer":   {1, 12, []*sarama.AbortedTransaction{aborted(1, 10)}, []*sarama.Records{batch(1, 10, 1), batch(2, 11, 1)}, runner.Look{Clear: 11, Visible: true}},
		"aborted, and without a transaction": {1, 12, []*sarama.AbortedTransaction{aborted(1, 10)}, []*sarama.Records{batch(1, 10, 1), batch(0, 11, 1)}, runner.Look{Clear: 11, Visible: true}},
		"more is to come":                    {1, 90, []*sarama.AbortedTransaction{aborted(1, 10)}, []*sarama.Records{batch(1, 10, 40)}, runner.Look{Clear: 50}},
		"a gap of compaction":                {1, 31, nil, []*sarama.Records{marker(1, 30, commit)}, runner.Look{Clear: 31, End: true}},
		"cut off":                            {1, 90, nil, []*sarama.Records{batch(0, 10, 0, func(b *sarama.RecordBatch) { b.PartialTrailingRecord = true })}, runner.Look{Clear: 10}},
		"an old format":                      {1, 11, nil, []*sarama.Records{{MsgSet: &sarama.MessageSet{Messages: []*sarama.MessageBlock{{}}}}}, runner.Look{Clear: 10, Visible: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &sarama.FetchResponseBlock{HighWaterMarkOffset: c.high, AbortedTransactions: c.aborted, RecordsSet: c.records}
			require.Equal(t, c.want, lookAt(b, 10, c.isolation))
		})
	}
}

// claimAt returns the claim of a partition.
func claimAt(m *member, id int32) *runner.Assignment {
	for _, c := range sourceClaims(m) {
		if c.Partition == id {
			return c
		}
	}
	return nil
}

// progressOf records the progress of a member, as it does every ten seconds, and returns that of a
// partition.
func progressOf(m *member, store *told, topic string, id int32) dedup.Progress {
	s := m.handler.anySession()
	if s == nil {
		return dedup.Progress{}
	}
	s.RecordProgress()
	p, _ := store.of(m.cfg.Scope+"/"+topic, id)
	return p
}

// TestKfake_LeaderAway_Rule8: a leader accepts connections and does not answer. Its partition is
// not caught up, that of the other leader is, and progress waits no longer than it may.
func TestKfake_LeaderAway_Rule8(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition("orders", 0, 0))
	require.NoError(t, cluster.MoveTopicPartition("orders", 1, 1))
	store := newTold()
	m := start(t, Config{Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}, Store: store}, routed(nothing))
	require.Eventually(t, func() bool { return claimsOf(m) == 2 }, soon, poll)
	caughtUp := func(id int32) bool { return progressOf(m, store, "orders", id).CaughtUp }
	require.Eventually(t, func() bool { return caughtUp(0) && caughtUp(1) }, soon, poll)

	release := make(chan struct{})
	defer close(release)
	coordinator := cluster.CoordinatorFor("g")
	away := 1 - coordinator // the group goes on
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == away {
			cluster.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	require.Eventually(t, func() bool {
		for id := range int32(2) { // as if the last answers were old
			c := claimAt(m, id)
			c.Tail().Forget()
		}
		began := time.Now()
		is := caughtUp(coordinator)
		require.Less(t, time.Since(began), 2*runner.EndsWait)
		p, _ := store.of("g/orders", away)
		return is && !p.CaughtUp
	}, soon, poll)
	require.NoError(t, m.end())
}

// transact writes events in a transaction and ends it. open leaves it open until the returned
// function is called.
func transact(t *testing.T, brokers []string, topic string, partition int32, from, to int, commit bool) {
	t.Helper()
	beginTransaction(t, brokers, topic, partition, from, to)(commit)
}

func beginTransaction(t *testing.T, brokers []string, topic string, partition int32, from, to int) (end func(commit bool)) {
	t.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Transaction.ID = fmt.Sprintf("%s-%d-%d", topic, partition, from)
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	require.NoError(t, p.BeginTxn())
	for i := from; i < to; i++ {
		m := record(topic, i)
		m.Partition = partition
		_, _, err := p.SendMessage(m)
		require.NoError(t, err)
	}
	return func(commit bool) {
		defer p.Close()
		if commit {
			require.NoError(t, p.CommitTxn())
		} else {
			require.NoError(t, p.AbortTxn())
		}
	}
}

// TestKafka_Transactions_Rule8: partitions that end with a marker, or with aborted records, are
// caught up when all that is visible is handled, and one with an open transaction is not.
func TestKafka_Transactions_Rule8(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]sarama.IsolationLevel{"read committed": sarama.ReadCommitted, "read uncommitted": sarama.ReadUncommitted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg := onKafka(t, 6)
			store := newTold()
			cfg.Store = store
			cfg.Sarama = func(sc *sarama.Config) {
				quick(sc)
				sc.Consumer.IsolationLevel = isolation
			}
			const committed, aborted, mixed, plain, open, empty = 0, 1, 2, 3, 4, 5
			transact(t, brokers, topic, committed, 0, 10, true)
			transact(t, brokers, topic, aborted, 100, 110, false)
			transact(t, brokers, topic, mixed, 200, 210, true)
			transact(t, brokers, topic, mixed, 210, 220, false)
			transact(t, brokers, topic, mixed, 220, 230, true)
			for range 3 {
				transact(t, brokers, topic, mixed, 230, 330, false)
			}
			r := record(topic, 400)
			r.Metadata = toPartition(plain)
			produce(t, brokers, r)
			end := beginTransaction(t, brokers, topic, open, 500, 510)

			visible := 10 + 20 + 1
			if isolation == sarama.ReadUncommitted {
				visible += 10 + 10 + 100 + 10 // the three aborted ones have the same events
			}
			var got tally
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == visible }, soon, poll)
			for id := range int32(6) {
				if id != open {
					require.Eventually(t, func() bool { return progressOf(m, store, topic, id).CaughtUp }, soon, poll, "partition %d", id)
				}
			}
			if isolation == sarama.ReadCommitted {
				require.False(t, progressOf(m, store, topic, open).CaughtUp, "an open transaction has records of any age")
			}
			end(false)
			require.Eventually(t, func() bool { return progressOf(m, store, topic, open).CaughtUp }, soon, poll)

			// And after a restart, with the markers behind the committed offset.
			require.NoError(t, m.end())
			m = start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return claimsOf(m) == 6 }, soon, poll)
			for _, id := range []int32{committed, mixed, plain} {
				require.Eventually(t, func() bool { return progressOf(m, store, topic, id).CaughtUp }, soon, poll, "partition %d", id)
			}
			transact(t, brokers, topic, committed, 600, 610, true)
			require.Eventually(t, func() bool {
				p := progressOf(m, store, topic, committed)
				return p.Next == 21 && p.CaughtUp
			}, soon, poll)
			require.NoError(t, m.end())
			require.Equal(t, visible+10, got.events())
			_ = empty
		})
	}
}

// TestKafka_MarkerDeleted_K17: behind the last record of a partition is the marker of its
// transaction. Kafka deletes the whole log after its retention. No record that a consumer could get
// is missing, so the next session reports no gap.
func TestKafka_MarkerDeleted_K17(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	store := newTold()
	cfg.Store = store
	transact(t, brokers, topic, 0, 0, 10, true)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.end())
	require.GreaterOrEqual(t, committed(t, brokers, cfg.Group, topic, 0)[0], int64(10))

	m = start(t, cfg, routed(got.handle)) // there is no record for it
	require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
	require.Eventually(t, func() bool { return progressOf(m, store, topic, 0).CaughtUp }, soon, poll)
	require.NoError(t, m.end())
	require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteRecords(topic, map[int32]int64{0: 11}))

	m = start(t, cfg, routed(got.handle))
	transact(t, brokers, topic, 0, 10, 20, true)
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	require.NoError(t, m.end())
	require.GreaterOrEqual(t, committed(t, brokers, cfg.Group, topic, 0)[0], int64(21))
}

// A GroupHandler in a foreign program asks with the client that it is given.
func TestKfake_UseClient_Rule8(t *testing.T) {
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq")
	produceEvents(t, brokers, "orders", 0, 3)
	cfg := Config{Group: "g", Store: newTold(), Logger: quiet, Sarama: quick}
	store := cfg.Store.(*told)
	var got tally
	h, err := NewGroupHandler(cfg, routed(got.handle))
	require.NoError(t, err)
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	client, err := sarama.NewClient(brokers, sc)
	require.NoError(t, err)
	defer client.Close()
	h.UseClient(client)
	group, err := sarama.NewConsumerGroupFromClient("g", client)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- group.Consume(ctx, []string{"orders"}, h) }()
	go func() {
		for range group.Errors() {
		}
	}()
	require.Eventually(t, func() bool {
		s := h.anySession()
		if got.events() < 3 || s == nil {
			return false
		}
		s.RecordProgress()
		p, _ := store.of("g/orders", 0)
		return p.CaughtUp && p.Next == 3
	}, soon, poll)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, group.Close())
	require.NoError(t, h.Close())
}

// TestKfake_DeletedWhileWaiting_K17: copies wait for their time, and Kafka deletes some of them. No
// offset behind the waiting copies is committed, and the next start reports the gap.
func TestKfake_DeletedWhileWaiting_K17(t *testing.T) {
	t.Parallel()
	tier := deadletter.RetryTopic("orders", "g", time.Hour)
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq", tier)
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: newTold(), Start: Newest}
	for i := range 10 {
		produce(t, brokers, copyOf(t, "orders", "g", i, time.Hour))
	}
	m := start(t, cfg, routed(nothing), withDelays(time.Hour))
	waits := func() *runner.Assignment {
		for _, a := range m.handler.g.Assignments() {
			if flow, ok := a.Claim().(runner.Flow); ok && a.Topic == tier && flow.IsPaused() {
				return a
			}
		}
		return nil
	}
	require.Eventually(t, func() bool { return waits() != nil }, soon, poll)
	require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteRecords(tier, map[int32]int64{0: 5}))
	s := m.handler.anySession()
	s.RecordProgress()
	s.Commit()
	require.Equal(t, map[int32]int64{0: 0}, committed(t, brokers, "g", tier, 0))
	require.NoError(t, m.end())

	m = start(t, cfg, routed(nothing), withDelays(time.Hour))
	var gap *GapError
	require.ErrorAs(t, m.wait(t, soon), &gap)
	require.Equal(t, GapError{Topic: tier, Partition: 0, Committed: 0, Oldest: 5, Newest: 10}, *gap)
}

// TestKfake_Zstd_Rule8: brokers before 4.0 refuse fetches below version 10 for a topic with
// compression.type=zstd. Its partitions are caught up all the same.
func TestKfake_Zstd_Rule8(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if req.GetVersion() >= 10 {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			refused := kmsg.FetchResponseTopic{Topic: topic.Topic}
			for _, p := range topic.Partitions {
				refused.Partitions = append(refused.Partitions, kmsg.FetchResponseTopicPartition{
					Partition: p.Partition, ErrorCode: int16(sarama.ErrUnsupportedCompressionType),
				})
			}
			answer.Topics = append(answer.Topics, refused)
		}
		return answer, nil, true
	})
	brokers, store := cluster.ListenAddrs(), newTold()
	produceEvents(t, brokers, "orders", 0, 20)
	var got tally
	m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: store}, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	require.Eventually(t, func() bool { return progressOf(m, store, "orders", 0).CaughtUp }, soon, poll)
	require.NoError(t, m.end())
}

// TestQuestion: an old version of Kafka in the settings gets a request that it knows.
func TestQuestion(t *testing.T) {
	for kafka, want := range map[sarama.KafkaVersion]int16{
		sarama.V1_0_0_0: 4, sarama.V2_0_0_0: 4, sarama.V2_1_0_0: 10, sarama.V4_0_0_0: 10,
	} {
		require.Equal(t, want, question(kafka, sarama.ReadCommitted).Version, kafka)
	}
}

// TestRefusals: a leader that refuses the question for long is logged once, until it answers.
func TestRefusals(t *testing.T) {
	written := new(logs)
	cfg := Config{Logger: slog.New(slog.NewTextHandler(written, nil))}.withDefaults()
	r := &refusals{cfg: cfg, since: make(map[runner.TopicPartition]*refusal)}
	p, now := runner.TopicPartition{Topic: "t", Partition: 3}, time.Now()
	for _, step := range []struct {
		after time.Duration
		err   error
		lines int
	}{
		{0, sarama.ErrUnsupportedCompressionType, 0},
		{refusedFor - 1, sarama.ErrUnsupportedCompressionType, 0},
		{refusedFor, sarama.ErrUnsupportedCompressionType, 1},
		{2 * refusedFor, sarama.ErrUnsupportedCompressionType, 1},
		{3 * refusedFor, nil, 1},
		{3 * refusedFor, sarama.ErrNotLeaderForPartition, 1},
		{4*refusedFor - 1, sarama.ErrNotLeaderForPartition, 1},
		{4 * refusedFor, sarama.ErrNotLeaderForPartition, 2},
	} {
		r.note(p, step.err, now.Add(step.after))
		require.Equal(t, step.lines, written.count("refuses to show the end"), step)
	}
}
