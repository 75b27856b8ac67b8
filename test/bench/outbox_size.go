package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Size: the table of a relay must stay small over a long time, and transactions must be short
// (O-11).

const (
	sizeRate    = 2000 // rows a second
	sizeTx      = 10   // rows a transaction
	sizeWriters = 8
	sizeSample  = 10 * time.Second
	sizeLook    = 50 * time.Millisecond // how often transactions are looked at
	longestTx   = time.Second           // wanted: shorter
)

// sizeSampled is the size of the table at one moment.
type sizeSampled struct {
	at            time.Duration
	heap, indexes int64 // bytes
	dead, waiting int64 // rows
}

// sizeResult is the size of the table over the whole run.
type sizeResult struct {
	samples []sizeSampled
	rows    int
	rate    float64       // that was reached
	longest time.Duration // of the relay's transactions, as they were seen
	vacuums int64
}

func (b *bench) size(ctx context.Context, takes time.Duration) (res sizeResult, err error) {
	res.rows = int(takes.Seconds() * sizeRate)
	x, err := b.outboxRun(ctx, res.rows)
	if err != nil {
		return res, err
	}
	defer x.dropTopic(x.topic)
	name := x.id + "-relay"
	pool, err := x.newPool(ctx, name, 4)
	if err != nil {
		return res, err
	}
	defer pool.Close()
	work, stop := context.WithCancel(ctx)
	defer stop()
	failed := newFirstError()
	var running sync.WaitGroup
	running.Go(func() { failed.add(x.runRelay(work, pgoutbox.New(pool), outbox.RelayConfig{})) })
	running.Go(func() { failed.add(res.watchTransactions(work, x, name)) })
	running.Go(func() { failed.add(res.watchTable(work, x)) })
	box, began := pgoutbox.New(x.pool), time.Now()
	err = paced(
		work,
		sizeWriters,
		res.rows/sizeTx,
		sizeRate/sizeTx,
		failed,
		func(ctx context.Context, part int) error {
			return pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) error {
				var entries [sizeTx]outbox.Entry
				for i := range entries {
					entries[i] = x.entry(part*sizeTx + i)
				}
				return box.Add(ctx, tx, entries[:]...)
			})
		},
	)
	res.rate = float64(res.rows) / time.Since(began).Seconds()
	stop()
	running.Wait()
	if found := failed.get(); found != nil {
		err = found
	}
	if err != nil {
		return res, fmt.Errorf("size: %w", err)
	}
	return res, x.pool.QueryRow(ctx, "SELECT autovacuum_count FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'idem_outbox'", x.schema()).
		Scan(&res.vacuums)
}

// watchTransactions looks for the longest one of the relay.
func (r *sizeResult) watchTransactions(ctx context.Context, x *run, name string) error {
	return each(ctx, sizeLook, func(time.Duration) error {
		var seconds float64
		err := x.pool.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8
			FROM pg_stat_activity WHERE application_name = $1`, name).
			Scan(&seconds)
		r.longest = max(r.longest, time.Duration(seconds*float64(time.Second)))
		return err
	})
}

func (r *sizeResult) watchTable(ctx context.Context, x *run) error {
	return each(ctx, sizeSample, func(at time.Duration) error {
		s := sizeSampled{at: at}
		err := x.pool.QueryRow(ctx, `SELECT pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, (SELECT count(*) FROM idem_outbox WHERE state = 0)
			FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'idem_outbox'`, x.schema()).
			Scan(&s.heap, &s.indexes, &s.dead, &s.waiting)
		if err != nil {
			return err
		}
		logf(
			"  %3.0fs: heap %d kB, indexes %d kB, %d dead rows, %d wait",
			at.Seconds(),
			s.heap>>10,
			s.indexes>>10,
			s.dead,
			s.waiting,
		)
		r.samples = append(r.samples, s)
		return nil
	})
}

// each calls do again and again until ctx ends.
func each(ctx context.Context, every time.Duration, do func(since time.Duration) error) error {
	began, tick := time.Now(), time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if err := do(now.Sub(began)); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// plateau compares the largest table of the first half of the time with that of the second.
func (r *sizeResult) plateau() (first, second int64) {
	for i, s := range r.samples {
		if i < len(r.samples)/2 {
			first = max(first, s.heap+s.indexes)
		} else {
			second = max(second, s.heap+s.indexes)
		}
	}
	return first, second
}
