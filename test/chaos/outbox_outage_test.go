package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// The broker is gone while writers go on. The writers do not notice, and the relay does not grow.
// When the broker is back, all events are sent (O-15).
func TestOutboxBrokerAway(t *testing.T) {
	needTime(t)
	const most = 150 << 20
	length := 15 * time.Second
	if soak() {
		length = 2 * time.Minute
	}
	_, seed := newSeeded(t)
	started := time.Now()
	services := privateServices(t, "kafka")
	t.Logf("Kafka is up after %s", seconds(time.Since(started)))
	b := newMailbox(t, []string{services.brokers}, testenv.Postgres(t), outboxPartitions)
	relay := b.relay("relay")
	// A few writers keep the relay busy until the broker goes. The others begin when it is away:
	// all that they write must wait, however late the broker goes or comes.
	few := b.write(2, seed, &writers{size: 20, pause: 200 * time.Millisecond})
	require.Eventually(t, func() bool { relay.requireRunning(); return sentBy(relay) > 500 }, 30*time.Second, 20*time.Millisecond, relay.stderr.tail(20))
	before := peakMemory(t, relay)
	w := &writers{size: 20, pause: 200 * time.Millisecond, goal: int64(2000 * length.Seconds())}
	w.txs.Store(1_000_000)
	var began time.Time // of 2,000 rows a second and more, as far as the machine goes
	services.during(crash, func() {
		began = time.Now()
		b.write(24, seed+1, w)
		pauseFor(t, length)
		require.Greater(t, b.waiting(), int(length.Seconds())*100, "nothing has piled up")
	}, "kafka")
	relay.requireRunning()
	few.end(true)
	w.end(true)
	rate := float64(w.events.Load()) / time.Unix(0, w.last.Load()).Sub(began).Seconds()
	back, left := time.Now(), b.waiting()
	b.waitEmpty(2*time.Minute+length, relay)
	drained := time.Since(back)
	peak := peakMemory(t, relay)
	relay.requireRunning()
	relay.stop(20 * time.Second)
	v := b.requireSent(b.committed(), nil)
	soaked(t, t.Name(), seed, int(few.events.Load()+w.events.Load()), 0, 1, 0, fmt.Sprintf(
		"0 missing, in order; broker %s away at %.0f rows/s; %d rows sent in %s: %.0f rows/s; %d repeats; the relay had %d MB at most, %d before",
		length, rate, left, seconds(drained), float64(left)/drained.Seconds(), v.repeats, peak>>20, before>>20))
	require.Less(t, peak, most)
}
