package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// delivery is one record of the load, and where it went.
type delivery struct {
	order     int // the number of the event, from 1
	copy      int // 0 for the first
	partition int32
	offset    int64 // once sent
}

// copies returns the load: events 1 to n, each times over, in an order in which some copies follow
// at once and others much later. Every second event has its copies in another partition than the
// original, as if sent under another key.
func copies(rng *rand.Rand, n, times int, partitions int32) []*delivery {
	type place struct {
		at float64
		d  *delivery
	}
	var load []place
	for i := 1; i <= n; i++ {
		home := int32(i) % partitions
		for c := range times {
			d, at := &delivery{order: i, copy: c, partition: home}, float64(i)
			if c > 0 {
				if i/int(partitions)%2 == 1 && partitions > 1 {
					d.partition = (home + 1 + rng.Int32N(partitions-1)) % partitions
				}
				if rng.IntN(3) == 0 {
					at += rng.Float64() * float64(n)
				} else {
					at += rng.Float64() * 20
				}
			}
			load = append(load, place{at, d})
		}
	}
	slices.SortStableFunc(load, func(a, b place) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	sorted := make([]*delivery, len(load))
	for i := range load {
		sorted[i] = load[i].d
	}
	return sorted
}

// producer writes the load with a client that is not the one under test.
type producer struct {
	t      testing.TB
	client *kgo.Client
	topic  string
	key    func(d *delivery) string
	value  func(d *delivery) []byte
}

func newProducer(t testing.TB, brokers []string, topic string, value func(*delivery) []byte) *producer {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic),
		kgo.ClientID("idem-chaos-load"), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(-1), // a broker that starts knows no topic
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.MetadataMinAge(100*time.Millisecond), // after an outage, the load must not wait for franz-go's five seconds
	)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	key := func(d *delivery) string { return strconv.Itoa(d.order) }
	return &producer{t: t, client: client, topic: topic, key: key, value: value}
}

// send writes the deliveries, waits until all are acknowledged and notes their offsets.
func (p *producer) send(ctx context.Context, load []*delivery) error {
	var all sync.WaitGroup
	errs := make([]error, len(load))
	for i, d := range load {
		all.Add(1)
		r := &kgo.Record{Partition: d.partition, Key: []byte(p.key(d)), Value: p.value(d)}
		p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			d.offset, errs[i] = r.Offset, err
			all.Done()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// mustSend is send for the goroutine of the test.
func (p *producer) mustSend(load []*delivery) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	require.NoError(p.t, p.send(ctx, load))
}

// payment is the value of a payment. The copies of one have event IDs of their own. Only payment_id
// shows that they are the same.
func payment(d *delivery) []byte {
	return fmt.Appendf(nil, `{"event_id":"evt-%d-%d","type":"payment.completed","payment_id":"pay-%06d","order_id":%d,"amount":%d.95,"currency":"EUR"}`,
		d.order, d.copy, d.order, d.order, d.order%100)
}

// notification is the value of a mail. All copies are the same.
func notification(run string, d *delivery) []byte {
	return fmt.Appendf(nil, `{"event_id":"%s-%06d","type":"email","user_id":"user-%d","template":"welcome","data":{"n":%d}}`,
		run, d.order, d.order%97, d.order)
}
