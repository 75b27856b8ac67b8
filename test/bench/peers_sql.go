package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// sqlLimit is the limit of Postgres: the statements of one batch after the other, on one connection
// per partition, with the store's own table. Without Kafka, JSON and copies within a batch, and
// with the largest batches.
func sqlLimit(ctx context.Context, x *run) error {
	batches := x.topic.batches(idem.DefaultMaxBatch)
	x.meter.begin()
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range batches {
		group.Go(func() error {
			for _, b := range list {
				if err := sqlBatch(ctx, x, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// sqlEvents is a batch of deliveries, sorted by ID and without copies.
type sqlEvents struct {
	ids    []string
	byID   map[string]*delivery
	origin []int64
}

// batches cuts the deliveries of each partition.
func (t *topic) batches(size int) [][]*sqlEvents {
	list, _ := t.generate()
	offsets := make([]int64, t.partitions)
	out := make([][]*sqlEvents, t.partitions)
	for i := range list {
		d := &list[i]
		p := d.partition
		n := offsets[p]
		offsets[p]++
		if n%int64(size) == 0 {
			out[p] = append(out[p], &sqlEvents{byID: make(map[string]*delivery)})
		}
		b := out[p][len(out[p])-1]
		if b.byID[d.EventID] == nil {
			b.byID[d.EventID] = d
			b.ids = append(b.ids, d.EventID)
			b.origin = append(b.origin, n)
		}
	}
	for _, list := range out {
		for _, b := range list {
			slices.Sort(b.ids)
		}
	}
	return out
}

const sqlInsert = `
	INSERT INTO processed_events (tenant, scope, event_type, event_id, expires_at, origin_topic, origin_partition, origin_offset, origin_time)
	SELECT '', $1, $2, id, clock_timestamp() + interval '7 days', $3, 0, o, clock_timestamp()
	FROM unnest($4::text[], $5::bigint[]) AS r(id, o)
	ON CONFLICT DO NOTHING RETURNING event_id`

// sqlBatch takes three round trips, the least with a handler in between: begin and insert, update,
// commit.
func sqlBatch(ctx context.Context, x *run, b *sqlEvents) error {
	conn, err := x.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(sqlInsert, x.group, eventType, x.topic.name, b.ids, b.origin)
	results := conn.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return fmt.Errorf("begin: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return fmt.Errorf("insert: %w", err)
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := results.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	orders := make([]int64, len(fresh))
	for i, id := range fresh {
		orders[i] = b.byID[id].OrderID
	}
	if _, err := conn.Exec(ctx, payOrders, orders); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		return err
	}
	for _, id := range fresh {
		x.meter.effect(b.byID[id].Seq)
	}
	return nil
}

// storeAlone runs the same batches through Idem's store. The difference to sqlLimit is the cost of
// the contract, without Kafka and the engine.
func storeAlone(ctx context.Context, x *run) error {
	store, batches := x.postgres(), x.topic.batches(idem.DefaultMaxBatch)
	x.meter.begin()
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range batches {
		group.Go(func() error {
			for _, b := range list {
				err := storeBatch(ctx, x, store, b)
				for errors.Is(err, dedup.ErrContended) { // the engine would take the group apart
					err = storeBatch(ctx, x, store, b)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func storeBatch(ctx context.Context, x *run, store *pgstore.Store, b *sqlEvents) error {
	reqs, answers := make([]dedup.Request, len(b.ids)), make([]dedup.Answer, len(b.ids))
	for i, id := range b.ids {
		reqs[i] = dedup.Request{
			Key:       dedup.Key{Scope: x.scope, Type: eventType, ID: id},
			Retention: 7 * 24 * time.Hour,
			Origin:    dedup.Origin{Topic: x.topic.name, Offset: b.origin[i], Time: time.Now()},
		}
	}
	return store.ClaimTx(
		ctx,
		time.Minute,
		reqs,
		answers,
		func(tx pgx.Tx) ([]dedup.Completion, error) {
			var orders []int64
			for i := range reqs {
				if answers[i].Verdict == dedup.Fresh {
					orders = append(orders, b.byID[b.ids[i]].OrderID)
					x.meter.effect(b.byID[b.ids[i]].Seq)
				}
			}
			_, err := tx.Exec(ctx, payOrders, orders)
			return nil, err
		},
	)
}
