package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// publishRows drain a backlog: Idem's relay, the loop of many articles, and the broker without a
// database.
func publishRows(n sizes) []row {
	const many, hot = 10_000, 10
	of := func(name, about string, aggregates int, fill func(context.Context, *run) error, publish func(context.Context, *run) error) row {
		return row{
			name: name, about: about, unit: events, spec: spec{deliveries: n.outbox, partitions: 6, once: true, seed: 6},
			consume: publish, check: inTopic, empty: true, aggregates: aggregates, backlog: fill,
		}
	}
	rows := []row{
		of(
			"broker-limit",
			"the same records by sarama's async producer, no database",
			many,
			nil,
			produceAll,
		),
		of(
			"skip-locked",
			"what people copy: FOR UPDATE SKIP LOCKED, produce, mark as sent, in one transaction; 100 rows",
			many,
			fillNaive,
			skipLocked(100),
		),
		of("relay", "outbox.Relay, its defaults: 100 to 2,000 rows a batch", many, fillOutbox, relay(0)),
		of("relay-two", "two relays, which share the shards", many, fillOutbox, twoRelays),
		of("skip-locked-1000", "the same loop, 1,000 rows", many, fillNaive, skipLocked(1000)),
		of("relay-1000", "outbox.Relay, at most 1,000 rows a batch", many, fillOutbox, relay(1000)),
		of("skip-locked-2000", "the same loop, 2,000 rows", many, fillNaive, skipLocked(2000)),
		of("relay-hot", "outbox.Relay, its defaults, 10 aggregates", hot, fillOutbox, relay(0)),
		of(
			"relay-hot-1000",
			"outbox.Relay, at most 1,000 rows a batch, 10 aggregates",
			hot,
			fillOutbox,
			relay(1000),
		),
	}
	for i := range rows {
		rows[i].core = slices.Contains([]string{"skip-locked", "relay", "relay-hot"}, rows[i].name)
	}
	return rows
}

// producerConfig returns the configuration of Idem's own producer: acks of all replicas,
// idempotent, partitions as Java's clients choose them. Batches stay below the topic's
// max.message.bytes, which Idem's producer reads from the broker.
func producerConfig() (*sarama.Config, error) {
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{Group: "bench"})
	if err == nil {
		cfg.Producer.MaxMessageBytes = 1_000_000
	}
	return cfg, err
}

// produceAll hands all records to sarama as fast as possible.
func produceAll(ctx context.Context, x *run) error {
	cfg, err := producerConfig()
	if err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, x.topic.unique)
	for seq := range messages {
		messages[seq] = naiveMessage(
			x.topic.name,
			x.row.aggregateOf(seq),
			emitted,
			fmt.Sprintf("%08x-0000-7000-8000-%012x", seq, seq),
			payloadOf(seq),
		)
	}
	producer, err := sarama.NewAsyncProducer(x.brokers, cfg)
	if err != nil {
		return err
	}
	failed := newFirstError()
	var acks sync.WaitGroup
	acks.Go(func() {
		for range producer.Successes() {
			x.meter.count(1)
		}
	})
	acks.Go(func() {
		for e := range producer.Errors() {
			failed.add(e)
		}
	})
	x.meter.begin()
	for _, m := range messages {
		select {
		case producer.Input() <- m:
		case <-failed.found:
		case <-ctx.Done():
		}
	}
	producer.AsyncClose() // sends the buffered records
	acks.Wait()
	return failed.get()
}

// naiveMessage has the headers that Idem's records have.
func naiveMessage(topic, key, typ, id string, payload []byte) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(payload),
		Headers: []sarama.RecordHeader{
			{Key: []byte(outbox.HeaderID), Value: []byte(id)},
			{Key: []byte(outbox.HeaderType), Value: []byte(typ)},
		},
	}
}

// skipLocked is one relay of many articles. The relay holds a transaction, and the locks of its
// rows, while it waits for the broker.
func skipLocked(limit int) func(context.Context, *run) error {
	return func(ctx context.Context, x *run) error {
		cfg, err := producerConfig()
		if err != nil {
			return err
		}
		producer, err := sarama.NewSyncProducer(x.brokers, cfg)
		if err != nil {
			return err
		}
		defer producer.Close()
		x.meter.begin()
		for x.meter.left.Load() > 0 {
			n, err := skipLockedOnce(ctx, x, producer, limit)
			if err != nil {
				return err
			}
			x.meter.count(n)
		}
		return nil
	}
}

const (
	naiveSelect = `SELECT id, topic, aggregate, event_type, event_id::text, payload FROM naive_outbox WHERE sent = false ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`
	naiveUpdate = "UPDATE naive_outbox SET sent = true WHERE id = ANY($1)"
)

func skipLockedOnce(
	ctx context.Context,
	x *run,
	producer sarama.SyncProducer,
	limit int,
) (n int, err error) {
	err = pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, naiveSelect, limit)
		if err != nil {
			return err
		}
		var ids []int64
		var messages []*sarama.ProducerMessage
		var id int64
		var topic, aggregate, typ, event string
		var payload []byte
		_, err = pgx.ForEachRow(
			rows,
			[]any{&id, &topic, &aggregate, &typ, &event, &payload},
			func() error {
				ids = append(ids, id)
				messages = append(messages, naiveMessage(topic, aggregate, typ, event, payload))
				payload = nil // the message has it
				return nil
			},
		)
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		if err := producer.SendMessages(messages); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, naiveUpdate, ids)
		return err
	})
	return n, err
}

// relay is Idem's. It runs until the run's last event is settled.
func relay(batch int) func(context.Context, *run) error {
	return func(ctx context.Context, x *run) error {
		return x.runRelay(
			ctx,
			&timed{Outbox: pgoutbox.New(x.pool), x: x},
			outbox.RelayConfig{Batch: batch},
		)
	}
}

// twoRelays shows the time that one relay loses, as it waits for the database and the broker in
// turns.
func twoRelays(ctx context.Context, x *run) error {
	group, ctx := errgroup.WithContext(ctx)
	for range 2 {
		group.Go(func() error { return relay(0)(ctx, x) })
	}
	return group.Wait()
}

// runRelay runs a relay with a producer of its own until ctx ends.
func (x *run) runRelay(ctx context.Context, store outbox.Store, cfg outbox.RelayConfig) error {
	producer, err := consumer.OpenProducer(consumer.Config{Brokers: x.brokers, AllowInsecure: true})
	if err != nil {
		return err
	}
	refused := newFirstError()
	cfg.Store, cfg.Producer, cfg.Logger = store, timedProducer{
		producer,
		&x.rounds,
	}, slog.New(
		slog.NewTextHandler(io.Discard, nil),
	)
	cfg.Observers = []outbox.Observer{watch{refused}}
	r, err := outbox.NewRelay(cfg)
	if err != nil {
		return errors.Join(err, producer.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case err = <-ended:
	case <-refused.found:
		cancel()
		err = errors.Join(refused.get(), <-ended)
	}
	return errors.Join(err, producer.Close())
}

// watch fails a run if the relay reports an error.
type watch struct{ failed *firstError }

func (w watch) ObserveRound(ctx context.Context, r outbox.Round) {
	if ctx.Err() == nil {
		w.failed.add(r.Err)
	}
}

func (w watch) ObserveParked(_ context.Context, _ outbox.Row, err error) { w.failed.add(err) }

// rounds is where a relay's time goes, in nanoseconds: three waits that follow each other.
type rounds struct{ n, fetch, produce, settle atomic.Int64 }

// timed is the table with a clock. It reports settled rows to the meter.
type timed struct {
	*pgoutbox.Outbox
	x *run
}

func (t *timed) Fetch(ctx context.Context, f outbox.Fetch) ([]outbox.Row, error) {
	t.x.meter.begin()
	began := time.Now()
	rows, err := t.Outbox.Fetch(ctx, f)
	t.x.rounds.fetch.Add(int64(time.Since(began)))
	if len(rows) > 0 {
		t.x.rounds.n.Add(1)
	}
	return rows, err
}

func (t *timed) Settle(
	ctx context.Context,
	relay string,
	held []outbox.Lease,
	s outbox.Settlement,
) ([]int, error) {
	began := time.Now()
	lost, err := t.Outbox.Settle(ctx, relay, held, s)
	t.x.rounds.settle.Add(int64(time.Since(began)))
	if err == nil {
		t.x.meter.count(len(s.Sent))
	}
	return lost, err
}

type timedProducer struct {
	*consumer.Producer
	rounds *rounds
}

func (p timedProducer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	defer p.note(time.Now())
	return p.Producer.ProduceEach(ctx, msgs)
}

func (p timedProducer) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	defer p.note(time.Now())
	return p.Producer.ProduceInOrder(ctx, msgs)
}

func (p timedProducer) note(began time.Time) { p.rounds.produce.Add(int64(time.Since(began))) }
