package drills

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

const (
	source, deadLetters, emitted = "drill", "drill.workers.dlq", "out"
	offsets                      = "__consumer_offsets"
)

// errPoison fails the events that become dead letters.
var errPoison = errors.New("poison")

// chain has the parts of a drill of Kafka: a producer, consumers with effects in Postgres, their
// dead letters, an outbox and its relay.
type chain struct {
	*kafka
	t        *testing.T
	pg       *postgres
	producer *consumer.Producer
	stop     func() // ends consumers and relay, and waits for their end
	phases   []sent
}

// sent has the IDs of the events of a phase.
type sent struct {
	name      string
	good, bad []string // bad ones become dead letters
}

// K-29 and others: no event is lost and no event has two effects while leaders change, a broker
// dies, too few replicas are in sync, and a topic gets more partitions.
func TestKafkaFailover_K29(t *testing.T) {
	needLong(t)
	c := startChain(t)
	topics := []string{source, deadLetters, emitted, offsets}
	c.phase("no fault", func() { time.Sleep(3 * time.Second) })
	c.phase("leaders change", func() {
		for by := 1; by <= 3; by++ {
			c.rotate(t, by, topics...)
			time.Sleep(2 * time.Second)
		}
	})
	c.phase("a broker killed", func() {
		c.nodes[0].kill()
		time.Sleep(10 * time.Second)
		c.nodes[0].serve(t)
		c.awaitInSync(t, topics...)
		c.electLeaders(t, topics...)
		time.Sleep(2 * time.Second)
	})
	c.phase("min.insync.replicas not met", func() {
		c.set(t, "min.insync.replicas", "3", topics...)
		c.nodes[1].kill()
		time.Sleep(20 * time.Second)
		c.nodes[1].serve(t)
		c.awaitInSync(t, topics...)
		c.set(t, "min.insync.replicas", "2", topics...)
		time.Sleep(2 * time.Second)
	})
	c.phase("partitions added", func() {
		_, admin := c.admin(t)
		require.NoError(t, admin.CreatePartitions(source, 8, nil, false))
		time.Sleep(10 * time.Second)
	})
	c.awaitConsumed()
	c.stop() // while the brokers live
	for _, p := range c.phases {
		c.count(p)
	}
}

// awaitConsumed waits until the group has committed all records, also the last copies of the
// events.
func (c *chain) awaitConsumed() {
	c.t.Helper()
	client, admin := c.admin(c.t)
	partitions, err := client.Partitions(source)
	require.NoError(c.t, err)
	require.Eventually(c.t, func() bool {
		committed, err := admin.ListConsumerGroupOffsets("workers", map[string][]int32{source: partitions})
		if err != nil {
			return false
		}
		for _, p := range partitions {
			end, err := client.GetOffset(source, p, sarama.OffsetNewest)
			block := committed.GetBlock(source, p)
			if err != nil || block == nil || end > 0 && block.Offset < end {
				return false
			}
		}
		return true
	}, 60*time.Second, 500*time.Millisecond, "records are not consumed")
}

// count counts the effects of a phase once more, after the last copies. Relays and dead letters may
// publish copies.
func (c *chain) count(p sent) {
	c.t.Helper()
	r := tally(p.good, effectsIn(c.t, c.pg.url("drill")))
	out, dead := tally(p.good, c.idsIn(c.t, emitted)), tally(p.bad, c.idsIn(c.t, deadLetters))
	assert.Zero(c.t, r.doubled, "%s: effects, at the end", p.name)
	assert.Zero(c.t, r.lost+out.lost+dead.lost, "%s: lost at the end", p.name)
	assert.Zero(c.t, tally(p.bad, effectsIn(c.t, c.pg.url("drill"))).effects, "%s: effects of dead letters", p.name)
}

// startChain starts the servers, the consumers and a relay.
func startChain(t *testing.T) *chain {
	t.Helper()
	c := &chain{t: t, kafka: startKafka(t), pg: startPostgres(t)}
	c.pg.prepare(t, "drill")
	for _, topic := range []string{source, deadLetters, emitted} {
		c.create(t, topic, 3)
	}
	var err error
	c.producer, err = consumer.OpenProducer(consumer.Config{Brokers: c.brokers, Sarama: fastMetadata})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.producer.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	c.stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(c.stop)
	for range 2 {
		w := c.worker()
		all.Go(func() { assert.NoError(t, w.Run(ctx)) })
	}
	pool := c.pool()
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: pgoutbox.New(pool), Producer: c.producer, Interval: 50 * time.Millisecond, Lease: 3 * time.Second, Logger: logger(t),
	})
	require.NoError(t, err)
	all.Go(func() {
		if err := relay.Run(ctx); !errors.Is(err, context.Canceled) {
			assert.NoError(t, err)
		}
	})
	return c
}

// fastMetadata lets clients see added partitions within seconds.
func fastMetadata(sc *sarama.Config) { sc.Metadata.RefreshFrequency = 2 * time.Second }

func logger(t testing.TB) *slog.Logger {
	level := slog.LevelError
	if os.Getenv("IDEM_DRILL_LOG") != "" {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

func (c *chain) pool() *pgxpool.Pool {
	pool, err := pgxpool.New(c.t.Context(), c.pg.url("drill"))
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	return pool
}

// worker is a consumer with a handler that writes an effect and emits an event.
func (c *chain) worker() *consumer.Consumer {
	pool := c.pool()
	box := pgoutbox.New(pool)
	router := idem.NewRouter()
	idem.OnTx(router, "inside", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
		if poisoned(e.ID) {
			return idem.Permanent(errPoison)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", e.ID); err != nil {
			return err
		}
		return box.Add(ctx, tx, outbox.Entry{Topic: emitted, Key: e.ID, Type: "done", ID: e.ID, Payload: []byte(`{}`)})
	})
	w, err := consumer.New(consumer.Config{
		Brokers: c.brokers, Group: "workers", Topics: []string{source}, Store: pgstore.New(pool),
		Sarama: fastMetadata, Logger: logger(c.t),
	}, router)
	require.NoError(c.t, err)
	return w
}

func poisoned(id string) bool { return hashed(id)%40 == 0 }

// produce publishes events, some of them twice, until ctx ends. A record that was not acknowledged
// is published again.
func (c *chain) produce(ctx context.Context, name string) (ids []string) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s %d", name, n)
		ids = append(ids, id)
		for range 1 + n%3/2 {
			c.publish(id)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ids
}

func (c *chain) publish(id string) {
	m := &idem.Message{
		Topic: source, Key: []byte(id), Value: fmt.Appendf(nil, `{"id":%q}`, id), Time: time.Now(),
		Headers: []idem.Header{{Key: "event-type", Value: []byte("inside")}, {Key: "event-id", Value: []byte(id)}},
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(c.t.Context(), 40*time.Second)
		err := c.producer.Produce(ctx, m)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	assert.Fail(c.t, "an event is not published in two minutes", id)
}

// phase produces while a fault happens, waits until all is handled, and prints the line.
func (c *chain) phase(name string, fault func()) {
	c.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	var parts [4][]string
	for i := range parts {
		all.Go(func() { parts[i] = c.produce(ctx, fmt.Sprintf("%s/%d", name, i)) })
	}
	fault()
	cancel()
	all.Wait()
	ids := slices.Concat(parts[:]...)
	var good, bad []string
	for _, id := range ids {
		if poisoned(id) {
			bad = append(bad, id)
		} else {
			good = append(good, id)
		}
	}
	c.phases = append(c.phases, sent{name, good, bad})
	var r, out, dead result
	assert.Eventually(c.t, func() bool {
		if r = tally(good, effectsIn(c.t, c.pg.url("drill"))); r.lost > 0 {
			return false
		}
		out, dead = tally(good, c.idsIn(c.t, emitted)), tally(bad, c.idsIn(c.t, deadLetters))
		return out.lost+dead.lost == 0
	}, 90*time.Second, 500*time.Millisecond, "%s: events are not handled", name)
	r.began, r.name = began, name
	r.notes = fmt.Sprintf("emitted: lost=%d copies=%d; dead letters: sent=%d lost=%d copies=%d",
		out.lost, out.doubled, dead.sent, dead.lost, dead.doubled)
	r.print(c.t)
	assert.Zero(c.t, r.doubled)
}
