package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// The consumers that people write by hand: one goroutine per partition, one event at a time.

const (
	payOrder    = "UPDATE orders SET status = 'paid', paid = paid + 1 WHERE id = $1"
	payOrders   = "UPDATE orders SET status = 'paid', paid = paid + 1 WHERE id = ANY($1)"
	bookAccount = "UPDATE accounts SET balance = balance + $2, payments = payments + 1 WHERE id = $1"
)

// saramaGroup handles each message of each claim in order, until ctx ends.
type saramaGroup struct {
	handle func(ctx context.Context, value []byte) error
}

func (saramaGroup) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaGroup) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (g saramaGroup) ConsumeClaim(
	s sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim,
) error {
	for m := range claim.Messages() {
		if err := g.handle(s.Context(), m.Value); err != nil {
			return err
		}
		s.MarkMessage(m, "")
	}
	return nil
}

// consumeSarama runs handle on every value of the topic.
func consumeSarama(
	ctx context.Context,
	x *run,
	handle func(ctx context.Context, value []byte) error,
) error {
	group, err := sarama.NewConsumerGroup(x.brokers, x.group, saramaConfig())
	if err != nil {
		return err
	}
	failed := newFirstError()
	var reading sync.WaitGroup
	reading.Go(func() {
		for err := range group.Errors() {
			failed.add(err)
		}
	})
	defer reading.Wait()
	defer group.Close()
	for ctx.Err() == nil {
		err := group.Consume(
			ctx,
			[]string{x.topic.name},
			saramaGroup{func(ctx context.Context, value []byte) error {
				err := handle(ctx, value)
				if ctx.Err() == nil {
					failed.add(err)
				}
				return err
			}},
		)
		if err = errors.Join(err, failed.get()); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// bareSarama only counts messages.
func bareSarama(ctx context.Context, x *run) error {
	return consumeSarama(ctx, x, func(context.Context, []byte) error {
		x.meter.begin()
		x.meter.count(1)
		return nil
	})
}

func naivePostgres(ctx context.Context, x *run) error {
	return consumeSarama(
		ctx,
		x,
		func(ctx context.Context, value []byte) error { return naiveTx(ctx, x, value) },
	)
}

// naiveTx inserts the event ID and makes the change in one transaction.
func naiveTx(ctx context.Context, x *run, value []byte) error {
	x.meter.begin()
	var p payment
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	fresh := false
	err := pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(
			ctx,
			"INSERT INTO naive_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING",
			p.EventID,
		)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		fresh = true
		return x.row.pay(ctx, tx, &p)
	})
	if err == nil && fresh {
		x.meter.effect(p.Seq)
	}
	return err
}

func payOwn(ctx context.Context, tx pgx.Tx, p *payment) error {
	_, err := tx.Exec(ctx, payOrder, p.OrderID)
	return err
}

func payShared(ctx context.Context, tx pgx.Tx, p *payment) error {
	_, err := tx.Exec(ctx, bookAccount, p.Account, p.Amount)
	return err
}

const naiveTTL = 24 * time.Hour

func naiveRedis(ctx context.Context, x *run) error {
	return consumeSarama(
		ctx,
		x,
		func(ctx context.Context, value []byte) error { return naiveRedisEvent(ctx, x, value) },
	)
}

// naiveRedisEvent reads the ID, takes a lock, makes the change, and stores the ID.
func naiveRedisEvent(ctx context.Context, x *run, value []byte) error {
	x.meter.begin()
	var p payment
	if err := json.Unmarshal(value, &p); err != nil {
		return err
	}
	key := x.id + ":naive:" + p.EventID
	state, err := x.redis.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if state == "COMPLETED" {
		return nil
	}
	ours, err := x.redis.SetNX(ctx, key, "PENDING", naiveTTL).Result()
	if err != nil || !ours {
		return err
	}
	x.meter.effect(p.Seq)
	return x.redis.Set(ctx, key, "COMPLETED", naiveTTL).Err()
}
