package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// shop is what orderstatus workers work on: a database, a topic, the load.
type shop struct {
	t            testing.TB
	kafka        *cluster
	topic, group string
	url          string
	pool         *pgxpool.Pool
	producer     *producer
	flags        []string

	mu       sync.Mutex // held while load is sent, until it is known to the database too
	released int        // deliveries sent
}

// newShop prepares the tables and n pending orders with the program itself.
func newShop(t testing.TB, kafka *cluster, url string, orders int, partitions int32) *shop {
	t.Helper()
	s := &shop{t: t, kafka: kafka, url: url}
	s.topic, s.group = kafka.topic("payments", partitions)
	var err error
	s.pool, err = pgxpool.New(context.Background(), url) // the schema is dropped after it was closed
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	s.producer = newProducer(t, kafka.brokers, s.topic, payment)

	migrate := start(t, "migrate", programs.path(t, "orderstatus"), nil, "-postgres", url, "-migrate", "-seed", strconv.Itoa(orders))
	<-migrate.done
	require.NoError(t, migrate.err, migrate.stderr.tail(20))
	_, err = s.pool.Exec(t.Context(), `CREATE TABLE load (partition int, off bigint, order_id bigint, PRIMARY KEY (partition, off))`)
	require.NoError(t, err)
	return s
}

// worker starts an orderstatus worker under a static ID.
func (s *shop) worker(name string) *proc {
	args := []string{"-brokers", s.kafka.brokers[0], "-topic", s.topic, "-group", s.group, "-postgres", s.url, "-instance-id", name,
		"-audit", "-stats", "200ms"}
	return start(s.t, name, programs.path(s.t, "orderstatus"), nil, append(args, s.flags...)...)
}

// send releases load, and writes down where it went.
func (s *shop) send(load []*delivery) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.producer.mustSend(load)
	rows := make([][]any, len(load))
	for i, d := range load {
		rows[i] = []any{d.partition, d.offset, d.order}
	}
	_, err := s.pool.CopyFrom(s.t.Context(), pgx.Identifier{"load"}, []string{"partition", "off", "order_id"}, pgx.CopyFromRows(rows))
	require.NoError(s.t, err)
	s.released += len(load)
}

// count returns the one number that a query finds.
func (s *shop) count(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), query, args...).Scan(&n), query)
	return n
}

// effects returns how many runs of one process were committed.
func (s *shop) effects(p *proc) int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM order_effects WHERE worker = $1`, fmt.Sprintf("%s/%d", p.name, p.cmd.Process.Pid))
}

// left returns how many orders that were paid for are not paid.
func (s *shop) left() int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM orders WHERE status = 'pending' AND id IN (SELECT order_id FROM load)`)
}

// requireOnce is the verdict: each order is paid, by its payment, and the handler was committed for it exactly once.
func (s *shop) requireOnce(orders int) {
	s.t.Helper()
	require.Zero(s.t, s.count(`SELECT count(*) FROM orders WHERE status <> 'paid'`), "orders that are not paid: lost")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM orders WHERE paid_by = 'pay-' || lpad(id::text, 6, '0')`), "paid by another payment")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM processed_events`), "processed_events")
	require.Zero(s.t, s.count(`SELECT count(*) FROM (SELECT FROM order_effects GROUP BY order_id HAVING count(*) > 1) doubled`), "effects that happened twice")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM order_effects`), "effects")
	require.Zero(s.t, s.kafka.deadLetters(s.group, s.topic), "dead letters")
}

// stats adds up what the workers said of themselves: of those that were killed the last line, 0.2 s old at most.
func (s *shop) stats(workers []*proc) map[string]int {
	total := make(map[string]int)
	for _, p := range workers {
		lines := p.stderr.lines("stats.handled=")
		if len(lines) == 0 {
			continue
		}
		for _, m := range statsField.FindAllStringSubmatch(lines[len(lines)-1], -1) {
			n, _ := strconv.Atoi(m[2]) // digits
			total[m[1]] += n
		}
	}
	return total
}

var statsField = regexp.MustCompile(`stats\.(\w+)=(\d+)`)

// watch compares what is committed with what is applied, all the time (K-01): an offset that is committed ahead of an
// event without effect is that event's loss, should its worker die now.
type watch struct {
	s          *shop
	looked     []int64 // up to where each partition was found well
	samples    int
	violations []string
	done       chan struct{}
	stop       context.CancelFunc
}

const maxViolations = 10

func (s *shop) watch() *watch {
	ctx, stop := context.WithCancel(s.t.Context())
	w := &watch{s: s, done: make(chan struct{}), stop: stop}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.sample(ctx)
			}
		}
	}()
	s.t.Cleanup(func() {
		w.end()
		if s.t.Failed() {
			s.t.Logf("the watch over the offsets has found: %q", w.violations)
		}
	})
	return w
}

// end stops the watch. What it has seen may be read after that.
func (w *watch) end() {
	w.stop()
	<-w.done
}

func (w *watch) sample(ctx context.Context) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	committed, err := w.s.kafka.committed(w.s.group, w.s.topic)
	if err != nil || ctx.Err() != nil {
		return // the group's coordinator may be moving: look again
	}
	if w.looked == nil {
		w.looked = make([]int64, len(committed))
	}
	for p, next := range committed {
		var missing int
		var first *int64
		err := w.s.pool.QueryRow(ctx, `
			SELECT count(*), min(l.off) FROM load l JOIN orders o ON o.id = l.order_id
			WHERE l.partition = $1 AND l.off >= $2 AND l.off < $3 AND o.status <> 'paid'`, p, w.looked[p], next).Scan(&missing, &first)
		if err != nil {
			return
		}
		if missing > 0 && len(w.violations) < maxViolations {
			w.violations = append(w.violations, fmt.Sprintf("partition %d: %d is committed, and %d events below have had no effect, the first at %d",
				p, next, missing, *first))
		}
		if next < w.looked[p] && len(w.violations) < maxViolations {
			w.violations = append(w.violations, fmt.Sprintf("partition %d: the committed offset went back from %d to %d", p, w.looked[p], next))
		}
		w.looked[p] = next
	}
	w.samples++
}

// requireNone ends the watch after a last look and requires that it has seen nothing wrong.
func (w *watch) requireNone() {
	w.s.t.Helper()
	w.end()
	w.sample(w.s.t.Context())
	require.Empty(w.s.t, w.violations)
	require.Greater(w.s.t, w.samples, 5, "too few samples to mean anything")
}
