package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Delay: from the commit of a transaction that adds an event until a consumer has the event.
// Transactions begin at a steady rate, regardless of earlier ones.

const (
	delayWarm    = time.Second      // which is not counted
	delayTakes   = 10 * time.Second // for each case
	delayTimeout = time.Minute
	delayWriters = 16
)

// delayCase is one way to learn of new rows, at one rate.
type delayCase struct {
	name     string
	interval time.Duration
	wake     bool
	rate     int // rows a second, each in a transaction
}

func delayCases() (all []delayCase) {
	for _, rate := range []int{100, 1000} {
		all = append(
			all,
			delayCase{
				name:     "poll each 500 ms, the default",
				interval: 500 * time.Millisecond,
				rate:     rate,
			},
			delayCase{name: "poll each 50 ms", interval: 50 * time.Millisecond, rate: rate},
			delayCase{
				name:     "poll each 500 ms, and Wake (NOTIFY)",
				interval: 500 * time.Millisecond,
				wake:     true,
				rate:     rate,
			},
		)
	}
	return all
}

// delayResult is in milliseconds.
type delayResult struct {
	delayCase
	reached       float64 // rows a second that were committed
	p50, p99, max float64
}

func (b *bench) delays(ctx context.Context) (all []delayResult, err error) {
	for _, c := range delayCases() {
		res, err := b.delay(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("delay, %s, %d rows/s: %w", c.name, c.rate, err)
		}
		logf("  %s, %d rows/s: median %.1f ms, p99 %.1f ms", c.name, c.rate, res.p50, res.p99)
		all = append(all, res)
	}
	return all, nil
}

func (b *bench) delay(ctx context.Context, c delayCase) (res delayResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, delayTimeout)
	defer cancel()
	warm := int(delayWarm.Seconds() * float64(c.rate))
	n := warm + int(delayTakes.Seconds()*float64(c.rate))
	x, err := b.outboxRun(ctx, n)
	if err != nil {
		return res, err
	}
	defer x.dropTopic(x.topic)
	var opts []pgoutbox.Option
	if c.wake {
		opts = append(opts, pgoutbox.Notify())
	}
	box := pgoutbox.New(x.pool, opts...)
	times := newArrivals(n)
	work, stop := context.WithCancel(ctx)
	defer stop()
	failed := newFirstError()
	var running sync.WaitGroup
	running.Go(func() { failed.add(times.read(work, x)) })
	running.Go(
		func() { failed.add(x.runRelay(work, box, outbox.RelayConfig{Interval: c.interval, Wake: c.wake})) },
	)
	began := time.Now()
	err = paced(work, delayWriters, n, c.rate, failed, func(ctx context.Context, seq int) error {
		err := pgx.BeginFunc(
			ctx,
			x.pool,
			func(tx pgx.Tx) error { return box.Add(ctx, tx, x.entry(seq)) },
		)
		times.committed(seq)
		return err
	})
	res = delayResult{delayCase: c, reached: float64(n) / time.Since(began).Seconds()}
	if err == nil {
		err = times.wait(ctx, failed)
	}
	stop()
	running.Wait()
	if err == nil {
		err = failed.get()
	}
	res.p50, res.p99, res.max = times.percentiles(warm)
	return res, err
}

// outboxRun prepares empty tables and a topic for n events that are added while they are measured.
func (b *bench) outboxRun(ctx context.Context, n int) (x *run, err error) {
	sp := spec{deliveries: n, partitions: 6, once: true, seed: 8}
	x = &run{lab: b.lab, row: &row{name: "outbox", spec: sp, aggregates: 10_000}}
	if err := b.lab.reset(ctx, 0); err != nil {
		return nil, err
	}
	x.topic, err = b.lab.emptyTopic(sp)
	return x, err
}

// paced calls do for 0 to n-1 at a rate per second, by several workers, until one fails. Slow
// workers make the calls fall behind.
func paced(
	ctx context.Context,
	workers, n, rate int,
	failed *firstError,
	do func(ctx context.Context, i int) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	due := make(chan int, rate) // a second of it may queue
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range due {
				if err := do(ctx, i); err != nil {
					failed.add(err)
					cancel()
				}
			}
		})
	}
	began := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		wait := time.NewTimer(
			time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))),
		)
		select {
		case <-wait.C:
			select {
			case due <- i:
			case <-ctx.Done():
			}
		case <-failed.found:
			cancel()
		case <-ctx.Done():
		}
		wait.Stop()
	}
	close(due)
	group.Wait()
	return ctx.Err()
}

// arrivals are the times of n events.
type arrivals struct {
	mu       sync.Mutex
	sent     []time.Time // when the commit was answered
	received []time.Time
	left     int
	done     chan struct{}
}

func newArrivals(n int) *arrivals {
	return &arrivals{
		sent:     make([]time.Time, n),
		received: make([]time.Time, n),
		left:     n,
		done:     make(chan struct{}),
	}
}

func (a *arrivals) committed(seq int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[seq] = now
}

// read notes when the records come, until ctx ends.
func (a *arrivals) read(ctx context.Context, x *run) error {
	client, err := x.reader()
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		for r := range fetches.RecordsAll() {
			seq, err := seqOf(r.Value)
			if err != nil {
				return err
			}
			a.arrived(seq, now)
		}
	}
	return nil
}

func (a *arrivals) arrived(seq int, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.received[seq].IsZero() {
		return
	}
	a.received[seq] = now
	if a.left--; a.left == 0 {
		close(a.done)
	}
}

func (a *arrivals) wait(ctx context.Context, failed *firstError) error {
	select {
	case <-a.done:
		return nil
	case <-failed.found:
		return failed.get()
	case <-ctx.Done():
		return fmt.Errorf("%d events did not come: %w", a.left, ctx.Err())
	}
}

// percentiles returns percentiles of the delays in ms, without the first ones. A record may arrive
// before the writer sees the commit.
func (a *arrivals) percentiles(warm int) (p50, p99, most float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := make([]float64, 0, len(a.sent))
	for i := warm; i < len(a.sent); i++ {
		took = append(took, max(0, a.received[i].Sub(a.sent[i]).Seconds()*1000))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))] }
	return at(0.5), at(0.99), at(1)
}
