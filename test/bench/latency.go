package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

// Latency: 100 events a second, alternately to a consumer written by hand and to Idem, side by
// side. The time runs from the production of the record to the commit of the effect. The consumer
// by hand commits too, so the difference is the time that Idem adds.

const (
	latencyRate    = 100 // events a second for each
	latencyWarm    = 50  // of each, which are not counted: they wait for the group to be joined
	latencyTimeout = 2 * time.Minute
)

// side is one of the two consumers.
type side struct {
	x       *run
	list    []delivery
	consume func(ctx context.Context) error

	mu   sync.Mutex
	sent []time.Time
	took []time.Duration
	left int
	done chan struct{} // all that was sent is committed
}

// latencyResult is in milliseconds.
type latencyResult struct {
	Naive50 float64 `json:"naive_median_ms"`
	Naive99 float64 `json:"naive_p99_ms"`
	Idem50  float64 `json:"idem_median_ms"`
	Idem99  float64 `json:"idem_p99_ms"`
}

func (b *bench) latency(ctx context.Context, events int) (res latencyResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, latencyTimeout)
	defer cancel()
	naive, err := b.newSide("naive", events, 0)
	if err != nil {
		return res, err
	}
	naive.consume = naive.byHand
	ours, err := b.newSide("idem", events, events+latencyWarm)
	if err != nil {
		return res, err
	}
	ours.consume = ours.byIdem
	if err := b.lab.reset(ctx, 2*(events+latencyWarm)); err != nil {
		return res, err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.lab.brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		return res, err
	}
	defer client.Close()
	failed := newFirstError()
	work, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, s := range []*side{naive, ours} {
		running.Go(func() { failed.add(s.consume(work)) })
	}
	failed.add(alternate(ctx, client, failed, 0, latencyWarm, naive, ours))
	failed.add(alternate(ctx, client, failed, latencyWarm, events+latencyWarm, naive, ours))
	stop()
	running.Wait()
	if err := failed.get(); err != nil {
		return res, fmt.Errorf("latency: %w", err)
	}
	res.Naive50, res.Naive99 = naive.percentiles()
	res.Idem50, res.Idem99 = ours.percentiles()
	return res, nil
}

func (b *bench) newSide(name string, events, firstOrder int) (*side, error) {
	sp := spec{deliveries: events + latencyWarm, partitions: 6, once: true, seed: 5}
	list, n := sp.generate()
	for i := range list {
		list[i].OrderID += int64(firstOrder)
	}
	group := fmt.Sprintf("%s-latency-%s-%d", b.lab.id, name, len(b.lab.created))
	x := &run{
		lab:   b.lab,
		row:   &row{name: name, pay: payOwn},
		group: group,
		scope: group,
		meter: newMeter(n, n),
	}
	x.topic = &topic{spec: sp, name: group, unique: n}
	return &side{
			x:    x,
			list: list,
			sent: make([]time.Time, n),
			took: make([]time.Duration, n),
		}, b.lab.createTopic(
			group,
			sp.partitions,
		)
}

func (s *side) byHand(ctx context.Context) error {
	return consumeSarama(ctx, s.x, func(ctx context.Context, value []byte) error {
		if err := naiveTx(ctx, s.x, value); err != nil {
			return err
		}
		var p payment
		err := json.Unmarshal(value, &p)
		s.committed(p.Seq)
		return err
	})
}

func (s *side) byIdem(ctx context.Context) error {
	r := idem.NewRouter()
	idem.OnTx(r, eventType, func(ctx context.Context, tx pgx.Tx, e idem.Event[payment]) error {
		return s.x.row.pay(ctx, tx, &e.Data)
	})
	return consumeIdem(ctx, s.x, s.x.postgres(), r, claims{s})
}

// claims notes commits: the answer to a transactional claim comes after the commit.
type claims struct{ *side }

func (c claims) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	if seq, err := strconv.Atoi(string(e.Message.Key)); err == nil && e.Err == nil {
		c.committed(seq - 1) // see spec.event
	}
}

func (s *side) committed(seq int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.took[seq] > 0 {
		return
	}
	s.took[seq] = now.Sub(s.sent[seq])
	if s.left--; s.left == 0 {
		close(s.done)
	}
}

// send notes when an event is on its way.
func (s *side) send(seq int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[seq] = time.Now()
}

func (s *side) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.done = n, make(chan struct{})
}

// alternate sends the events from..to to each side in turn, and waits until they are committed.
func alternate(
	ctx context.Context,
	client *kgo.Client,
	failed *firstError,
	from, to int,
	sides ...*side,
) error {
	for _, s := range sides {
		s.expect(to - from)
	}
	tick := time.NewTicker(time.Second / latencyRate / time.Duration(len(sides)))
	defer tick.Stop()
	for i := from; i < to; i++ {
		for _, s := range sides {
			r, err := s.list[i].record(s.x.topic.name)
			if err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			s.send(i)
			client.Produce(ctx, r, func(_ *kgo.Record, err error) { failed.add(err) })
		}
	}
	for _, s := range sides {
		select {
		case <-s.done:
		case <-failed.found:
			return nil
		case <-ctx.Done():
			return fmt.Errorf(
				"%s: %d events are not committed: %w",
				s.x.row.name,
				s.left,
				ctx.Err(),
			)
		}
	}
	return nil
}

func (s *side) percentiles() (p50, p99 float64) {
	took := slices.Sorted(slices.Values(s.took[latencyWarm:]))
	ms := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1000 }
	return ms(0.5), ms(0.99)
}
