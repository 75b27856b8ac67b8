package chaos

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// laneKeys is a multiple of twice the partitions, so that all events of a key go one way: to one
// partition, with their copies there or all over (see copies).
const laneKeys, lanePartitions = 360, 6

// kinds are the handlers of laneworker, which a key meets in turn.
var kinds = [...]string{"tx", "batchtx", "on", "tx", "batch"}

func kindOf(order int) string { return kinds[order/laneKeys%len(kinds)] }

func sequenced(d *delivery) []byte {
	return fmt.Appendf(nil, `{"event_id":"seq-%06d","type":%q,"key":%d,"seq":%d}`, d.order, kindOf(d.order), d.order%laneKeys, d.order/laneKeys)
}

// line has the parts that laneworkers work on.
type line struct {
	t            testing.TB
	kafka        *cluster
	topic, group string
	effects      *effects
	producer     *producer
	load         []*delivery
	portion      int
}

func newLine(t testing.TB, effects *effects, load []*delivery, portions int) *line {
	t.Helper()
	l := &line{t: t, kafka: newCluster(t, testenv.Kafka(t)), effects: effects, load: load, portion: len(load)/portions + 1}
	l.topic, l.group = l.kafka.topic("lanes", lanePartitions)
	l.producer = newProducer(t, l.kafka.brokers, l.topic, sequenced)
	l.producer.key = func(d *delivery) string { return strconv.Itoa(d.order % laneKeys) }
	return l
}

func (l *line) worker(name string) *proc {
	return start(l.t, name, programs.path(l.t, "laneworker"), nil, append([]string{"-brokers", l.kafka.brokers[0],
		"-topic", l.topic, "-group", l.group, "-instance-id", name}, l.effects.flags...)...)
}

func (l *line) release() {
	l.t.Helper()
	n := min(l.portion, len(l.load))
	l.producer.mustSend(l.load[:n])
	l.load = l.load[n:]
}

func (l *line) count(query string) int {
	l.t.Helper()
	return l.effects.count(l.t, query)
}

// distinct returns the number of different events with effects, and all returns the number of
// effects. which is a condition.
func (l *line) distinct(which string) int {
	l.t.Helper()
	return l.count(`SELECT count(*) FROM (SELECT DISTINCT "key", seq FROM effects WHERE ` + which + `) d`)
}

func (l *line) all(which string) int {
	l.t.Helper()
	return l.count(`SELECT count(*) FROM effects WHERE ` + which)
}

// works waits until a worker has had some effects more. The others may have handled all that was
// released before the worker had partitions: then the next portion is released.
func (l *line) works(p *proc, more int) {
	l.t.Helper()
	effects := func() int {
		return l.all(fmt.Sprintf("worker = '%s/%d'", p.name, p.cmd.Process.Pid))
	}
	goal := effects() + more
	looks := time.Tick(500 * time.Millisecond)
	for deadline := time.Now().Add(40 * time.Second); effects() < goal; {
		p.requireRunning()
		require.True(l.t, time.Now().Before(deadline), "%s does nothing:\n%s", p, p.stderr.tail(40))
		select {
		case <-time.After(20 * time.Millisecond):
		case <-looks:
			if l.kafka.hasNoLag(l.group, l.topic) {
				require.NotEmpty(l.t, l.load, "the load is spent before %s has worked", p)
				l.t.Logf("all is handled: another portion for %s", p)
				l.release()
			}
		case <-l.t.Context().Done():
			require.NoError(l.t, l.t.Context().Err())
		}
	}
}

// Three workers with 16 lanes each and every kind of handler are killed, and stopped beyond the
// session's time-out and woken. A fourth one joins and leaves. The copies of half of the keys are
// in other partitions. In transactions each event takes effect once. By claims it takes effect at
// least once, and at most once more for each lane that was cut short. The first effects of every
// key are in order (K-01, K-12, rules 11, 13, 25).
func TestLanesUnderFire_Idempotent(t *testing.T) {
	needTime(t)
	events, rounds := 16_000, 2
	if soak() {
		events, rounds = 200_000, 20
	}
	rng, seed := newSeeded(t)
	began := time.Now()
	l := newLine(t, inPgstore(t), copies(rng, events, 2, lanePartitions), 8*rounds)
	crew := newCrew(t, []string{"a", "b", "c"}, l.worker)
	l.kafka.waitMembers(l.group, 3)
	l.release()
	l.release()
	cut := 0 // runs of lanes that may have been cut short
	const lanes = 16 * lanePartitions
	for round := range rounds {
		for range 2 {
			victim := crew.names[rng.IntN(3)]
			l.works(crew.now[victim], 1+rng.IntN(200))
			pause(t, rng, 30*time.Millisecond)
			crew.kill(victim)
			cut += lanes
			crew.begin(victim)
			l.release()
		}
		sleeper := crew.now[crew.names[round%3]]
		l.works(sleeper, 1+rng.IntN(200))
		require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGSTOP))
		l.release()
		cut += lanes
		guest := l.worker("guest")
		select { // longer than the session's time-out: the group goes on without it
		case <-time.After(8 * time.Second):
		case <-t.Context().Done():
		}
		require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
		l.release()
		l.works(guest, 1)
		guest.stop(20 * time.Second)
	}
	for len(l.load) > 0 {
		l.release()
	}
	l.kafka.waitNoLag(l.group, l.topic, 2*time.Minute)
	crew.requireRunning()
	crew.stop(20 * time.Second)

	claimed := `kind IN ('on', 'batch')`
	repeats := l.all(claimed) - l.distinct(claimed)
	require.Equal(t, events, l.distinct("true"), "lost")
	require.Zero(t, l.all("NOT "+claimed)-l.distinct("NOT "+claimed), "effects of transactions that happened twice")
	require.LessOrEqual(t, repeats, cut*32, "repeats of claimed handlers")
	require.Zero(t, l.kafka.deadLetters(l.group, l.topic), "dead letters")
	l.requireOrder()
	soaked(t, "TestLanesUnderFire", seed, 2*events, 2*rounds, rounds, 2*rounds, fmt.Sprintf(
		"none lost, in order, %d repeats of claimed handlers; %d sleepers cut off, as many guests came and went; %s",
		repeats, rounds, time.Since(began).Round(time.Second)))
}

// requireOrder looks at keys with copies in their own partition only: a copy elsewhere may
// overtake.
func (l *line) requireOrder() {
	l.t.Helper()
	require.Zero(l.t, l.count(`
		SELECT count(*) FROM (
			SELECT seq, max(seq) OVER (PARTITION BY "key" ORDER BY first_id
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
			FROM (SELECT "key", seq, min(id) AS first_id FROM effects
				WHERE `+fmt.Sprintf(`"key" %% %d < %d`, 2*lanePartitions, lanePartitions)+` GROUP BY "key", seq) appeared
		) o WHERE latest > seq`), "events that came before an earlier one of their key")
}
