package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem/internal/testenv"
)

// resumesIn is how soon work must flow again after the end of an outage.
const resumesIn = 10 * time.Second

// Redis, Postgres, MariaDB, the schema registry and Kafka are crashed, and then frozen, while
// events flow. Workers pause, log that once, and resume within ten seconds. No event is lost or
// given up, and payments are booked once all the same (R-19, P-11, T-03, rule 18).
//
// The stores and the registry are away together, since each has a worker of its own. The worker
// with the registry uses the shared Postgres. One worker has the runner on franz-go.
func TestOutages(t *testing.T) {
	needTime(t) // and alone: the test measures how soon work resumes
	const partitions = 3
	orders, length := 30_000, 30*time.Second
	if soak() {
		orders, length = 100_000, time.Minute
	}
	began := time.Now()
	services := privateServices(t, "postgres", "mariadb", "redis", "kafka")
	started := time.Since(began)
	kafka, schemas := newCluster(t, []string{services.brokers}), newRegistry(t)
	m := newMailing(t, kafka, partitions)
	mailer := start(t, "mailer", programs.path(t, "notifier"), nil, m.notifierFlags("mailer", services.redis)...)
	all := []*stream{
		payments("postgres", "store *pgstore.Store is back", newShop(t, kafka, inPostgres(services.postgres), orders, partitions)),
		payments("mariadb", "store *sqlstore.Store is back", newShop(t, kafka, inMariaDB(testenv.MariaDBAt(t, services.mariadb)), orders, partitions)),
		payments("franz-go", "store *pgstore.Store is back", newShop(t, kafka, inPostgres(services.database(t, "franz")), orders, partitions, "-client", "franz-go")),
		payments("registry", "is back", newShop(t, kafka, inPostgres(testenv.Postgres(t)), orders, partitions, "-registry", schemas.url())),
		{
			name: "redis", back: "store *redisstore.Store is back", worker: mailer, kafka: kafka, topic: m.topic, group: m.group, producer: m.producer,
			count: func() int { return len(mailer.stdout.lines(`"event_id":`)) },
		},
	}
	all[3].shop.producer.value = schemaPayment
	var producers []*producer
	for _, w := range all {
		producers = append(producers, w.producer)
	}
	flow := startFlow(t, orders, producers...)
	for _, w := range all {
		waitFor(t, w.name+" flows", 50, w.count, w.worker)
	}
	flowing, outcome := time.Since(began), ""
	for _, how := range []fault{crash, freeze} {
		for _, broker := range []bool{false, true} {
			for _, w := range all {
				w.before = complaints(w.worker)
			}
			if broker {
				services.takeAway(how, length, "kafka")
			} else {
				schemas.during(how, func() { services.takeAway(how, length, "postgres", "mariadb", "redis") })
			}
			outcome += "; " + flowAgain(t, how, broker, all)
		}
	}
	n := flow.end()
	for _, w := range all {
		kafka.waitNoLag(w.group, w.topic, time.Minute)
		w.worker.stop(20 * time.Second)
		w.requireNoneGivenUp(t)
		if w.shop != nil {
			w.shop.exec(fmt.Sprintf(`DELETE FROM orders WHERE id > %d`, n)) // they have no payment
			w.shop.requireOnce(n)
		}
	}
	require.Len(t, sent([]*proc{mailer}), n, "mails")
	soaked(t, "TestOutages", 0, 2*len(all)*n, 0, 10, 0, fmt.Sprintf("none lost, none given up in %s (services up after %s, flowing after %s)%s",
		time.Since(began).Round(time.Second), started.Round(time.Second), flowing.Round(time.Second), outcome))
}

// payments is the stream of a shop with one worker.
func payments(name, back string, s *shop) *stream {
	w := s.worker("payer")
	return &stream{
		name: name, back: back, worker: w, kafka: s.kafka, topic: s.topic, group: s.group, producer: s.producer, shop: s,
		count: func() int { return s.effects(w) },
	}
}

// flowAgain requires that all streams flow soon after an outage, and that each worker has logged
// the outage. It returns how long the streams took.
func flowAgain(t testing.TB, how fault, broker bool, all []*stream) (outcome string) {
	t.Helper()
	outcome = "stores and registry " + how.name
	if broker {
		outcome = "broker " + how.name + ", serving groups after " + waitServes(all).Round(time.Millisecond).String()
	}
	took := timesToFlow(t, outcome, all)
	for i, w := range all {
		says := w.back
		if broker {
			says = "again"
		}
		told := requireToldOnce(t, w.worker, w.before, says)
		// A frozen broker may answer before any time limit of the client. Then there is no line.
		if !broker || how == crash {
			require.Positive(t, told, "%s has not said that something is away:\n%s", w.worker, w.worker.stderr.tail(60))
		}
		outcome += fmt.Sprintf(", %s after %s and %d lines", w.name, took[i].Round(time.Millisecond), told)
		require.Less(t, took[i], resumesIn, "%s: too late", outcome)
	}
	for _, w := range all {
		w.requireNoneGivenUp(t)
	}
	return outcome
}

// waitServes waits until the broker serves the groups of all streams, and returns how long that
// took. A broker that has just started loads its groups first, and no client can join them before.
func waitServes(all []*stream) time.Duration {
	began := time.Now()
	for _, w := range all {
		w.kafka.waitServes(w.group, w.topic)
	}
	return time.Since(began)
}

// timesToFlow returns how long each stream takes from now to 50 more effects. It looks at all
// streams in turn, so that a slow stream does not add to the time of the others.
func timesToFlow(t testing.TB, when string, all []*stream) []time.Duration {
	t.Helper()
	back, took, want := time.Now(), make([]time.Duration, len(all)), make([]int, len(all))
	for i, w := range all {
		if w.shop != nil {
			w.shop.reset()
		}
		want[i] = w.count() + 50
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for left := len(all); left > 0; <-tick.C {
		for i, w := range all {
			if took[i] > 0 {
				continue
			}
			w.worker.requireRunning()
			got := w.count()
			if got >= want[i] {
				took[i] = time.Since(back)
				left--
				continue
			}
			require.Less(t, time.Since(back), time.Minute, "%s: %s stands still at %d of %d\n%s",
				when, w.name, got, want[i], w.worker.stderr.tail(60))
		}
	}
	return took
}

// stream is one kind of work that flows.
type stream struct {
	name         string // of the service that the worker needs beside Kafka
	back         string // the line of the worker at the end of an outage of that
	worker       *proc
	kafka        *cluster
	topic, group string
	producer     *producer
	shop         *shop          // nil for mails
	count        func() int     // effects
	before       map[string]int // complaints before the outage
}

func (w *stream) requireNoneGivenUp(t testing.TB) {
	t.Helper()
	require.Zero(t, w.kafka.deadLetters(w.group, w.topic), "dead letters of %s", w.name)
}

// requireToldOnce requires that a worker has logged each trouble at most once since before was
// taken, and has logged the end of the outage. It returns the number of lines about trouble.
func requireToldOnce(t testing.TB, p *proc, before map[string]int, back string) (told int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.stderr.lines("level=INFO", back)) > 0 }, 10*time.Second, 50*time.Millisecond,
		"%s does not say %q:\n%s", p, back, p.stderr.tail(60))
	for text, n := range complaints(p) {
		told += n - before[text]
		require.LessOrEqual(t, n-before[text], 1, "in one outage %s has said more than once: %s\n%s", p, text, p.stderr.tail(60))
	}
	require.Less(t, told, mostLines, "%s says too much:\n%s", p, p.stderr.tail(60))
	return told
}

// mostLines is how many different things a worker may complain about in one outage.
const mostLines = 20

// complaints counts the lines of a worker that are not of level info, by message. Lines about a
// single event do not count. Lines that are not of its logger do.
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

// logLine finds level and message. The details that package consumer passes on from sarama are told
// apart by their errors.
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

// startFlow sends 100 events a second to each of the producers, up to limit.
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
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && f.n+batch <= limit {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var load []delivery
		for range batch {
			f.n++
			for c := range 2 {
				load = append(load, delivery{order: f.n, copy: c, partition: int32((f.n + c) % partitions)})
			}
		}
		if err := sendToAll(ctx, producers, load); err != nil {
			return err
		}
	}
	return nil
}

// sendToAll sends the same load with all producers at a time, until it is acknowledged, however
// long the broker is away: a load that was begun is sent in full.
func sendToAll(ctx context.Context, producers []*producer, load []delivery) error {
	var sending errgroup.Group
	for _, p := range producers {
		own := make([]*delivery, len(load)) // send notes the offsets
		for i, d := range load {
			own[i] = &d
		}
		sending.Go(func() error {
			if err := p.send(context.WithoutCancel(ctx), own); err != nil {
				return fmt.Errorf("topic %s: %w", p.topic, err)
			}
			return nil
		})
	}
	return sending.Wait()
}

// end stops the flow and returns how many events it has sent, all of them acknowledged.
func (f *flow) end() int {
	f.t.Helper()
	f.stop()
	<-f.done
	require.NoError(f.t, f.err)
	return f.n
}
