package otelidem_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// shop is a topic and its consumers, on a real Kafka with real stores.
type shop struct {
	t            *testing.T
	tm           *telemetry
	topic, group string
	brokers      []string
	kafka        *kgo.Client
	pool         *pgxpool.Pool
	pg           *pgstore.Store
	redis        *redisstore.Store
	sent         int
	wanted       []string // IDs of the events for the Redis handler
}

func newShop(t *testing.T) *shop {
	s := &shop{
		t: t, tm: newTelemetry(t, otelidem.TracerProvider(tracenoop.NewTracerProvider())),
		brokers: testenv.Kafka(t),
	}
	url := testenv.Postgres(t)
	client, prefix := testenv.Redis(t)
	s.topic = testenv.CreateTopic(t, s.brokers, 4)
	s.group = "g-" + s.topic
	var err error
	s.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.brokers...))
	require.NoError(t, err)
	t.Cleanup(s.kafka.Close)
	s.pool, err = pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), s.pool))
	s.pg = pgstore.New(s.pool)
	s.redis = redisstore.New(client, redisstore.Prefix(prefix))
	return s
}

// send writes copies of each of n events of a type, with IDs from a number on.
func (s *shop) send(typ string, from, n, copies int) {
	for i := from; i < from+n; i++ {
		id := fmt.Sprintf("%s-%d", typ, i)
		for range copies {
			s.record(id, fmt.Appendf(nil, `{"event_id":%q,"type":%q}`, id, typ))
		}
		if typ == "mailed" {
			s.wanted = append(s.wanted, id)
		}
	}
}

func (s *shop) record(key string, value []byte) {
	s.kafka.Produce(context.Background(), &kgo.Record{
		Topic: s.topic, Key: []byte(key), Value: value,
	}, func(_ *kgo.Record, err error) {
		if err != nil {
			s.t.Errorf("produce: %v", err)
		}
	})
	s.sent++
}

func (s *shop) router() *idem.Router {
	r := idem.NewRouter()
	idem.OnBatchTx(r, "paid",
		func(context.Context, pgx.Tx, []idem.Event[paid]) error { return nil })
	idem.OnTx(r, "poison",
		func(context.Context, pgx.Tx, idem.Event[paid]) error { return idem.Permanent(errBoom) })
	idem.On(r, "shipped", func(_ context.Context, e idem.Event[paid]) error {
		if e.Attempt == 1 && len(e.ID)%2 == 0 {
			return errBoom // retried in place
		}
		return nil
	}, idem.Retry(idem.RetryPolicy{MinBackoff: time.Millisecond}))
	idem.On(r, "mailed", succeed, idem.Store(s.redis))
	return r
}

// start runs a consumer until stop is called; stop returns after an orderly end.
func (s *shop) start() (stop func()) {
	c, err := consumer.New(consumer.Config{
		Brokers: s.brokers, Group: s.group, Topics: []string{s.topic}, Store: s.pg,
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              []observe.Observer{s.tm.Observer},
		Logger:                 slog.New(slog.DiscardHandler),
		CommitInterval:         100 * time.Millisecond,
		Sarama: func(c *sarama.Config) {
			c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 6*time.Second,
				300*time.Millisecond
			c.Consumer.MaxWaitTime = 100 * time.Millisecond
		},
	}, s.router())
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(s.t, <-done)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// rewind commits offset 0 everywhere, so that every record is delivered again.
func (s *shop) rewind() {
	offsets := kadm.Offsets{}
	for p := range int32(4) {
		offsets.AddOffset(s.topic, p, 0, -1)
	}
	_, err := kadm.NewClient(s.kafka).CommitOffsets(s.t.Context(), s.group, offsets)
	require.NoError(s.t, err)
}

// finished waits until all records are committed.
func (s *shop) finished() {
	admin := kadm.NewClient(s.kafka)
	require.NoError(s.t, s.kafka.Flush(s.t.Context()))
	require.Eventually(s.t, func() bool {
		ends, err := admin.ListEndOffsets(s.t.Context(), s.topic)
		require.NoError(s.t, err)
		have, err := admin.FetchOffsets(s.t.Context(), s.group)
		require.NoError(s.t, err)
		missing := false
		ends.Each(func(o kadm.ListedOffset) {
			at, ok := have.Lookup(o.Topic, o.Partition)
			missing = missing || o.Offset > 0 && (!ok || at.At < o.Offset)
		})
		return !missing
	}, time.Minute, 50*time.Millisecond)
}

// deadLetters counts the records of the dead-letter topic.
func (s *shop) deadLetters() int {
	ends, err := kadm.NewClient(s.kafka).ListEndOffsets(s.t.Context(), s.topic+"."+s.group+".dlq")
	require.NoError(s.t, err)
	n := int64(0)
	ends.Each(func(o kadm.ListedOffset) { n += max(o.Offset, 0) })
	return int(n)
}

// unique counts the events that the stores have recorded as handled.
func (s *shop) unique() (n int) {
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT (SELECT count(*) FROM processed_events WHERE status = 'done') +
		(SELECT count(*) FROM idempotency_keys WHERE status = 'done')`).Scan(&n))
	for _, id := range s.wanted {
		known, err := s.redis.Inspect(s.t.Context(),
			dedup.Key{Scope: s.group, Type: "mailed", ID: id})
		require.NoError(s.t, err)
		if len(known) == 1 && known[0].State == dedup.Finished {
			n++
		}
	}
	return n
}

// requireAgreement checks the equation, with everything but deliveries and skipped read from its
// origin.
func (s *shop) requireAgreement() {
	s.t.Helper()
	deliveries, skipped := s.tm.sum(consumed), s.tm.sum(consumed, "idem.outcome=skipped")
	unique, letters := s.unique(), s.deadLetters()
	s.t.Logf("%d deliveries, %d skipped, %d unique, %d dead letters, %d duplicates", deliveries,
		skipped, unique, letters, s.tm.sum("idem.duplicates"))
	require.Equal(s.t, letters, s.tm.sum("idem.dead_letters"))
	require.Equal(s.t, letters, s.tm.sum(consumed, "idem.outcome=dead_letter"))
	require.Equal(s.t, unique, s.tm.sum(consumed, "idem.outcome=handled"))
	require.Equal(s.t, deliveries-skipped-unique-letters, s.tm.sum("idem.duplicates"))
	require.Equal(s.t, skipped, s.tm.sum("idem.skipped"))
	require.Equal(s.t, 0, s.tm.sum("idem.handlers.in_flight"))
	require.Equal(s.t, 0, s.tm.sum("idem.partitions.assigned"))
	require.Empty(s.t, s.tm.series()["idem.partition.lag"])
	require.Empty(s.t, s.tm.series()["idem.partition.pending"])
	s.tm.requireListed()
}

// The metrics agree with the stores after a first run, a whole rewind, and a rebalance between:
// duplicates = deliveries - unique events - dead letters.
func TestServices_MetricsAgreeWithTheStore(t *testing.T) {
	s := newShop(t)
	fill := func(from int) {
		s.send("paid", from, 800, 1)
		s.send("paid", from+800, 200, 3)
		s.send("shipped", from, 60, 2)
		s.send("mailed", from, 60, 2)
		s.send("poison", from, 10, 2)
		s.send("nobody's", from, 20, 1)
		for i := range 10 {
			s.record(fmt.Sprint("tombstone-", i), nil)
			s.record(fmt.Sprint("broken-", i), []byte(`{"type":"paid"}`))
		}
	}
	fill(0)
	stop := s.start()
	s.finished()
	require.GreaterOrEqual(t, s.tm.sum("idem.partitions.assigned",
		"messaging.consumer.group.name="+s.group), 4, "and those of its retry topic")
	require.Eventually(t, func() bool {
		n := 0
		for _, p := range s.tm.series()["idem.partition.lag"] {
			if has(p.attrs, "messaging.destination.name="+s.topic) && p.value == 0 {
				n++
			}
		}
		return n == 4
	}, time.Minute, 20*time.Millisecond)
	stop()
	require.Equal(t, s.sent, s.tm.sum(consumed), "nothing came twice")
	require.Equal(t, 1000+60+60, s.unique())
	s.requireAgreement()

	first := s.sent
	s.rewind()
	stop = s.start()
	s.finished()
	stop()
	require.Equal(t, 2*first, s.tm.sum(consumed))
	s.requireAgreement()
	require.GreaterOrEqual(t, s.tm.sum("idem.duplicates", "idem.duplicate.cause=same_record"),
		1000+60+60)

	s.rewind()
	one := s.start()
	require.Eventually(t, func() bool { return s.tm.sum(consumed) > 2*first+100 }, time.Minute,
		5*time.Millisecond)
	two := s.start()
	fill(10_000)
	require.Eventually(t, func() bool {
		return s.tm.sum("idem.rebalances", "idem.rebalance.kind=revoked") >= 3
	}, time.Minute, 20*time.Millisecond)
	one() // its partitions go to the other
	s.finished()
	two()
	require.Equal(t, 2*(1000+60+60), s.unique())
	s.requireAgreement()
}
