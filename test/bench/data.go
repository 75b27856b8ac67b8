package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// payment is the event. As JSON it has about 250 bytes.
type payment struct {
	EventID  string `json:"event_id"`
	Type     string `json:"type"`
	Seq      int    `json:"seq"` // number of the event, from 0; effects are counted by Seq
	OrderID  int64  `json:"order_id"`
	Account  int64  `json:"account"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Method   string `json:"method"`
	Customer string `json:"customer"`
	At       string `json:"occurred_at"`
}

const (
	eventType = "payment.completed"
	headerID  = "event-id"
	copies    = 0.2 // of the deliveries
	accounts  = 1000
)

// spec describes the records of a topic. Equal specs are the same records.
type spec struct {
	deliveries int
	partitions int32
	random     bool // IDs of UUID version 4 instead of the time-ordered 7
	once       bool // no copies
	keys       int  // how many Kafka keys a partition has; 0: every event has one of its own
	seed       uint64
}

// delivery is one record.
type delivery struct {
	payment
	key       string
	partition int32
}

// generate returns the records in the order of production. A copy has the bytes, the key and the
// partition of its original, and follows at a random distance.
func (s spec) generate() (list []delivery, unique int) {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	list = make([]delivery, 0, s.deliveries)
	events := make([]delivery, 0, s.deliveries)
	for i := range s.deliveries {
		if !s.once && len(events) > 0 && rng.Float64() < copies {
			list = append(list, events[rng.IntN(len(events))])
			continue
		}
		d := s.event(rng, began.Add(time.Duration(i)*time.Millisecond), len(events))
		events = append(events, d)
		list = append(list, d)
	}
	return list, len(events)
}

func (s spec) event(rng *rand.Rand, at time.Time, seq int) delivery {
	d := delivery{partition: int32(seq % int(s.partitions))}
	d.payment = payment{
		EventID: s.id(rng, at), Type: eventType, Seq: seq, OrderID: int64(seq) + 1,
		Account: rng.Int64N(accounts) + 1, Amount: rng.Int64N(10000) + 1,
		Currency: "EUR", Method: "card", Customer: fmt.Sprintf("customer-%08d", rng.IntN(1e8)), At: at.Format(time.RFC3339Nano),
	}
	d.key = strconv.FormatInt(d.OrderID, 10)
	if s.keys > 0 {
		d.key = fmt.Sprintf("key-%d-%d", d.partition, rng.IntN(s.keys))
	}
	return d
}

func (s spec) id(rng *rand.Rand, at time.Time) string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], rng.Uint64())
	binary.BigEndian.PutUint64(u[8:], rng.Uint64())
	version := byte(4)
	if !s.random {
		version = 7
		ms := uint64(at.UnixMilli())
		binary.BigEndian.PutUint16(u[:], uint16(ms>>32))
		binary.BigEndian.PutUint32(u[2:], uint32(ms))
	}
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

func (d *delivery) record(topic string) (*kgo.Record, error) {
	value, err := json.Marshal(&d.payment)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{
		Topic: topic, Partition: d.partition, Key: []byte(d.key), Value: value,
		Headers: []kgo.RecordHeader{
			{Key: headerID, Value: []byte(d.EventID)},
			{Key: "event-type", Value: []byte(d.Type)},
		},
	}, nil
}

// topic has the produced records of a spec.
type topic struct {
	spec
	name   string
	unique int
}

// topic produces the records of a spec, once in a run.
func (l *lab) topic(ctx context.Context, s spec) (*topic, error) {
	if t := l.topics[s]; t != nil {
		return t, nil
	}
	t := &topic{spec: s, name: fmt.Sprintf("%s-%d", l.id, len(l.topics))}
	if err := l.createTopic(t.name, s.partitions); err != nil {
		return nil, err
	}
	list, unique := s.generate()
	t.unique = unique
	client, err := kgo.NewClient(
		kgo.SeedBrokers(l.brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(
			5*time.Millisecond,
		),
		kgo.MaxBufferedRecords(100_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	results := newFirstError()
	for i := range list {
		r, err := list[i].record(t.name)
		if err != nil {
			return nil, err
		}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) { results.add(err) })
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	if err := results.get(); err != nil {
		return nil, fmt.Errorf("produce to %s: %w", t.name, err)
	}
	l.topics[s] = t
	return t, nil
}

func (l *lab) createTopic(name string, partitions int32) error {
	l.created = append(l.created, name)
	return l.admin.CreateTopic(
		name,
		&sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1},
		false,
	)
}
