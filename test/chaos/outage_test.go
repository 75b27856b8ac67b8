package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis, Postgres and Kafka are crashed one after the other while events flow: workers pause, say so once, resume; nothing
// is lost, nothing is given up, and payments are booked once all the same (R-19, P-11, rule 18).
func TestOutages(t *testing.T) {
	needTime(t)
	const orders, partitions = 30_000, 3
	length := 4 * time.Second
	if soak() {
		length = 10 * time.Second
	}
	services := privateServices(t)
	kafka := newCluster(t, []string{services.brokers})
	s := newShop(t, kafka, services.postgres, orders, partitions)
	m := newMailing(t, kafka, partitions)
	payer := s.worker("payer")
	mailer := start(t, "mailer", programs.path(t, "notifier"), nil, m.notifierFlags("mailer", services.redis)...)
	flow := startFlow(t, orders, s.producer, m.producer)

	paid := func() int { return s.effects(payer) }
	mailed := func() int { return len(mailer.stdout.lines(`"event_id":`)) }
	waitFor(t, "payments flow", 50, paid, payer)
	waitFor(t, "mails flow", 50, mailed, mailer)

	services.outage("redis", length)
	waitFor(t, "mails flow again", mailed()+50, mailed, mailer)
	requireToldOnce(t, mailer, "ledger *redisstore.Store")

	services.outage("postgres", length)
	s.pool.Reset()
	waitFor(t, "payments flow again", paid()+50, paid, payer)
	requireToldOnce(t, payer, "ledger *pgstore.Store")

	payments, mails := paid(), mailed()
	services.outage("kafka", length)
	waitFor(t, "payments flow after Kafka", payments+50, paid, payer)
	waitFor(t, "mails flow after Kafka", mails+50, mailed, mailer)

	n := flow.end()
	s.kafka.waitNoLag(s.group, s.topic, time.Minute)
	s.kafka.waitNoLag(m.group, m.topic, time.Minute)
	payer.stop(20 * time.Second)
	mailer.stop(20 * time.Second)
	requireToldOnce(t, mailer, "ledger *redisstore.Store")
	requireToldOnce(t, payer, "ledger *pgstore.Store")

	_, err := s.pool.Exec(t.Context(), `DELETE FROM orders WHERE id > $1`, n) // nobody paid for them
	require.NoError(t, err)
	s.requireOnce(n)
	require.Len(t, sent([]*proc{mailer}), n, "mails")
	require.Zero(t, kafka.deadLetters(m.group, m.topic), "dead letters")
}

// requireToldOnce requires that a worker has logged one outage of what it depends on, and its end.
func requireToldOnce(t testing.TB, p *proc, what string) {
	t.Helper()
	for _, text := range []string{what + " unavailable, pausing", what + " is back"} {
		require.Len(t, p.stderr.lines(text), 1, "%q must be logged once by %s:\n%s", text, p, p.stderr.tail(60))
	}
}

// waitFor waits until a count that some workers drive has reached n.
func waitFor(t testing.TB, what string, n int, count func() int, worker *proc) {
	t.Helper()
	limit := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for got := count(); got < n; got = count() {
		worker.requireRunning()
		select {
		case <-tick.C:
		case <-limit:
			require.Fail(t, "stands still", "%s: %d of %d after a minute\n%s", what, got, n, worker.stderr.tail(60))
		}
	}
}

// flow sends events at a steady rate, each twice, until it is ended.
type flow struct {
	t    testing.TB
	stop context.CancelFunc
	done chan struct{}
	n    int
	err  error
}

// startFlow sends 200 events a second to each of the producers, up to limit.
func startFlow(t testing.TB, limit int, producers ...*producer) *flow {
	ctx, stop := context.WithCancel(t.Context())
	f := &flow{t: t, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.err = f.run(ctx, limit, producers)
	}()
	t.Cleanup(func() {
		stop()
		<-f.done
	})
	return f
}

func (f *flow) run(ctx context.Context, limit int, producers []*producer) error {
	const batch, partitions = 10, 3
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && f.n+batch <= limit {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var load []*delivery
		for range batch {
			f.n++
			for c := range 2 {
				load = append(load, &delivery{order: f.n, copy: c, partition: int32((f.n + c) % partitions)})
			}
		}
		for _, p := range producers {
			// Until it is acknowledged, however long the broker is away: what was begun is sent in full.
			if err := p.send(context.WithoutCancel(ctx), load); err != nil {
				return fmt.Errorf("topic %s: %w", p.topic, err)
			}
		}
	}
	return nil
}

// end stops the flow and returns how many events it has sent, all of them acknowledged.
func (f *flow) end() int {
	f.t.Helper()
	f.stop()
	<-f.done
	require.NoError(f.t, f.err)
	return f.n
}
