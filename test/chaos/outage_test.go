package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resumesIn is how soon work must flow again when what was away is back.
const resumesIn = 10 * time.Second

// Redis, Postgres and Kafka are crashed one after the other while events flow: workers pause, say so once, and resume within
// ten seconds; nothing is lost, nothing is given up, and payments are booked once all the same (R-19, P-11, T-03, rule 18).
func TestOutages(t *testing.T) {
	needTime(t)
	const partitions = 3
	orders, length, broker := 30_000, 10*time.Second, 4*time.Second
	if soak() {
		orders, length, broker = 100_000, time.Minute, 30*time.Second
	}
	began := time.Now()
	services := privateServices(t)
	started := time.Since(began)
	kafka := newCluster(t, []string{services.brokers})
	s := newShop(t, kafka, inPostgres(services.postgres), orders, partitions)
	m := newMailing(t, kafka, partitions)
	payer := s.worker("payer")
	mailer := start(t, "mailer", programs.path(t, "notifier"), nil, m.notifierFlags("mailer", services.redis)...)
	flow := startFlow(t, orders, s.producer, m.producer)
	payments := &stream{name: "payments", worker: payer, count: func() int { return s.effects(payer) }}
	mails := &stream{name: "mails", worker: mailer, count: func() int { return len(mailer.stdout.lines(`"event_id":`)) }}
	for _, w := range []*stream{payments, mails} {
		waitFor(t, w.name+" flow", 50, w.count, w.worker)
	}
	flowing := time.Since(began)
	requireNoneGivenUp := func() {
		t.Helper()
		require.Zero(t, kafka.deadLetters(m.group, m.topic), "dead letters of mails")
		require.Zero(t, kafka.deadLetters(s.group, s.topic), "dead letters of payments")
	}
	outcome := ""
	for _, o := range []struct {
		service string
		length  time.Duration
		back    string // what a worker says at its end
		hit     []*stream
	}{
		{"redis", length, "store *redisstore.Store is back", []*stream{mails}},
		{"postgres", length, "store *pgstore.Store is back", []*stream{payments}},
		{"kafka", broker, "again", []*stream{payments, mails}},
	} {
		for _, w := range o.hit {
			w.before = complaints(w.worker)
		}
		services.outage(o.service, o.length)
		back := time.Now()
		s.reset() // the test's own
		for _, w := range o.hit {
			waitFor(t, w.name+" flow again after "+o.service, w.count()+50, w.count, w.worker)
			took := time.Since(back).Round(time.Millisecond)
			told := requireToldOnce(t, w.worker, w.before, o.back)
			outcome += fmt.Sprintf("; %s %s away, %s after %s and %d lines", o.service, o.length, w.name, took, told)
			require.Less(t, took, resumesIn, "%s: too late", outcome)
		}
		requireNoneGivenUp()
	}
	n := flow.end()
	s.kafka.waitNoLag(s.group, s.topic, time.Minute)
	s.kafka.waitNoLag(m.group, m.topic, time.Minute)
	payer.stop(20 * time.Second)
	mailer.stop(20 * time.Second)

	s.exec(fmt.Sprintf(`DELETE FROM orders WHERE id > %d`, n)) // nobody paid for them
	s.requireOnce(n)
	require.Len(t, sent([]*proc{mailer}), n, "mails")
	requireNoneGivenUp()
	soaked(t, "TestOutages", 0, 4*n, 0, 3, 0, fmt.Sprintf("none lost, none given up in %s (services up after %s, flowing after %s)%s",
		time.Since(began).Round(time.Second), started.Round(time.Second), flowing.Round(time.Second), outcome))
}

// stream is one kind of work that flows.
type stream struct {
	name   string
	worker *proc
	count  func() int
	before map[string]int // complaints before the outage
}

// requireToldOnce requires that a worker has complained, since before was taken, about what was away, of each thing once,
// and has said that it is back. It returns how many lines it took to complain.
func requireToldOnce(t testing.TB, p *proc, before map[string]int, back string) (told int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.stderr.lines("level=INFO", back)) > 0 }, 10*time.Second, 50*time.Millisecond,
		"%s does not say %q:\n%s", p, back, p.stderr.tail(60))
	for text, n := range complaints(p) {
		told += n - before[text]
		require.LessOrEqual(t, n-before[text], 1, "in one outage %s has said more than once: %s\n%s", p, text, p.stderr.tail(60))
	}
	require.Positive(t, told, "%s has not said that something is away:\n%s", p, p.stderr.tail(60))
	require.Less(t, told, mostLines, "%s says too much:\n%s", p, p.stderr.tail(60))
	return told
}

// mostLines is how many different things a worker may complain about in one outage.
const mostLines = 20

// complaints counts what a worker has logged that is no information, by message, and by error where the message does not
// say what is wrong. Lines that are not of its logger count too; those about a single event do not.
func complaints(p *proc) map[string]int {
	counts := make(map[string]int)
	for _, line := range p.stderr.lines() {
		switch m := logLine.FindStringSubmatch(line); {
		case m == nil:
			counts["(not of the logger)"]++
		case m[1] != "INFO" && !strings.Contains(line, " offset="):
			counts[m[2]]++
		}
	}
	return counts
}

// logLine finds level and message. The details that package consumer passes on from sarama are told apart by their errors.
var logLine = regexp.MustCompile(`^time=\S+ level=(\w+) msg=("[^"]*"|sarama error=(?:"[^"]*"|\S+)|\S+)`)

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
