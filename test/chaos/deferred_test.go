package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Events fail now and then in handlers that are KeyOrdered, and three workers are killed. The first
// effects of every key are in order. No event is lost, no transaction takes effect twice, and no
// event stays deferred (rule 4, T-06).
func TestDeferredEventsUnderFire_Idempotent(t *testing.T) {
	needTime(t)
	for name, open := range effectsStores {
		t.Run(name, func(t *testing.T) { deferredUnderFire(t, open(t)) })
	}
}

func deferredUnderFire(t *testing.T, effects *effects) {
	events, rounds := effects.load, 3
	if soak() {
		events, rounds = 10*effects.load, 30
	}
	rng, seed := newSeeded(t)
	began := time.Now()
	l := newLine(t, effects, copies(rng, events, 2, lanePartitions), 2*rounds+2)
	l.producer.value = func(d *delivery) []byte {
		kind := [...]string{"ordered-tx", "ordered-on"}[d.order/laneKeys%2]
		return fmt.Appendf(nil, `{"event_id":"seq-%06d","type":%q,"key":%d,"seq":%d}`, d.order, kind, d.order%laneKeys, d.order/laneKeys)
	}
	crew := newCrew(t, []string{"a", "b", "c"}, l.worker)
	l.kafka.waitMembers(l.group, 3)
	l.release()
	deferred := 0
	for range rounds {
		victim := crew.names[rng.IntN(3)]
		l.works(crew.now[victim], 1+rng.IntN(100))
		pause(t, rng, 2*time.Second)
		deferred = max(deferred, l.count(`SELECT count(*) FROM deferred_events`))
		crew.kill(victim)
		crew.begin(victim)
		l.release()
	}
	for len(l.load) > 0 {
		l.release()
	}
	l.kafka.waitNoLag(l.group, l.topic, 2*time.Minute)
	require.Eventually(t, func() bool { return l.count(`SELECT count(*) FROM deferred_events`) == 0 }, 2*time.Minute, 100*time.Millisecond, "what is deferred runs")
	crew.requireRunning()
	crew.stop(20 * time.Second)
	const claimed, inTx = `kind = 'ordered-on'`, `kind = 'ordered-tx'`
	repeats := l.all(claimed) - l.distinct(claimed)
	require.Positive(t, deferred, "nothing was deferred when it was looked for")
	require.Equal(t, events, l.distinct("true"), "lost")
	require.Zero(t, l.all(inTx)-l.distinct(inTx), "transactions that happened twice")
	require.LessOrEqual(t, repeats, rounds*16*lanePartitions)
	require.Zero(t, l.kafka.deadLetters(l.group, l.topic), "dead letters")
	require.Zero(t, l.count(`SELECT count(*) FROM deferred_queues`))
	l.requireOrder()
	soaked(t, t.Name(), seed, 2*events, rounds, 0, 0, fmt.Sprintf("none lost, in order; %d deferred at a time at most, %d repeats of claims; %s",
		deferred, repeats, time.Since(began).Round(time.Second)))
}
