package chaos

import (
	"fmt"
	"math/rand/v2"
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

// named returns the name of a laneworker in the table effects.
func named(p *proc) string { return fmt.Sprintf("%s/%d", p.name, p.cmd.Process.Pid) }

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
		return l.all(fmt.Sprintf("worker = '%s'", named(p)))
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
// least once, and again only if a process with an effect was killed or stopped. An event of On does
// so at most once more for each lane that was cut short. The first effects of every key are in order
// (K-01, K-12, rules 11, 13, 25).
func TestLanesUnderFire_Idempotent(t *testing.T) {
	needTime(t)
	events, rounds := 16_000, 2
	if soak() {
		events, rounds = 200_000, 20
	}
	began := time.Now()
	f := newLaneFire(t, events, rounds)
	f.run(t)

	repeats := f.repeats("on") + f.repeats("batch")
	require.Equal(t, f.events, f.distinct("true"), "lost")
	require.Zero(t, f.repeats("tx")+f.repeats("batchtx"), "effects of transactions that happened twice")
	require.Empty(t, head(unexplained(f.repeated(t), f.felled)), "effects of processes that went on")
	require.LessOrEqual(t, f.repeats("on"), f.cut, "repeats of On")
	require.Zero(t, f.kafka.deadLetters(f.group, f.topic), "dead letters")
	f.requireOrder()
	soaked(t, "TestLanesUnderFire", f.seed, 2*f.events, 2*f.rounds, f.rounds, 2*f.rounds, fmt.Sprintf(
		"none lost, in order, %d repeats of claimed handlers; %d sleepers cut off, as many guests came and went; %s",
		repeats, f.rounds, time.Since(began).Round(time.Second)))
}

// TestLanesThatForget is the control of TestLanesUnderFire_Idempotent. The claims of its workers are
// in the memory of each process, so copies of an event repeat its effect. The checks must find them.
func TestLanesThatForget(t *testing.T) {
	needTime(t)
	f := newLaneFire(t, 8_000, 1)
	f.effects.flags = append(f.effects.flags, "-forgets")
	f.run(t)
	require.Equal(t, f.events, f.distinct("true"), "lost")
	require.Zero(t, f.repeats("tx")+f.repeats("batchtx"), "effects of transactions that happened twice")
	found := unexplained(f.repeated(t), f.felled)
	require.NotEmpty(t, found, "the check has not seen the repeats")
	require.Greater(t, f.repeats("on"), f.cut, "the bound has not seen the repeats")
	soaked(t, t.Name(), f.seed, 2*f.events, 2*f.rounds, f.rounds, 2*f.rounds, fmt.Sprintf(
		"%d effects of processes that went on, as is to be; %d repeats of On, of %d events",
		len(found), f.repeats("on"), f.distinct("kind = 'on'")))
}

// laneFire kills and stops the workers of a line.
type laneFire struct {
	*line
	rng            *rand.Rand
	seed           uint64
	events, rounds int
	felled         map[string]blow // by the name of a worker in the table effects
	cut            int             // runs of lanes that may have been cut short
}

// blow is what ended the runs of a worker.
type blow string

const (
	killed  blow = "killed"
	stopped blow = "stopped" // and woken later
)

func newLaneFire(t *testing.T, events, rounds int) *laneFire {
	t.Helper()
	f := &laneFire{events: events, rounds: rounds, felled: make(map[string]blow)}
	f.rng, f.seed = newSeeded(t)
	f.line = newLine(t, inPgstore(t), copies(f.rng, f.events, 2, lanePartitions), 8*f.rounds)
	return f
}

// run disturbs the workers, and returns when all is handled.
func (f *laneFire) run(t *testing.T) {
	t.Helper()
	crew := newCrew(t, []string{"a", "b", "c"}, f.worker)
	f.kafka.waitMembers(f.group, 3)
	f.release()
	f.release()
	for round := range f.rounds {
		for range 2 {
			victim := crew.names[f.rng.IntN(3)]
			f.works(crew.now[victim], 1+f.rng.IntN(200))
			pause(t, f.rng, 30*time.Millisecond)
			f.fell(crew.now[victim], killed)
			crew.kill(victim)
			crew.begin(victim)
			f.release()
		}
		sleeper := crew.now[crew.names[round%3]]
		f.works(sleeper, 1+f.rng.IntN(200))
		f.fell(sleeper, stopped)
		require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGSTOP))
		f.release()
		guest := f.worker("guest")
		select { // longer than the session's time-out: the group goes on without it
		case <-time.After(8 * time.Second):
		case <-t.Context().Done():
		}
		require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
		f.release()
		f.works(guest, 1)
		guest.stop(20 * time.Second)
	}
	for len(f.load) > 0 {
		f.release()
	}
	f.kafka.waitNoLag(f.group, f.topic, 2*time.Minute)
	crew.requireRunning()
	crew.stop(20 * time.Second)
}

// fell notes what happens to a worker. Both may happen to one: then it was stopped.
func (f *laneFire) fell(p *proc, by blow) {
	const lanes = 16 * lanePartitions
	f.cut += lanes
	if name := named(p); f.felled[name] != stopped {
		f.felled[name] = by
	}
}

// repeats returns how many effects of a kind of handlers happened again.
func (f *laneFire) repeats(kind string) int {
	f.t.Helper()
	which := fmt.Sprintf("kind = '%s'", kind)
	return f.all(which) - f.distinct(which)
}

// repeated returns the effects of the events that took effect several times by claims.
func (f *laneFire) repeated(t *testing.T) (all []laneEffect) {
	t.Helper()
	rows, err := f.effects.db.QueryContext(t.Context(), `
		SELECT "key", seq, worker FROM (
			SELECT *, count(*) OVER (PARTITION BY "key", seq) AS times FROM effects
				WHERE kind IN ('on', 'batch')
		) e WHERE times > 1 ORDER BY id`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var one laneEffect
		require.NoError(t, rows.Scan(&one.key, &one.seq, &one.worker))
		all = append(all, one)
	}
	require.NoError(t, rows.Err())
	return all
}

// laneEffect is an effect of the event seq of a key.
type laneEffect struct {
	key, seq int
	worker   string
}

// unexplained returns the effects that no kill and no stop explains. Of each event, one effect needs
// no explanation. The others belong to felled workers, and each worker that was only killed has one
// of them: its runs end with it. A worker that was woken may be the last one, so the order does not
// count.
func unexplained(all []laneEffect, felled map[string]blow) (wrong []string) {
	type event struct{ key, seq int }
	alive, seen := make(map[event]string), make(map[laneEffect]bool)
	for _, e := range all {
		at, by := event{e.key, e.seq}, felled[e.worker]
		first, another := alive[at]
		switch {
		case by == stopped:
		case seen[e]:
			wrong = append(wrong, fmt.Sprintf("event %d of key %d: twice by %s", e.seq, e.key, e.worker))
		case by == "" && another:
			wrong = append(wrong, fmt.Sprintf("event %d of key %d: by %s and by %s", e.seq, e.key, first, e.worker))
		}
		seen[e] = true
		if by == "" {
			alive[at] = e.worker
		}
	}
	return wrong
}

func TestUnexplained(t *testing.T) {
	felled := map[string]blow{"a/1": killed, "b/2": stopped}
	for name, c := range map[string]struct {
		workers []string
		wrong   []string
	}{
		"once":                  {[]string{"c/3"}, nil},
		"killed":                {[]string{"a/1", "c/3"}, nil},
		"stopped":               {[]string{"b/2", "c/3"}, nil},
		"woken last":            {[]string{"c/3", "b/2"}, nil},
		"stopped and killed":    {[]string{"b/2", "a/1", "c/3"}, nil},
		"stopped, has it again": {[]string{"b/2", "b/2"}, nil},
		"killed, had it twice":  {[]string{"a/1", "a/1"}, []string{"event 5 of key 1: twice by a/1"}},
		"nothing happened":      {[]string{"c/3", "d/4"}, []string{"event 5 of key 1: by c/3 and by d/4"}},
		"twice by one":          {[]string{"c/3", "c/3"}, []string{"event 5 of key 1: twice by c/3"}},
		"one kill for three":    {[]string{"c/3", "a/1", "d/4"}, []string{"event 5 of key 1: by c/3 and by d/4"}},
		"another process a":     {[]string{"a/9", "c/3"}, []string{"event 5 of key 1: by a/9 and by c/3"}},
	} {
		all := []laneEffect{{1, 4, "c/3"}, {2, 5, "d/4"}} // other events
		for _, worker := range c.workers {
			all = append(all, laneEffect{1, 5, worker})
		}
		require.Equal(t, c.wrong, unexplained(all, felled), name)
	}
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
