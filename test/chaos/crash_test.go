package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// Workers get kill -9 at random moments, with the copies of a payment spread over partitions and
// over both workers. Every order is paid once and every effect happened once (K-01, rule 10). The
// sizes are those the product promises to survive.
func TestKilledWorkersPayEachOrderOnce_Idempotent(t *testing.T) {
	needTime(t)
	for _, c := range []struct {
		name   string
		in     func(testing.TB) backend
		flags  []string
		orders int
		some   bool // half of the orders, but in the long form
	}{
		{name: "postgres", in: func(t testing.TB) backend { return inPostgres(testenv.Postgres(t)) }, orders: 40_000},
		{name: "postgres, franz-go", in: func(t testing.TB) backend { return inPostgres(testenv.Postgres(t)) }, flags: []string{"-client", "franz-go"}, orders: 40_000},
		{name: "mariadb", in: func(t testing.TB) backend { return inMariaDB(testenv.MariaDB(t)) }, orders: 20_000},
		{name: "mariadb in batches", in: func(t testing.TB) backend { return inMariaDB(testenv.MariaDB(t)) }, flags: []string{"-batch"}, orders: 20_000, some: true},
	} {
		orders := c.orders
		if c.some && !soak() {
			orders /= 2
		}
		t.Run(c.name, func(t *testing.T) { killedWorkersPayEachOrderOnce(t, c.in(t), orders, c.flags...) })
	}
}

func killedWorkersPayEachOrderOnce(t *testing.T, in backend, orders int, flags ...string) {
	const partitions, enough = 6, 10
	kills := 12
	if soak() {
		kills = 60
	}
	rng, seed := newSeeded(t)
	began := time.Now()
	s := newShop(t, newCluster(t, testenv.Kafka(t)), in, orders, partitions, flags...)
	load := copies(rng, orders, 2, partitions)
	portion := len(load)/(2*kills+2) + 1 // more for a fast machine: its workers are done before a kill
	more := func() bool {
		n := min(portion, len(load))
		s.send(load[:n])
		load = load[n:]
		return n > 0
	}
	release := func(int) { more() }
	workers := newCrew(t, []string{"a", "b"}, s.worker)
	s.kafka.waitMembers(s.group, 2)
	watch := s.watch()
	release(0)
	release(0)
	hits := killing{
		crew: workers, rng: rng, kills: kills, effects: s.effects, between: 300, spread: 30 * time.Millisecond, left: s.left, release: release,
		more: more,
	}.run()
	killed := time.Since(began)
	for more() {
	}
	s.kafka.waitNoLag(s.group, s.topic, time.Minute)
	workers.requireRunning()
	workers.stop(20 * time.Second)
	watch.end()

	stats := s.stats(workers.all)
	require.GreaterOrEqual(t, hits, enough, "kills of a process that was working")
	watch.requireNone()
	s.requireOnce(orders)
	soaked(t, t.Name(), seed, s.released, kills, 0, stats["assignments"], fmt.Sprintf(
		"each once, none given up; %d kills while work was left; at least %d deliveries, %d duplicates of which %d redelivered; %d looks at offsets; %s, kills until %s",
		hits, stats["handled"]+stats["duplicates"], stats["duplicates"], stats["redelivered"], watch.samples,
		time.Since(began).Round(time.Second), killed.Round(time.Second)))
}

// SIGTERM in the middle of the work: events in work are finished or given back, finished ones are
// committed, and a restart gets no event twice.
func TestGracefulStopRedeliversNothing(t *testing.T) {
	needTime(t)
	const orders, partitions, stops = 4_000, 6, 4
	rng := newRand(t)
	s := newShop(t, newCluster(t, testenv.Kafka(t)), inPostgres(testenv.Postgres(t)), orders, partitions)
	s.send(copies(rng, orders, 1, partitions))

	var all []*proc
	for range stops {
		p := s.worker("a")
		all = append(all, p)
		goal := 1 + rng.IntN(orders/stops/2)
		require.Eventually(t, func() bool { return s.effects(p) >= goal }, 30*time.Second, 5*time.Millisecond, p.stderr.tail(40))
		pause(t, rng, 30*time.Millisecond)
		p.stop(20 * time.Second)
		committed, err := s.kafka.committed(s.group, s.topic)
		require.NoError(t, err)
		require.EqualValues(t, s.count(`SELECT count(*) FROM processed_events`), sum(committed), "committed and applied differ after a clean stop")
	}
	last := s.worker("a")
	all = append(all, last)
	s.kafka.waitNoLag(s.group, s.topic, time.Minute)
	last.stop(20 * time.Second)

	require.Zero(t, s.stats(all)["redelivered"], "records that came again")
	require.Zero(t, s.stats(all)["duplicates"], "every record is an event of its own")
	require.Equal(t, orders, s.stats(all)["handled"])
	s.requireOnce(orders)
}
