package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// TestStoresInARollingDeployment_Rule35 replaces the members of a group one by one. Members on
// pgstore give way to members on sqlstore with the same tables, and then the other way round. One
// member on each store is killed in a phase with both. Each event takes effect once (rules 10, 35).
func TestStoresInARollingDeployment_Rule35(t *testing.T) {
	needTime(t)
	const events, partitions = 5_000, 6
	rng, seed := newSeeded(t)
	began := time.Now()
	d := newDeployment(t, partitions)
	d.load = copies(rng, events, 2, partitions)
	d.portion = len(d.load) / 20 // the end of the load is copies

	d.store = onPgstore
	crew := newCrew(t, []string{"a", "b", "c"}, d.member)
	d.kafka.waitMembers(d.group, len(crew.names))
	d.proceed(crew)

	replace := func(name, store string) {
		t.Helper()
		d.send(d.portion)
		crew.now[name].stop(20 * time.Second)
		d.store = store
		crew.begin(name)
		d.proceed(crew)
	}
	hits := 0
	kill := func(name, store string) {
		t.Helper()
		d.send(d.portion)
		crew.kill(name)
		if d.left() > 0 {
			hits++
		}
		d.store = store
		crew.begin(name)
		d.proceed(crew)
	}
	replace("a", onSQLStore)
	kill("b", onPgstore)
	replace("b", onSQLStore)
	replace("c", onSQLStore)
	replace("a", onPgstore)
	kill("b", onSQLStore)
	replace("b", onPgstore)
	replace("c", onPgstore)
	require.Positive(t, hits, "kills while work was left")
	d.send(len(d.load))

	d.kafka.waitNoLag(d.group, d.topic, 20*time.Second)
	crew.requireRunning()
	crew.stop(20 * time.Second)
	d.requireOnce(events)
	d.requireCopiesAcross(crew.all)
	soaked(t, t.Name(), seed, d.released, 2, 0, 0, fmt.Sprintf(
		"each once; 6 members replaced, %d kills while work was left; %s",
		hits, time.Since(began).Round(time.Second)))
}

// deployment is a group. Its members share the tables of one schema.
type deployment struct {
	t            testing.TB
	kafka        *cluster
	topic, group string
	url          string
	db           *sql.DB
	producer     *producer

	store    string // of the next member
	load     []*delivery
	portion  int
	released int
	events   map[int]bool // that were sent
}

func newDeployment(t testing.TB, partitions int32) *deployment {
	t.Helper()
	d := &deployment{
		t: t, url: testenv.Postgres(t), kafka: newCluster(t, testenv.Kafka(t)),
		events: make(map[int]bool),
	}
	d.topic, d.group = d.kafka.topic("rolling", partitions)
	d.producer = newProducer(t, d.kafka.brokers, d.topic, func(d *delivery) []byte {
		return fmt.Appendf(nil, `{"event_id":"event-%d"}`, d.order)
	})
	pool, err := pgxpool.New(t.Context(), d.url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	d.db, err = sql.Open("pgx", d.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.db.Close() })
	const effects = `CREATE TABLE effects (event text, store text, worker text)`
	_, err = d.db.ExecContext(t.Context(), effects)
	require.NoError(t, err)
	return d
}

// member starts a member on the store of the moment.
func (d *deployment) member(name string) *proc {
	w := storeWorker{
		kind: d.store, brokers: strings.Join(d.kafka.brokers, ","), topic: d.topic, group: d.group,
		url: d.url, instance: name,
	}
	env := []string{roleEnv + "=" + storeRole}
	return start(d.t, name+"/"+d.store, os.Args[0], env, w.args()...)
}

// send sends the next n records of the load.
func (d *deployment) send(n int) {
	d.t.Helper()
	some := d.load[:n]
	d.load = d.load[n:]
	d.producer.mustSend(some)
	d.released += n
	for _, s := range some {
		d.events[s.order] = true
	}
}

// proceed sends a portion of the load, and waits until each member has had effects since then. It
// fails at once if a member has ended.
func (d *deployment) proceed(c *crew) {
	d.t.Helper()
	const enough = 40
	d.kafka.waitMembers(d.group, len(c.names)) // the others may handle earlier load
	before := make(map[*proc]int)
	for _, p := range c.now {
		before[p] = d.effects(p)
	}
	d.send(d.portion)
	for p, had := range before {
		waitFor(d.t, "effects of "+p.String(), had+enough, func() int {
			c.requireRunning()
			return d.effects(p)
		}, p)
	}
}

func (d *deployment) count(query string, args ...any) (n int) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer stop()
	require.NoError(d.t, d.db.QueryRowContext(ctx, query, args...).Scan(&n), query)
	return n
}

// left returns how many of the events that were sent have had no effect.
func (d *deployment) left() int {
	d.t.Helper()
	return len(d.events) - d.count(`SELECT count(DISTINCT event) FROM effects`)
}

func (d *deployment) effects(p *proc) int {
	d.t.Helper()
	name, _, _ := strings.Cut(p.name, "/")
	worker := fmt.Sprintf("%s/%d", name, p.cmd.Process.Pid)
	return d.count(`SELECT count(*) FROM effects WHERE worker = $1`, worker)
}

// requireOnce is the verdict over events 1 to n.
func (d *deployment) requireOnce(n int) {
	d.t.Helper()
	require.Len(d.t, d.events, n, "events that were sent")
	require.Zero(d.t, d.left(), "events without effect: lost")
	require.Equal(d.t, n, d.count(`SELECT count(*) FROM effects`), "effects")
	require.Equal(d.t, n, d.count(`SELECT count(*) FROM processed_events`), "records in the store")
	require.Zero(d.t, d.kafka.deadLetters(d.group, d.topic), "dead letters")
}

// requireCopiesAcross requires that the members on each store had effects, and met copies of events
// that took effect under the other store.
func (d *deployment) requireCopiesAcross(members []*proc) {
	d.t.Helper()
	by := make(map[string]string) // the store under which an event took effect
	rows, err := d.db.QueryContext(d.t.Context(), `SELECT event, store FROM effects`)
	require.NoError(d.t, err)
	defer func() { _ = rows.Close() }()
	effects, across := make(map[string]int), make(map[string]int)
	for rows.Next() {
		var event, store string
		require.NoError(d.t, rows.Scan(&event, &store))
		by[event] = store
		effects[store]++
	}
	require.NoError(d.t, rows.Err())
	for _, p := range members {
		_, store, _ := strings.Cut(p.name, "/")
		for _, event := range p.stdout.lines() {
			if other, ok := by[event]; ok && other != store {
				across[store]++
			}
		}
	}
	d.t.Logf("effects %v, copies of events of the other store %v", effects, across)
	for _, store := range []string{onPgstore, onSQLStore} {
		require.Positive(d.t, effects[store], "effects under %s", store)
		require.Positive(d.t, across[store], "copies that %s recognised", store)
	}
}
