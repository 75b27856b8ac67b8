package chaos

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

const outboxPartitions = 6

// There are 32 writers with transactions of up to half a second, 1,000 aggregates, and four relays
// that are killed while they work. Every committed event is in Kafka, those of each aggregate in
// the order of the commits, and no other event is (O-01, O-04, O-07, rule 22). A cursor over the
// numbers of the same transactions misses some.
func TestOutboxUnderFire(t *testing.T) { onEachOutbox(t, outboxUnderFire) }

func outboxUnderFire(t *testing.T, b *mailbox) {
	f := fire{events: 20_000, kills: 8, spread: 400 * time.Millisecond, writers: 32, pause: 500 * time.Millisecond}
	if soak() {
		f.events, f.kills, f.spread = 200_000, 60, 3*time.Second
	}
	cursor := b.cursor()
	f.run(t, b)
	lost := cursor.lost(f.all)
	v := b.requireSent(f.all, nil)
	require.Positive(t, lost, "a cursor lost nothing: these writers prove nothing (O-01)")
	require.Positive(t, f.w.rolledBack.Load(), "no transaction was rolled back")
	soaked(t, t.Name(), f.seed, len(f.all), f.hits, 0, 0, fmt.Sprintf(
		"0 missing, in the order of commits; %d transactions, %d of them rolled back, %d tried again; %d repeats; a cursor misses %d; "+
			"kills until %s, writers until %s, sent at %s",
		f.w.txs.Load(), f.w.rolledBack.Load(), f.w.triedAgain.Load(), v.repeats, lost,
		seconds(f.killed), seconds(f.written), seconds(f.took)))
}

// fire is four relays that are killed while writers write.
type fire struct {
	events, kills, writers int
	pause                  time.Duration // of a writer, at most
	spread                 time.Duration // between two kills, at most

	seed                  uint64
	w                     *writers
	relays                *crew
	hits                  int
	all                   []emission // that were committed
	killed, written, took time.Duration
}

// run ends when the outbox is empty.
func (f *fire) run(t *testing.T, b *mailbox) {
	t.Helper()
	rng, seed := newSeeded(t)
	f.seed = seed
	began := time.Now()
	f.relays = newCrew(t, []string{"a", "b", "c", "d"}, func(name string) *proc { return b.relay(name) })
	f.w = b.write(f.writers, seed, &writers{size: 20, pause: f.pause})
	working := func() int {
		f.w.requireStands(t)
		return 1 // there is always more to come
	}
	f.hits = killing{
		crew: f.relays, rng: rng, kills: f.kills, effects: sentBy, between: 300, spread: f.spread, left: working, release: func(int) {},
	}.run()
	f.killed = time.Since(began)
	for f.w.events.Load() < int64(f.events) {
		f.w.requireStands(t)
		waitABit(t)
	}
	f.w.end(true)
	f.written = time.Since(began)
	f.all = b.committed()
	require.Len(t, f.all, int(f.w.events.Load()))
	b.waitEmpty(time.Minute, f.relays.all...)
	f.took = time.Since(began)
	f.relays.requireRunning()
	f.relays.stop(20 * time.Second)
}

func seconds(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// A relay dies between publishing and marking, again and again. The published events come twice,
// with the same IDs, so that a consumer with a store has each effect once (O-07, O-14).
func TestOutboxKilledBeforeItMarks_Idempotent(t *testing.T) {
	onEachOutbox(t, outboxKilledBeforeItMarks)
}

func outboxKilledBeforeItMarks(t *testing.T, b *mailbox) {
	t.Parallel() // it waits for leases most of the time
	events, deaths := 2_000, 4
	if soak() {
		events, deaths = 100_000, 100
	}
	rng, seed := newSeeded(t)
	began := time.Now()
	b.flags = []string{"-lease", "1s", "-batch", "50"}
	b.entry = func(e emission) outbox.Entry { // as laneworkers take them
		return outbox.Entry{Topic: b.topic, Key: e.key(), Type: "tx", ID: fmt.Sprintf("evt-%d-%d", e.tx, e.n),
			Payload: fmt.Appendf(nil, `{"key":%d,"seq":%d}`, e.tx, e.n)}
	}
	effects := inPgstore(t) // of a service with a database of its own
	consumer := start(t, "consumer", programs.path(t, "laneworker"), nil, append([]string{"-brokers", b.kafka.brokers[0],
		"-topic", b.topic, "-group", b.group, "-instance-id", "consumer"}, effects.flags...)...)
	b.write(8, seed, &writers{size: 20, pause: 20 * time.Millisecond, goal: int64(events)}).end(false)
	for range deaths {
		p := b.relay("relay", "-exit-after", fmt.Sprint(1+rng.IntN(5)))
		select {
		case <-p.done:
		case <-time.After(30 * time.Second):
			require.Fail(t, "does not die", p.dump())
		}
		var exit *exec.ExitError
		require.True(t, errors.As(p.err, &exit) && exit.ExitCode() == 9, "%v: %s", p.err, p.stderr.tail(20))
	}
	require.Positive(t, b.waiting(), "the last one died when nothing was left")
	last := b.relay("last")
	b.waitEmpty(time.Minute, last)
	last.stop(20 * time.Second)
	all := b.committed()
	v := b.requireSent(all, nil)
	require.GreaterOrEqual(t, v.repeats, deaths, "each death left at least one row that had been published")
	b.kafka.waitNoLag(b.group, b.topic, time.Minute)
	consumer.stop(20 * time.Second)
	require.Equal(t, len(all), effects.count(t, `SELECT count(*) FROM effects`), "effects")
	require.Equal(t, len(all), effects.count(t, `SELECT count(*) FROM (SELECT DISTINCT key, seq FROM effects) d`), "effects that happened twice")
	require.Zero(t, b.kafka.deadLetters(b.group, b.topic), "dead letters")
	soaked(t, t.Name(), seed, len(all), deaths, 0, 0, fmt.Sprintf("%d records came again, each effect once; %s", v.repeats, seconds(time.Since(began))))
}

// One of two relays is stopped for twice its lease again and again, before it publishes and before
// it marks. It wakes with an old epoch, with which it marks no row. No event is lost, and the order
// holds (O-13).
func TestOutboxRelayThatSlept(t *testing.T) { onEachOutbox(t, outboxRelayThatSlept) }

func outboxRelayThatSlept(t *testing.T, b *mailbox) {
	t.Parallel() // it waits for leases most of the time
	const lease = time.Second
	sleeps := 3
	if soak() {
		sleeps = 60
	}
	_, seed := newSeeded(t)
	began := time.Now()
	b.flags = []string{"-lease", lease.String()}
	awake, sleeper := b.relay("awake"), b.relay("sleeper", "-stop-every", "3")
	w := b.write(8, seed, &writers{size: 10, pause: 100 * time.Millisecond})
	for i := range sleeps {
		require.Eventually(t, func() bool { awake.requireRunning(); return len(sleeper.stdout.lines("sleeps")) > i }, 30*time.Second, 10*time.Millisecond,
			"the sleeper has nothing to do:\n%s", sleeper.stdout.tail(20))
		select {
		case <-time.After(2 * lease):
		case <-t.Context().Done():
		}
		w.requireStands(t)
		require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	}
	w.end(true)
	for end := time.Now().Add(time.Minute); b.waiting() > 0 && time.Now().Before(end); waitABit(t) {
		_ = sleeper.cmd.Process.Signal(syscall.SIGCONT) // it may sleep once more
	}
	b.waitEmpty(time.Second, awake, sleeper)
	all := b.committed()
	v := b.requireSent(all, nil)
	refused := 0
	for _, line := range sleeper.stdout.lines("settled") {
		if !strings.Contains(line, "lost=0") {
			refused++
		}
	}
	require.Positive(t, refused, "no old epoch was refused:\n%s", sleeper.stdout.tail(100))
	soaked(t, t.Name(), seed, len(all), 0, sleeps, sleeps, fmt.Sprintf("0 missing, in order; %d settlements of an old epoch refused, %d repeats; %s",
		refused, v.repeats, seconds(time.Since(began))))
}

// A relay sleeps after it has published. If another relay holds its shards when it wakes, it leaves
// the rows as they are (O-13).
func TestOutboxOldEpochMarksNothing(t *testing.T) { onEachOutbox(t, outboxOldEpochMarksNothing) }

func outboxOldEpochMarksNothing(t *testing.T, b *mailbox) {
	t.Parallel() // it waits for leases most of the time
	_, seed := newSeeded(t)
	b.write(4, seed, &writers{size: 20, goal: 200}).end(false)
	sleeper := b.relay("sleeper", "-lease", "1s", "-batch", "40", "-stop-after", "1")
	require.Eventually(t, func() bool { return len(sleeper.stdout.lines("sleeps")) == 1 }, 20*time.Second, 10*time.Millisecond, sleeper.stderr.tail(20))
	published := len(b.records())
	waiting := b.waiting()
	require.Positive(t, published)
	require.Equal(t, waiting, b.count(`SELECT count(*) FROM emitted`), "published and not marked")
	held := 0
	require.Eventually(t, func() bool {
		leases, err := b.db.relays().Hold(t.Context(), "another", time.Hour, true)
		require.NoError(t, err)
		held = len(leases)
		return held == outbox.Shards
	}, 10*time.Second, 50*time.Millisecond, "what expired is taken")
	require.NoError(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool { return len(sleeper.stdout.lines("settled sent=")) == 1 }, 20*time.Second, 10*time.Millisecond,
		"it does not say what it published:\n%s", sleeper.stderr.tail(20))
	require.Equal(t, waiting, b.waiting(), "marked with an old epoch")
	require.Empty(t, sleeper.stdout.lines("lost=0"), "its epoch was taken")
	require.NoError(t, b.db.relays().Leave(t.Context(), "another"))
	sleeper.kill()
	last := b.relay("last", "-lease", "1s")
	b.waitEmpty(20*time.Second, last)
	v := b.requireSent(b.committed(), nil)
	require.GreaterOrEqual(t, v.repeats, published)
	t.Logf("%d of %d rows were published and not marked when it slept, %d came again", published, waiting, v.repeats)
	last.stop(20 * time.Second)
}
