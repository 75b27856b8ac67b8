package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 6

// load is the events of a line, and copies of a tenth of them. Half of the copies follow at once,
// and half much later. Half of them are in another partition than the event.
type load struct {
	t      testing.TB
	rng    *rand.Rand
	client *kgo.Client
	later  map[int][]int // the numbers of events by the number of the event before which a copy comes
	events int
	next   int // the number of the next event, from 0
	sent   int // records

	mu sync.Mutex
	at [partitions][]uint32 // the event of each record, by its offset
}

func newLoad(t testing.TB, rng *rand.Rand, brokers []string, topic string, events int) *load {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic),
		kgo.ClientID("idem-soak-load"),
	)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &load{t: t, rng: rng, client: client, later: make(map[int][]int), events: events}
}

func (l *load) spent() bool { return l.next == l.events }

// release sends the next n events, with the copies that are due.
func (l *load) release(n int) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(l.t.Context(), time.Minute)
	defer stop()
	var all sync.WaitGroup
	var failed error // under mu
	send := func(n int, partition int32) {
		all.Add(1)
		l.sent++
		r := &kgo.Record{Partition: partition, Value: fmt.Appendf(nil, `{"event_id":"%d","n":%d}`, n, n)}
		l.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			defer all.Done()
			l.mu.Lock()
			defer l.mu.Unlock()
			failed = errors.Join(failed, err)
			if err == nil {
				at := &l.at[partition]
				*at = append(*at, make([]uint32, max(0, int(r.Offset)+1-len(*at)))...)
				(*at)[r.Offset] = uint32(n)
			}
		})
	}
	for range min(n, l.events-l.next) {
		at := l.next
		l.next++
		send(at, home(at))
		if l.rng.IntN(10) == 0 {
			due := at
			if l.rng.IntN(2) == 0 {
				due += l.rng.IntN(l.events - at)
			}
			l.later[due] = append(l.later[due], at)
		}
		for _, n := range l.later[at] {
			p := home(n)
			if l.rng.IntN(2) == 0 {
				p = l.rng.Int32N(partitions)
			}
			send(n, p)
		}
		delete(l.later, at)
	}
	all.Wait()
	require.NoError(l.t, failed)
}

func home(n int) int32 { return int32(n % partitions) } //nolint:gosec // below partitions
