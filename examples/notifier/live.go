package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/ops"
	"github.com/idem-go/idem/ops/doctor"
)

// This file is the demonstration that does not end, which gives the ops page something to show. A
// producer repeats itself, a provider fails now and then, and one of two workers is restarted
// regularly. The topic and the store are in memory and grow by about 30 MB an hour.

const (
	liveRate    = 40 // records a second
	liveRestart = 45 * time.Second
	// The vouchers of one customer stay in order and do not delay those of others.
	voucher = "voucher"
)

// runLive feeds and works until ctx ends, and serves the page.
func runLive(ctx context.Context, o *options, out io.Writer) int {
	d := newDemo(out, o.log, memstore.New(memstore.Volatile()))
	if err := d.live(ctx, o.ops); err != nil && ctx.Err() == nil {
		fmt.Fprintf(out, "FAILED: %v\n", err)
		return cli.ExitError
	}
	return cli.ExitOK
}

func (d *demo) live(ctx context.Context, addr string) (err error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(d.partitions, d.topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	d.addrs = cluster.ListenAddrs()
	if d.client, err = kgo.NewClient(kgo.SeedBrokers(d.addrs...)); err != nil {
		return err
	}
	defer d.client.Close()

	d.monitor = ops.NewMonitor()
	d.steady = true
	if _, err := d.start("worker-1"); err != nil {
		return err
	}
	if _, err := d.start("worker-2"); err != nil {
		return errors.Join(err, d.stopWorkers())
	}
	defer func() { err = errors.Join(err, d.stopWorkers()) }()
	cfg := d.config("worker-1", newPlug())
	cfg.Scope, cfg.Sarama, cfg.InstanceID = scope, nil, ""
	page := ops.Config{
		Consumer: cfg, Monitor: d.monitor, Title: "demo",
		Doctor: doctor.New(doctor.Config{
			Consumer: cfg, Memory: true, Retention: time.Hour, Instances: 2,
		}),
	}
	stop, url, err := servePage(ctx, addr, page, d.log)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(d.screen.out, "The ops page is at %s\n"+
		"Events flow until Ctrl-C, with copies, invalid records and provider failures.\n", url)

	var chores sync.WaitGroup
	defer chores.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chores.Go(func() {
		if err := d.feedSteadily(ctx); err != nil {
			cancel(err)
		}
	})
	if err := d.restartNowAndThen(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// restartNowAndThen lets one worker leave and return, so that partitions move.
func (d *demo) restartNowAndThen(ctx context.Context) error {
	tick := time.NewTicker(liveRestart)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		w := d.workers[len(d.workers)-1]
		w.stop()
		<-w.ended
		if w.err != nil {
			return fmt.Errorf("%s: %w", w.name, w.err)
		}
		d.workers = d.workers[:len(d.workers)-1]
		if _, err := d.start(w.name); err != nil {
			return err
		}
	}
}

// feedSteadily writes events, and some of them again under the same key, another key, or no key.
func (d *demo) feedSteadily(ctx context.Context) error {
	tick := time.NewTicker(time.Second / liveRate)
	defer tick.Stop()
	channels := [...]string{"email", "sms", "push", "email", voucher}
	var recent []*kgo.Record
	poison := newPlan(d.topic, 1, 0, 1).poison
	next := 0 // number of the next event
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		r := eventRecord(d.topic,
			event{channels[next%len(channels)], fmt.Sprintf("evt-%06d", next)}, rand.IntN(50))
		switch n := rand.IntN(100); {
		case n < 20 && len(recent) > 0:
			again := *recent[rand.IntN(len(recent))]
			again.Key = [][]byte{again.Key, fmt.Appendf(nil, "retry-%d", i%50), nil}[i%3]
			r = &again
		case n == 99 && i%4 == 0:
			r = &kgo.Record{Topic: d.topic, Key: []byte("poison"),
				Value: []byte(poison[rand.IntN(len(poison))])}
		default:
			next++
			if recent = append(recent, r); len(recent) > 500 {
				recent = recent[1:]
			}
		}
		again := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
		if err := d.client.ProduceSync(ctx, again).FirstErr(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
}

// liveRouter adds vouchers to the router of the worker.
func liveRouter(send sender) *idem.Router {
	router := newRouter(send, time.Hour)
	idem.On(router, voucher, notify(send), idem.KeyOrdered(2*time.Second, 8*time.Second))
	return router
}

// moody is a provider that refuses some events at their first attempt, fails with others for a
// while, and is slow now and then. A replay succeeds.
type moody struct {
	mu   sync.Mutex
	seen map[string]int
}

var (
	errMailbox  = errors.New("the mailbox is full")
	errProvider = errors.New("the provider answered 503 Service Unavailable")
)

// maxSeen bounds the number of remembered events.
const maxSeen = 10_000

// moodySender sends the notifications of one worker to the provider.
type moodySender struct {
	moods *moody
	sender
}

// tries returns the number of attempts of an event.
func (m *moody) tries(n notification) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) > maxSeen {
		clear(m.seen)
	}
	m.seen[n.Type+n.EventID]++
	return m.seen[n.Type+n.EventID]
}

// Send implements sender.
func (m *moodySender) Send(ctx context.Context, n notification, key string) error {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(n.EventID + n.Type))
	kind := sum.Sum32() % 1000
	if kind > 30 {
		return m.sender.Send(ctx, n, key)
	}
	tries := m.moods.tries(n)
	switch {
	case (kind == 0 || kind == 1 && n.Type == voucher) && tries == 1:
		return idem.Permanent(errMailbox)
	case kind < 12 && tries <= 2 && n.Type == voucher:
		return idem.RetryAfter(10*time.Second, errProvider) // too long to retry in place
	case kind < 16 && tries <= 2:
		return errProvider
	case kind >= 24 && tries == 1:
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return m.sender.Send(ctx, n, key)
}
