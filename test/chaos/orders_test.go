package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// backend is the database of a shop, as a flag of orderstatus names it.
type backend struct{ flag, driver, dsn string }

func inPostgres(url string) backend { return backend{"-postgres", "pgx", url} }
func inMariaDB(dsn string) backend  { return backend{"-mysql", "mysql", dsn} }

// shop has the parts that orderstatus workers work on: a database, a topic, the load.
type shop struct {
	t            testing.TB
	kafka        *cluster
	topic, group string
	backend      backend
	db           *sql.DB
	producer     *producer
	flags        []string

	mu       sync.Mutex // held while load is sent, until it is known to the database too
	released int        // deliveries sent
}

// newShop prepares the tables and n pending orders with the program itself.
func newShop(t testing.TB, kafka *cluster, in backend, orders int, partitions int32, flags ...string) *shop {
	t.Helper()
	s := &shop{t: t, kafka: kafka, backend: in, flags: flags}
	s.topic, s.group = kafka.topic("payments", partitions)
	var err error
	s.db, err = sql.Open(in.driver, in.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.db.Close() }) // before the tables are dropped
	s.reset()
	s.producer = newProducer(t, kafka.brokers, s.topic, payment)

	migrate := start(t, "migrate", programs.path(t, "orderstatus"), nil, in.flag, in.dsn, "-migrate", "-seed", strconv.Itoa(orders))
	<-migrate.done
	require.NoError(t, migrate.err, migrate.stderr.tail(20))
	s.exec(`CREATE TABLE sent (part int, off bigint, order_id bigint, PRIMARY KEY (part, off))`)
	return s
}

// worker starts an orderstatus worker under a static ID.
func (s *shop) worker(name string) *proc {
	args := []string{"-brokers", s.kafka.brokers[0], "-topic", s.topic, "-group", s.group, s.backend.flag, s.backend.dsn, "-instance-id", name,
		"-audit", "-stats", "200ms"}
	return start(s.t, name, programs.path(s.t, "orderstatus"), nil, append(args, s.flags...)...)
}

// send releases load, and writes down where it went.
func (s *shop) send(load []*delivery) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.producer.mustSend(load)
	for some := range slices.Chunk(load, 1000) {
		rows := make([]string, len(some))
		for i, d := range some {
			rows[i] = fmt.Sprintf("(%d, %d, %d)", d.partition, d.offset, d.order)
		}
		s.exec(`INSERT INTO sent (part, off, order_id) VALUES ` + strings.Join(rows, ", "))
	}
	s.released += len(load)
}

func (s *shop) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query)
	require.NoError(s.t, err)
}

// count returns the one number that a query finds.
func (s *shop) count(query string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n), query)
	return n
}

// reset closes the connections that an outage has cut.
func (s *shop) reset() {
	s.db.SetMaxIdleConns(0)
	s.db.SetMaxIdleConns(4)
}

// effects returns how many runs of one process were committed.
func (s *shop) effects(p *proc) int {
	s.t.Helper()
	return s.count(fmt.Sprintf(`SELECT count(*) FROM order_effects WHERE worker = '%s/%d'`, p.name, p.cmd.Process.Pid))
}

// left returns how many orders that were paid for are not paid.
func (s *shop) left() int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM orders WHERE status = 'pending' AND id IN (SELECT order_id FROM sent)`)
}

// requireOnce is the verdict: each order is paid, by its payment, and the handler was committed for
// it exactly once.
func (s *shop) requireOnce(orders int) {
	s.t.Helper()
	require.Zero(s.t, s.count(`SELECT count(*) FROM orders WHERE status <> 'paid'`), "orders that are not paid: lost")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM orders WHERE paid_by = concat('pay-', lpad(CAST(id AS char(6)), 6, '0'))`), "paid by another payment")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM processed_events`), "processed_events")
	require.Zero(s.t, s.count(`SELECT count(*) FROM (SELECT order_id FROM order_effects GROUP BY order_id HAVING count(*) > 1) doubled`), "effects that happened twice")
	require.Equal(s.t, orders, s.count(`SELECT count(*) FROM order_effects`), "effects")
	require.Zero(s.t, s.kafka.deadLetters(s.group, s.topic), "dead letters")
}

// stats adds up the statistics that the workers wrote. For a killed worker that is the last line,
// 0.2 s old at most.
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

// watch compares committed offsets with effects, all the time (K-01). If an offset is committed
// ahead of an event without effect, that event is lost if its worker dies now.
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

// end stops the watch. The violations may be read after that.
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
		err := w.s.db.QueryRowContext(ctx, fmt.Sprintf(`
			SELECT count(*), min(l.off) FROM sent l JOIN orders o ON o.id = l.order_id
			WHERE l.part = %d AND l.off >= %d AND l.off < %d AND o.status <> 'paid'`, p, w.looked[p], next)).Scan(&missing, &first)
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

// requireNone ends the watch after a last look and requires that there is no violation.
func (w *watch) requireNone() {
	w.s.t.Helper()
	w.end()
	w.sample(w.s.t.Context())
	require.Empty(w.s.t, w.violations)
	require.Greater(w.s.t, w.samples, 5, "too few samples to mean anything")
}
