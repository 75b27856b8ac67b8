package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/dedup"
)

// partitions is the number of partitions of each topic.
const partitions = 6

// place is the part of the services that belongs to a run of the chain: two topics, two groups, two
// schemas, and the keys of the events in Redis. Payments and orders have a schema each, in place of
// a database each.
type place struct {
	name                       string // prefix of all names
	payments, orders           string // topics
	orderGroup, notifierGroup  string
	paymentSchema, orderSchema string

	o      options
	client *kgo.Client
	admin  *kadm.Client
	pool   *pgxpool.Pool
}

// openPlace creates the place. The caller must call close, also after an error.
func openPlace(ctx context.Context, o options) (p *place, err error) {
	name := "chain-" + strings.ToLower(rand.Text()[:10])
	schema := strings.ReplaceAll(name, "-", "_")
	p = &place{
		name: name, payments: name + "-payments", orders: name + "-orders",
		orderGroup: name + "-orderstatus", notifierGroup: name + "-notifier",
		paymentSchema: schema + "_payments", orderSchema: schema + "_orders", o: o,
	}
	if p.pool, err = pgxpool.New(ctx, o.postgres); err != nil {
		return p, errors.New("POSTGRES_URL cannot be parsed (not shown, it may hold a password)")
	}
	for _, s := range []string{p.paymentSchema, p.orderSchema} {
		if _, err := p.pool.Exec(ctx, "CREATE SCHEMA "+s); err != nil {
			return p, fmt.Errorf("make schemas in Postgres: %w", err)
		}
	}
	p.client, err = kgo.NewClient(kgo.SeedBrokers(o.brokers...), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		return p, fmt.Errorf("make topics in Kafka: %w", err)
	}
	p.admin = kadm.NewClient(p.client)
	made, err := p.admin.CreateTopics(ctx, partitions, -1, nil, p.payments, p.orders)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		return p, fmt.Errorf("make topics in Kafka: %w", err)
	}
	err = p.withRedis(func(c *redis.Client) error { return c.Ping(ctx).Err() })
	return p, err
}

func (p *place) withRedis(do func(*redis.Client) error) error {
	opts, err := redis.ParseURL(p.o.redis)
	if err != nil {
		return errors.New("REDIS_URL cannot be parsed (not shown, it may hold a password)")
	}
	client := redis.NewClient(opts)
	defer client.Close()
	if err := do(client); err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	return nil
}

// database returns the URL of a schema.
func (p *place) database(schema string) (string, error) {
	u, err := url.Parse(p.o.postgres)
	if err != nil || u.Scheme == "" {
		return "", errors.New("POSTGRES_URL must be a URL, such as postgres://user@host/database " +
			"(not shown, it may hold a password)")
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// close removes everything that the run has created at the services. notified are the events with
// keys in Redis.
func (p *place) close(notified []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	if p.pool != nil {
		for _, s := range []string{p.paymentSchema, p.orderSchema} {
			_, err := p.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+s+" CASCADE")
			errs = append(errs, err)
		}
		p.pool.Close()
	}
	if p.client != nil {
		errs = append(errs, p.removeTopics(ctx))
		p.client.Close()
	}
	errs = append(errs,
		p.withRedis(func(c *redis.Client) error { return p.forget(ctx, c, notified) }))
	return errors.Join(errs...)
}

// removeTopics removes the topics, including those for dead letters and replays, which have the
// same prefix.
func (p *place) removeTopics(ctx context.Context) error {
	for _, g := range []string{p.orderGroup, p.notifierGroup} {
		_ = p.leave(ctx, g) // a group with members cannot be deleted; the group may not exist
		_, _ = p.admin.DeleteGroup(ctx, g)
	}
	all, err := p.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	var own []string
	for _, t := range all.Names() {
		if strings.HasPrefix(t, p.name) {
			own = append(own, t)
		}
	}
	_, err = p.admin.DeleteTopics(ctx, own...)
	return err
}

// notifierScope is the scope in the source of the notifier.
const notifierScope = "notification"

// forget deletes the records of this run from the notifiers' store. Package redisstore describes
// the keys.
func (p *place) forget(ctx context.Context, c *redis.Client, events []string) error {
	_, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range events {
			pipe.Unlink(ctx,
				"idem:"+dedup.Key{Scope: notifierScope, Type: "order.paid", ID: id}.String())
		}
		pipe.Unlink(ctx, "idem:topic:"+p.orders)
		pipe.HDel(ctx, "idem:scope:"+notifierScope, "topic:"+p.orders)
		return nil
	})
	return err
}

// leave removes the members of a stopped group. Members are static, so the broker would wait.
func (p *place) leave(ctx context.Context, group string) error {
	var ids []string
	described, err := p.admin.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	for _, m := range described[group].Members {
		if m.InstanceID != nil {
			ids = append(ids, *m.InstanceID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	left, err := p.admin.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs(ids...))
	if err != nil {
		return err
	}
	return left.Error()
}

// assigned returns the number of partitions of a topic for each member of a group, by instance ID.
// The result is nil during a rebalance.
func (p *place) assigned(ctx context.Context, group, topic string) (map[string]int, error) {
	described, err := p.admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	g := described[group]
	if g.State != "Stable" {
		return nil, nil
	}
	have := make(map[string]int)
	for _, m := range g.Members {
		a, ok := m.Assigned.AsConsumer()
		if !ok || m.InstanceID == nil {
			continue
		}
		for _, t := range a.Topics {
			if t.Topic == topic { // not replays
				have[*m.InstanceID] += len(t.Partitions)
			}
		}
	}
	return have, nil
}

// freeAddress returns an address without a listener.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// count returns the single number that a query selects. {p} and {o} in the query stand for the
// schemas.
func (p *place) count(ctx context.Context, query string) (n int, err error) {
	err = p.pool.QueryRow(ctx, p.sql(query)).Scan(&n)
	return n, err
}

// sql replaces {p} and {o} by the schemas.
func (p *place) sql(query string) string {
	return strings.NewReplacer("{p}", p.paymentSchema, "{o}", p.orderSchema).Replace(query)
}

// rows returns the rows that a query selects.
func rows[T any](ctx context.Context, p *place, query string) ([]T, error) {
	found, err := p.pool.Query(ctx, p.sql(query))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByPos[T])
}
